// What has happened, added up for the metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/core/events.h"

namespace vrambroker::observe {

// Counts of values by their size. `Bounds::kUpper`: upper ends of the buckets, included, rising.
template <typename Bounds>
class Distribution {
 public:
  static constexpr size_t kBounds = Bounds::kUpper.size();

  void Add(double value) {
    size_t i = 0;
    while (i < kBounds && value > Bounds::kUpper[i]) ++i;
    ++counts_[i];
    sum_ += value;
  }
  // Of the values in bucket i that are not in a lower one; the last one has no upper end.
  const std::array<uint64_t, kBounds + 1>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::array<uint64_t, kBounds + 1> counts_{};
  double sum_ = 0;
};

// Seconds.
struct DecisionBounds {
  static constexpr std::array<double, 11> kUpper = {10e-6, 30e-6, 100e-6, 300e-6, 1e-3, 3e-3,
                                                    10e-3, 30e-3, 0.1,    0.3,    1};
};
struct WaitBounds {
  static constexpr std::array<double, 14> kUpper = {1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                    0.5,  1,    2.5,  5,     10,   30,  60};
};

inline constexpr size_t kDecisionKinds = static_cast<size_t>(core::DecisionKind::kLoadAhead) + 1;
inline constexpr size_t kReasons = static_cast<size_t>(core::Reason::kCannotFit) + 1;
inline constexpr size_t kEvents = std::variant_size_v<core::Event>;
// By the index of the event's type.
inline constexpr std::array<const char*, kEvents> kEventNames = {
    "attach",       "stream_closed",     "begin_use",        "call_cancelled", "end_use",
    "report",       "update_components", "declare_pipeline", "declare_run",    "finish_run",
    "process_died", "reading_began",     "reading",          "tick",           "drain"};
// Canonical status codes: 0 to 16.
inline constexpr size_t kStatusCodes = 17;

// What a component kept at the ends of its uses.
struct KeptTally {
  // Layers' bytes, by reason.
  std::array<double, kReasons> bytes{};
  // Higher than that of every component that was decided on earlier.
  uint64_t newest = 0;
};

// Components of a device whose kept bytes are told apart, as many as a broker admits. One more, and
// the one that was decided on longest ago is forgotten: it starts from 0 where it comes back.
inline constexpr size_t kMaxKept = 4096;

struct DeviceTally {
  struct Decided {
    uint64_t count = 0;
    double bytes = 0;
  };
  // By kind and reason.
  std::array<std::array<Decided, kReasons>, kDecisionKinds> decided{};
  // Held at the end of a use and not kept, by reason.
  std::array<double, kReasons> given_up{};
  // By "worker/component"; only components that have ended a use.
  std::map<std::string, KeptTally> kept;
  uint64_t kept_decisions = 0;
  uint64_t partial_grants = 0;
  uint64_t uses_begun = 0;
  uint64_t uses_ended = 0;
  double reused_bytes = 0;
  double stall_saved_seconds = 0;
  double stall_seconds = 0;
  double loaded_bytes = 0;
  double loaded_ahead_bytes = 0;
  uint64_t overdue = 0;
  uint64_t long_waits = 0;
  double overdue_bytes = 0;
  double revoked_bytes = 0;
  uint64_t readings = 0;
  uint64_t failed_readings = 0;
  Distribution<WaitBounds> waits;
  Distribution<WaitBounds> revocations;
  Distribution<WaitBounds> shown_free;
};

// A plain value; each method is to be called in the order of decisions.
class Tally {
 public:
  // A step has taken this event, in this time.
  void Note(const core::Event& event, absl::Duration took);
  // An effect has been carried out.
  void Note(const core::Effect& effect);

  // By UUID; only devices of which something was counted.
  const std::map<std::string, DeviceTally>& devices() const { return devices_; }
  // By the index of the event's type.
  const std::array<Distribution<DecisionBounds>, kEvents>& steps() const { return steps_; }
  // Calls that were answered with a status other than OK, by its code.
  const std::array<uint64_t, kStatusCodes>& refused() const { return refused_; }

 private:
  void Note(const core::Decision& decision);
  void Note(const core::Count& count);

  std::map<std::string, DeviceTally> devices_;
  std::array<Distribution<DecisionBounds>, kEvents> steps_;
  std::array<uint64_t, kStatusCodes> refused_{};
};

}  // namespace vrambroker::observe
