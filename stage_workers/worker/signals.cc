#include "stage_workers/worker/signals.h"

#include <signal.h>

#include <thread>
#include <utility>

namespace vrambroker::worker {

void OnFirstSignal(const std::vector<int>& signals, std::function<void(int)> then) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set, then = std::move(then)] {
    int signal = 0;
    sigwait(&set, &signal);
    then(signal);
  }).detach();
}

}  // namespace vrambroker::worker
