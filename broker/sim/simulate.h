// A workload under virtual time: the real core, or a rule in its place, decides; workers, link and
// requests are modelled. Pure: the same input gives the same result, and the only clock is the one
// that the caller passes to have decisions timed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/sim/broker_decider.h"
#include "broker/sim/rules.h"
#include "broker/sim/workload.h"

namespace vrambroker::sim {

struct Options {
  Rule rule = Rule::kBroker;
  // For the broker only.
  Declared declared = Declared::kAll;
  bool load_ahead = true;
  // Known uses that a plan looks at. 0: as many as the core's own default.
  int horizon = 0;
  // Nanoseconds of a steady clock. Empty: decisions are not timed.
  std::function<int64_t()> clock;
  // Keep every use, and the card over time, in the result.
  bool record = false;
  // Told as runs are declared and as requests end. Empty: nobody.
  TellProgress progress;
  // Told each event of the broker's core with what came of it, in order. Empty: nobody.
  Observe observe;
  // Look at all of the core's state after each event. For tests.
  bool check_core = false;
};

// A use that has ended.
struct UseRecord {
  int run = 0;
  int stage = 0;
  int component = 0;
  double asked = 0;  // seconds from the start
  double began = 0;
  double ended = 0;
  int held_before = 0;  // layers, when it began
  int granted = 0;
  int kept = 0;  // layers, right after its end
  double stall_seconds = 0;
};

struct RequestRecord {
  int run = 0;
  double arrived = 0;
  double ended = 0;
  double stall_seconds = 0;
  // Not empty: a stage of it cannot fit, and it ended there.
  std::string refusal;
  int refused_stage = -1;
};

// The card from `time` to the next sample's.
struct Sample {
  struct Component {
    int64_t layers = 0;  // bytes, fixed bytes not
    int64_t needs = 0;   // window and activation
    bool in_use = false;
    bool loading = false;
    friend bool operator==(const Component&, const Component&) = default;
  };
  double time = 0;
  std::vector<Component> components;
};

struct Result {
  // Whether every use could begin. Where not, the other figures are of what ran.
  bool fits = true;
  // Lost to loading: what uses took beyond their compute, and what they waited while no use ran.
  double stall_seconds = 0;
  double request_p50_seconds = 0;  // from a request's arrival; 0 where none ended
  double request_p95_seconds = 0;
  // Layers copied, ahead of uses and in their passes; fixed bytes not.
  int64_t bytes_to_device = 0;
  // Most at once: fixed bytes, layers, windows and activations.
  int64_t peak_bytes = 0;
  int64_t decisions = 0;
  double decision_p99_seconds = 0;      // 0 where no clock was given
  double seconds = 0;                   // of virtual time, to the end of the last request
  std::vector<RequestRecord> requests;  // by run
  std::vector<UseRecord> uses;          // recorded only
  std::vector<Sample> samples;          // recorded only, at most kMaxSamples
};

inline constexpr size_t kMaxSamples = 1'000'000;

// INVALID_ARGUMENT for a workload that Validate refuses; INTERNAL where something broke a
// guarantee: more on the card than it holds, requests that never end, a call answered wrongly.
absl::StatusOr<Result> Simulate(const Workload& workload, const Options& options);

// The value below which `percent` of them lie, by nearest rank; 0 where there are none.
double Percentile(std::vector<double> values, double percent);

}  // namespace vrambroker::sim
