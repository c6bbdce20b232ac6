// The broker's decisions as one pure state machine: Step(event, now) -> effects. No clock, no
// thread, no I/O; the same events at the same times give the same effects, which is what replays
// and simulations rest on.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/core/events.h"
#include "broker/core/explain.h"
#include "broker/core/picture.h"
#include "broker/core/specs.h"

namespace vrambroker::core {

// Times and bounds. Past a bound the caller gets RESOURCE_EXHAUSTED; nobody else notices.
struct Config {
  Epoch epoch{1};
  // A use waits at most this long for bytes on their way, and never longer than they would gain it.
  absl::Duration grow_wait = absl::Seconds(1);
  // After waiting this long only age counts in the queue.
  absl::Duration max_wait = absl::Seconds(30);
  // A use that waits for so long is named, with who holds what; again each time that it has waited
  // twice as long. Infinite: none is.
  absl::Duration long_wait = absl::Seconds(60);
  // A worker has this long to release down to a target.
  absl::Duration release_deadline = absl::Seconds(2);
  // What a worker retained when it lost the broker it drops after this.
  absl::Duration orphan_after = absl::Seconds(60);
  // A driver's reading may lag behind by this; without any reading, proven death counts after it.
  absl::Duration settling_time = absl::Seconds(5);
  // From the start nothing grows until all that are on record have attached again or are gone, and
  // each driver was read, and at most for this long. 0: nothing is waited for.
  absl::Duration recovery_window = absl::Seconds(10);
  // A run outlives its driver's session by this.
  absl::Duration run_grace = absl::Seconds(5);
  // Bytes that are loaded again within this time of their release count as regretted; what came
  // less than this ago does not make room for what is loaded ahead of a use that nobody declared.
  absl::Duration minimum_residency = absl::Seconds(10);
  // Where uses came again and again, the next is expected, and what it needs kept, for this long
  // after the last, or for a few times the longest time between two. At least 0.
  absl::Duration expect_for = absl::Seconds(30);
  // Bytes beyond its charge that a worker may show without being named.
  Bytes unexplained_tolerance{64 << 20};
  // Whether idle components are loaded ahead of uses that are known to come.
  bool load_ahead = false;
  // Nothing is loaded ahead while no use runs before it has been so for this long: the next stage
  // of a run follows at once, and would wait for the layer on the way.
  absl::Duration idle_before_load = absl::Milliseconds(50);
  // Of the memory that workers may use so much may be pinned: 0 (nobody pins) to 1. From the start
  // nobody is allowed more than it has for recovery_window: who holds nothing on a device is on no
  // record, and may have pinned what an earlier broker allowed.
  double host_pin_fraction = 0.5;
  // What the machine has. 0: not known, workers' own words count.
  Bytes host_memory;
  // The most that all workers of the machine may pin. 0: that fraction of what it has.
  Bytes host_pin_budget;
  int max_sessions = 1024;
  int max_components = 4096;
  int max_waiting = 1024;
  int max_runs = 65536;
  int max_pipelines_per_session = 256;
  // Answers, ended uses and marks kept for repeats, for each session.
  int max_request_ids = 4096;
  int max_decisions = 4096;
  // Known uses that a plan looks at.
  int horizon = 128;
};

class Machine {
 public:
  // `recorded`: what an earlier broker's record says of the devices; others' entries are dropped,
  // and those beyond max_sessions. What is on record is charged until its owner attaches again or
  // is gone.
  Machine(const Config& config, std::vector<DeviceSpec> devices, std::vector<Owner> recorded = {});
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Takes one event. `now` must not run backwards; an earlier time counts as the last one seen.
  Effects Step(const Event& event, absl::Time now);

  // What is known at `now`. Changes nothing.
  Picture GetPicture(absl::Time now) const;
  // The last decisions, oldest first.
  const std::deque<Decision>& decisions() const;
  // What was known at a decision and what the alternatives would have cost. NOT_FOUND, with the
  // range of ids that are known: there was no such decision, or what it rests on is forgotten.
  // Changes nothing.
  absl::StatusOr<Explanation> Explain(DecisionId id) const;

  // Stops the process where the state contradicts itself. For tests: it looks at everything.
  void CheckInvariants() const;

 private:
  // For tests that try every order of events: they copy a machine and tell states apart.
  friend class MachineInspection;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vrambroker::core
