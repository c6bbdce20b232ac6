#include "broker/server/alarms.h"

#include <algorithm>
#include <utility>

namespace vrambroker::server {

size_t Alarms::Add(std::function<void()> ring) {
  std::lock_guard<std::mutex> lock(mutex_);
  alarms_.push_back({std::move(ring), absl::InfiniteFuture()});
  return alarms_.size() - 1;
}

void Alarms::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Alarms::SetLocked(size_t alarm, absl::Time time) {
  alarms_[alarm].time = time;
  if (time < sleeps_until_) changed_.notify_one();
}

void Alarms::Set(size_t alarm, absl::Time time) {
  std::lock_guard<std::mutex> lock(mutex_);
  SetLocked(alarm, time);
}

void Alarms::SetNoLaterThan(size_t alarm, absl::Time time) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (time < alarms_[alarm].time) SetLocked(alarm, time);
}

void Alarms::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Alarms::Run() {
  // Sleeps are cut so that no sum with a clock's reading overflows.
  constexpr absl::Duration kLongest = absl::Hours(24);
  const auto sooner = [](const Alarm& a, const Alarm& b) { return a.time < b.time; };
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const auto next = std::min_element(alarms_.begin(), alarms_.end(), sooner);
    const absl::Time now = clock_.Now();
    if (next != alarms_.end() && next->time <= now) {
      next->time = absl::InfiniteFuture();
      lock.unlock();
      next->ring();
      lock.lock();
      continue;
    }
    sleeps_until_ = next == alarms_.end() ? absl::InfiniteFuture() : next->time;
    changed_.wait_until(lock, clock_.ToSteady(std::min(sleeps_until_, now + kLongest)));
    sleeps_until_ = absl::InfinitePast();
  }
}

}  // namespace vrambroker::server
