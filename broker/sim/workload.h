// A workload as plain values: one card, the components of some pipelines, and the runs that arrive.
// What vrambroker.v1.Workload says in JSON, without the wire format.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "broker/core/layers.h"

namespace vrambroker::sim {

struct Device {
  int64_t capacity_bytes = 0;
  // Never granted. 0: none.
  int64_t reserve_bytes = 0;
  // Bytes a second to the device, shared by all. Above 0.
  double link_rate = 0;
};

struct Component {
  std::string name;
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
};

struct Pipeline {
  std::string name;
  std::vector<Stage> stages;  // 1 to 64
};

struct Run {
  int pipeline = 0;  // of Workload::pipelines
  // Seconds from the start. 0: waiting from the start.
  double arrival_seconds = 0;
};

struct Workload {
  std::string name;  // letters, digits, '.', '-', '_'
  Device device;
  // Runs under way at once, 1 or more.
  int max_concurrent_runs = 1;
  std::vector<Component> components;  // at most 256, names unique
  std::vector<Pipeline> pipelines;    // at most 256, names unique
  std::vector<Run> runs;              // at most 100,000

  // Whether one run goes after the other, all of them waiting from the start.
  bool Sequential() const;
};

// INVALID_ARGUMENT that names the field ("components[2].fixed_bytes"), the value given and what is
// allowed.
absl::Status Validate(const Workload& workload);

}  // namespace vrambroker::sim
