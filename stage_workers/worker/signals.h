// Signals that end a program in good order.
#ifndef VRAMBROKER_STAGE_WORKERS_WORKER_SIGNALS_H_
#define VRAMBROKER_STAGE_WORKERS_WORKER_SIGNALS_H_

#include <functional>
#include <vector>

namespace vrambroker::worker {

// From here on the first of these signals calls `then` with its number, once, on a thread of its
// own; later ones do nothing. They are blocked in every thread that begins after this call: make it
// before any does.
void OnFirstSignal(const std::vector<int>& signals, std::function<void(int)> then);

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_STAGE_WORKERS_WORKER_SIGNALS_H_
