// The runs that were declared and have not ended, in the orders in which they are asked for: each
// question takes time by what it answers, not by how many runs wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/specs.h"

namespace vrambroker::core {

// One passage through a pipeline.
struct Run {
  RunId id;
  SessionId driver;
  std::string driver_name;
  std::string pipeline;
  // As the pipeline was when the run was declared; never null.
  std::shared_ptr<const std::vector<StageSpec>> stages;
  // 0 to the number of stages: those before it are begun or passed over.
  int next_stage = 0;
  // Set by Start: 0 for a run that waits, else higher for each run that started later.
  uint64_t start_order = 0;
  // When its driver means to start it.
  absl::Time starts_at = absl::InfinitePast();
  // When it ends by itself: its driver's session is lost. Infinite: not.
  absl::Time ends_at = absl::InfiniteFuture();

  bool started() const { return start_order != 0; }
  int count() const { return static_cast<int>(stages->size()); }
};

class RunBook {
 public:
  int size() const { return static_cast<int>(runs_.size()); }
  bool empty() const { return runs_.empty(); }
  // By id, which is the order in which they were declared.
  const std::map<RunId, Run>& all() const { return runs_; }
  // Null: it was never declared, or has ended.
  const Run* Find(RunId id) const;
  // Requires a run that is here.
  const Run& At(RunId id) const { return runs_.at(id); }
  // Started runs by start_order, the first first.
  const std::map<uint64_t, RunId>& started() const { return started_; }
  // Runs that wait: the one that is to start first comes first, then by id.
  const std::set<std::pair<absl::Time, RunId>>& waiting() const { return waiting_; }
  // When the next run ends by itself. Infinite future: none does.
  absl::Time next_end() const;
  // Whether a stage of some run has this name.
  bool Names(std::string_view component) const { return named_.contains(component); }

  // Requires a new id, and a run that has not started.
  void Add(Run run);
  void Erase(RunId id);
  // Each requires a run that is here.
  void Start(RunId id, uint64_t start_order);
  void SetNextStage(RunId id, int stage);
  // All runs of `driver`: when they end by themselves.
  void EndAt(SessionId driver, absl::Time at);
  // All runs of a driver that has come back: they do not end by themselves.
  void HandOver(SessionId driver, SessionId to);
  // Takes out those whose time is over. False: none were.
  bool EraseEnded(absl::Time now);

 private:
  void SetEnd(Run* run, absl::Time at);

  std::map<RunId, Run> runs_;
  std::map<uint64_t, RunId> started_;
  std::set<std::pair<absl::Time, RunId>> waiting_;
  std::set<std::pair<absl::Time, RunId>> ends_;
  std::map<SessionId, std::set<RunId>> by_driver_;
  std::map<std::string, int, std::less<>> named_;  // stages of runs that have the name
};

}  // namespace vrambroker::core
