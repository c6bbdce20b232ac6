#include "stage_workers/pipeline/run_queue.h"

#include <algorithm>
#include <numeric>

namespace vrambroker::pipeline {

RunQueue::RunQueue(const std::vector<absl::Duration>& arrivals, int max_concurrent, int first_part)
    : arrivals_(arrivals),
      max_concurrent_(std::max(max_concurrent, 1)),
      first_part_(std::max(first_part, 0)),
      order_(arrivals.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [this](int a, int b) { return arrivals_[a] < arrivals_[b]; });
}

std::vector<int> RunQueue::TakeArrivals(absl::Duration now) {
  std::vector<int> arrived;
  while (NextArrival() <= now && next_arrival_ < order_.size()) {
    arrived.push_back(order_[next_arrival_++]);
  }
  return arrived;
}

std::optional<int> RunQueue::Start(absl::Duration now) {
  if (AllStarted() || under_way_ >= max_concurrent_) return std::nullopt;
  if (AtFirstPart() && under_way_ > 0) return std::nullopt;
  const int run = order_[next_start_];
  if (arrivals_[run] > now) return std::nullopt;
  ++next_start_;
  ++under_way_;
  return run;
}

void RunQueue::Finish() { --under_way_; }

absl::Duration RunQueue::NextArrival() const {
  if (next_arrival_ == order_.size()) return absl::InfiniteDuration();
  return arrivals_[order_[next_arrival_]];
}

}  // namespace vrambroker::pipeline
