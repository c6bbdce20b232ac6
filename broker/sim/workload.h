// A workload as plain values: one card, the components of some pipelines, and the runs that arrive.
// What vrambroker.v1.Workload says in JSON, without the wire format.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "broker/core/layers.h"

namespace vrambroker::sim {

// Bytes of a name at most, as the broker's own.
inline constexpr int kMaxNameBytes = 128;
// Runs under way at once at most: as many uses as may wait at the broker.
inline constexpr int kMaxConcurrentRuns = 1024;

struct Device {
  int64_t capacity_bytes = 0;
  // Never granted. 0: none.
  int64_t reserve_bytes = 0;
  // Bytes a second to the device, shared by all. Above 0.
  double link_rate = 0;
};

struct Component {
  std::string name;  // as the workload's
  // (count, bytes of each) in keep order, both above 0; 1 to 4096 layers in all.
  std::vector<std::pair<int, int64_t>> layer_groups;
  // On the device throughout.
  int64_t fixed_bytes = 0;
  // Slots of the streamed window, each as large as the largest layer. Above 0.
  int window_layers = 2;
  // Seconds that one pass over all layers computes. 0: nothing hides the copies.
  double pass_seconds = 0;

  core::LayerTable Layers() const;
  int64_t WindowBytes() const;
};

struct Stage {
  int component = 0;  // of Workload::components
  int passes = 1;
  int64_t activation_bytes = 0;
  // What makes uses of the component alike in their activation; at most 64 bytes. Empty: what they
  // declare does.
  std::string shape = {};
  // What is declared in place of activation_bytes. 0: those.
  int64_t declared_activation_bytes = 0;

  int64_t Declared() const {
    return declared_activation_bytes > 0 ? declared_activation_bytes : activation_bytes;
  }
};

struct Pipeline {
  std::string name;           // as the workload's
  std::vector<Stage> stages;  // 1 to 64
};

struct Run {
  int pipeline = 0;  // of Workload::pipelines
  // Seconds from the start. 0: waiting from the start.
  double arrival_seconds = 0;
};

struct Workload {
  std::string name;  // 1 to 128 letters, digits, '.', '-', '_'
  Device device;
  // Runs under way at once, 1 to kMaxConcurrentRuns.
  int max_concurrent_runs = 1;
  std::vector<Component> components;  // at most 256, names unique
  std::vector<Pipeline> pipelines;    // at most 256, names unique
  std::vector<Run> runs;              // at most 100,000

  // Whether one run goes after the other, all of them waiting from the start.
  bool Sequential() const;
};

// `text` in double quotes as messages show what was given: escaped, and cut after 40 bytes, then
// with its length.
std::string Quoted(absl::string_view text);

// INVALID_ARGUMENT that names the field ("components[2].fixed_bytes"), the value given and what is
// allowed.
absl::Status Validate(const Workload& workload);

}  // namespace vrambroker::sim
