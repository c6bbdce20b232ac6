// Which run of a workload starts when: pure, time is passed in.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_RUN_QUEUE_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_RUN_QUEUE_H_

#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace vrambroker::pipeline {

// Runs are known by their index in the workload. They start in the order of arrival, equal ones in
// the order of the workload, and at most `max_concurrent` are under way at once. Times count from
// the begin of the workload. Not thread-safe.
class RunQueue {
 public:
  // `arrivals`: when each run arrives, at least 0. `max_concurrent` is above 0. `first_part`: after
  // so many starts the next one waits until these are over, so that what follows is measured alone.
  // 0: no such stop.
  RunQueue(const std::vector<absl::Duration>& arrivals, int max_concurrent, int first_part = 0);

  // The runs that have arrived by `now` and were not returned before, in starting order.
  std::vector<int> TakeArrivals(absl::Duration now);
  // Starts the next run, if one has arrived by `now` and fewer than `max_concurrent` are under way.
  std::optional<int> Start(absl::Duration now);
  // A run that was started is over.
  void Finish();

  // When something may happen without a Finish: the next arrival that TakeArrivals has not
  // returned. Infinite: never.
  absl::Duration NextArrival() const;
  // Whether the next start is the first after the first part.
  bool AtFirstPart() const { return first_part_ > 0 && next_start_ == first_part_; }
  // Whether every run was started.
  bool AllStarted() const { return next_start_ == order_.size(); }
  // Whether every run was started and is over.
  bool Done() const { return AllStarted() && under_way_ == 0; }

 private:
  const std::vector<absl::Duration> arrivals_;
  const int max_concurrent_;
  const size_t first_part_;
  // Run indexes in starting order.
  std::vector<int> order_;
  size_t next_arrival_ = 0;
  size_t next_start_ = 0;
  int under_way_ = 0;
};

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_RUN_QUEUE_H_
