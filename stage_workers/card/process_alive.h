// Which process is meant by a pid, and whether it lives.
#ifndef VRAMBROKER_STAGE_WORKERS_CARD_PROCESS_ALIVE_H_
#define VRAMBROKER_STAGE_WORKERS_CARD_PROCESS_ALIVE_H_

#include <sys/types.h>

#include <cstdint>

namespace vrambroker::card {

// Start time of a living process in clock ticks since boot, as /proc/PID/stat gives it. 0 for a pid
// that no process has, and for a process that has ended and only waits to be reaped (its memory on
// a device is gone by then).
uint64_t ProcessStartTicks(pid_t pid);

}  // namespace vrambroker::card

#endif  // VRAMBROKER_STAGE_WORKERS_CARD_PROCESS_ALIVE_H_
