#include "broker/ctl/reader_watch.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace vrambroker::ctl {

void EndWithReader() { raise(SIGPIPE); }

ReaderWatch::ReaderWatch(int descriptor, std::function<void()> on_left)
    : descriptor_(descriptor),
      on_left_(std::move(on_left)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

ReaderWatch::~ReaderWatch() {
  const uint64_t one = 1;
  (void)!write(stop_, &one, sizeof(one));
  thread_.join();
  close(stop_);
}

void ReaderWatch::Run() {
  while (stop_ >= 0) {
    pollfd both[] = {{descriptor_, 0, 0}, {stop_, POLLIN, 0}};
    if (poll(both, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (both[1].revents != 0) return;
    if (!ReaderLeft(both[0])) continue;
    left_ = true;
    on_left_();
    return;
  }
}

}  // namespace vrambroker::ctl
