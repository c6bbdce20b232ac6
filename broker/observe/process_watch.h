// Proof that a process has died: by its pidfd, which no reuse of its number can fool.
#ifndef VRAMBROKER_BROKER_OBSERVE_PROCESS_WATCH_H_
#define VRAMBROKER_BROKER_OBSERVE_PROCESS_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {

// When a process of this pid namespace was started, in clock ticks since boot (field 22 of
// /proc/PID/stat). With the pid it names a process for as long as the machine runs. Above 0.
// NOT_FOUND where there is no such process; a zombie still has its time.
absl::StatusOr<uint64_t> ProcessStartTime(int32_t pid);

// A descriptor of the process that has this pid now. NOT_FOUND where there is none;
// INVALID_ARGUMENT for a pid below 1; RESOURCE_EXHAUSTED without a free descriptor; UNIMPLEMENTED
// on Linux before 5.3.
absl::StatusOr<UniqueFd> OpenPidfd(int32_t pid);

// The pid, in this namespace, of a pidfd's process: 0 for one of another namespace, -1 for one that
// was reaped. INVALID_ARGUMENT for a descriptor that is no pidfd.
absl::StatusOr<int32_t> PidOfPidfd(int pidfd);

// Tells the process from all others of this boot, in every pid namespace: above 1. NOT_FOUND on
// Linux before 6.9, where all pidfds share one inode; INVALID_ARGUMENT for no descriptor.
absl::StatusOr<uint64_t> UniqueIdOfPidfd(int pidfd);

// Whether a process of this namespace has that pid and start time now. Not told apart: a process of
// another namespace that says it has.
bool IsProcessHere(int32_t pid, uint64_t start_ticks);

// Whether the process of a pidfd has died; a zombie has.
bool HasDied(int pidfd);

// Watches processes and calls back when they have died. Thread-safe.
class ProcessWatch {
 public:
  // Watches at a time; past it RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWatches = 4096;

  // Names a watch. Never 0, never used twice.
  using WatchId = uint64_t;
  // Called once, on the watch's own thread, never within Watch(), without a lock held.
  using Callback = std::function<void()>;

  // `max_watches` is 1 to kMaxWatches, INVALID_ARGUMENT otherwise.
  static absl::StatusOr<std::unique_ptr<ProcessWatch>> Start(size_t max_watches = kMaxWatches);
  // Waits for a callback that runs; no other begins. Not to be called from a callback.
  ~ProcessWatch();

  // Watches the process that has `pid` and was started at `start_ticks` (see ProcessStartTime; 0:
  // whoever has the pid now). Where the pid is free, or somebody else's by now, the process is
  // known to be dead: the callback follows at once. A process whose start time cannot be read is
  // FAILED_PRECONDITION: it may be another one.
  absl::StatusOr<WatchId> Watch(int32_t pid, uint64_t start_ticks, Callback on_death);
  // Watches the process of a pidfd, as the peer of a socket gives it; works for other pid
  // namespaces. Takes the descriptor. INVALID_ARGUMENT if it is no pidfd.
  absl::StatusOr<WatchId> WatchPidfd(UniqueFd pidfd, Callback on_death);

  // Ends a watch. True: its callback did not begin and never will. False: it has begun (and may be
  // running), or there is no such watch.
  bool Cancel(WatchId id);

  // Watches that have neither called back nor been cancelled.
  size_t Size() const;

 private:
  struct Entry {
    UniqueFd pidfd;  // None: dead when the watch began.
    Callback on_death;
  };

  ProcessWatch(UniqueFd epoll, UniqueFd wake, size_t max_watches);
  absl::StatusOr<WatchId> Add(UniqueFd pidfd, Callback on_death);
  void Run();
  void CallBack(WatchId id);
  // Takes the entry out, under the lock; to be destroyed after it, as its callback may hold
  // anything.
  Entry Take(std::unordered_map<WatchId, Entry>::iterator entry);

  const UniqueFd epoll_;
  const UniqueFd wake_;  // An eventfd: the thread looks at stopping_ and dead_on_arrival_.
  const size_t max_watches_;
  mutable std::mutex mutex_;
  bool stopping_ = false;
  WatchId next_id_ = 1;
  std::unordered_map<WatchId, Entry> entries_;
  std::vector<WatchId> dead_on_arrival_;
  std::thread thread_;
};

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_PROCESS_WATCH_H_
