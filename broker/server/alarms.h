// Things to do at given times, on one thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "broker/server/clock.h"

namespace vrambroker::server {

// Thread-safe. Setting an alarm wakes the thread only where it would sleep beyond it, so that an
// alarm that is put off again and again costs no wake-ups.
class Alarms {
 public:
  explicit Alarms(const Clock& clock) : clock_(clock) {}
  ~Alarms() { Stop(); }

  // Before Start(). `ring` is called on the thread, without a lock held.
  size_t Add(std::function<void()> ring);
  void Start();
  // Replaces the time of this alarm. Infinite future: it is off.
  void Set(size_t alarm, absl::Time time);
  // Brings the alarm forward to `time`; one that rings earlier stays.
  void SetNoLaterThan(size_t alarm, absl::Time time);
  // Returns when the thread has ended; nothing rings afterwards.
  void Stop();

 private:
  struct Alarm {
    std::function<void()> ring;
    absl::Time time = absl::InfiniteFuture();
  };

  void Run();
  void SetLocked(size_t alarm, absl::Time time);

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Alarm> alarms_;
  absl::Time sleeps_until_ = absl::InfinitePast();
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace vrambroker::server
