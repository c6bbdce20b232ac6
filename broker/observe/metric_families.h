// The metrics of a broker, from a picture of it and what was counted. README.md has the table.
#pragma once

#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "broker/core/picture.h"
#include "broker/observe/tally.h"

namespace vrambroker::observe {

// Of one moment, between two decisions.
struct Observation {
  core::Picture picture;
  Tally tally;
  // Calls and other events that wait to be decided.
  size_t mailbox_waiting = 0;
  // Lines of the decision log that are in no file.
  uint64_t decision_log_dropped = 0;
};

// Pipelines that are told apart in vram_broker_runs; further ones, by name, are added up under
// this.
inline constexpr size_t kMaxPipelines = 256;
inline constexpr char kOtherPipelines[] = "(others)";

// No two samples of a family have the same labels: what two sessions of one name have is added up.
// As many samples as devices, sessions, components and pipelines need, which the core bounds.
std::vector<prometheus::MetricFamily> ToFamilies(const Observation& seen);

}  // namespace vrambroker::observe
