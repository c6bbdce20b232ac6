// Virtual time: what is to happen when. Nothing happens in between.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace vrambroker::simulation {

class Scheduler {
 public:
  absl::Time now() const { return now_; }

  void At(absl::Time time, std::function<void()> run) {
    queue_.push({std::max(time, now_), ++last_, std::move(run)});
  }
  void After(absl::Duration delay, std::function<void()> run) { At(now_ + delay, std::move(run)); }

  // The next thing, in order of time and then of asking. False where there is none.
  bool RunOne() {
    if (queue_.empty()) return false;
    const Item item = queue_.top();
    queue_.pop();
    now_ = item.at;
    item.run();
    return true;
  }

 private:
  struct Item {
    absl::Time at;
    uint64_t order = 0;
    std::function<void()> run;
    bool operator<(const Item& other) const {
      return std::tie(other.at, other.order) < std::tie(at, order);
    }
  };
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  uint64_t last_ = 0;
  std::priority_queue<Item> queue_;
};

}  // namespace vrambroker::simulation
