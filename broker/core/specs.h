// What callers tell the broker: plain values, checked at the edge, kept as they came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/layers.h"
#include "broker/core/units.h"

namespace vrambroker::core {

enum class Lifetime { kForward, kPermanent };

struct ComponentSpec {
  std::string name;
  LayerTable layers;
  Bytes fixed;
  Bytes window;
  Lifetime lifetime = Lifetime::kForward;
  bool no_host_copy = false;
  // Seconds of compute in one pass. 0: not known.
  double pass_seconds = 0;
  // Bytes a second to the device. 0: the device's own.
  double link_rate = 0;
  friend bool operator==(const ComponentSpec&, const ComponentSpec&) = default;
};

// A process for certain: a pid alone may be somebody else's by now. pid 0: not known.
struct Process {
  int32_t pid = 0;
  uint64_t start_time = 0;
  friend bool operator==(const Process&, const Process&) = default;
};

struct Residency {
  std::string component;
  int held = 0;
  Generation completed;
  bool fixed_placed = false;
};

// All that a worker holds, under one number of the process. Sequence 0: no snapshot.
struct Snapshot {
  uint64_t sequence = 0;
  std::vector<Residency> components;
  Bytes pool;
  Bytes pinned_host;
};

// A use that the worker says is running, at a re-attach.
struct ResumedUseSpec {
  std::string request_id;
  std::string component;
  int granted = 0;
  Bytes window;
  Bytes activation;
  Generation generation;
};

struct UseSpec {
  std::string component;
  RunId run;
  int stage = 0;
  int passes = 1;
  Bytes activation;
  // The window that is charged where not all layers are resident. 0: the component's own.
  Bytes window;
  int min_resident = 0;
  // 0: all.
  int max_resident = 0;
  int priority = 0;
  // Uses that the same run holds while this one waits.
  std::vector<UseId> held_uses;
};

struct Measurements {
  Bytes peak_activation;
  Bytes bytes_loaded;
  double stall_seconds = 0;
  double seconds = 0;
  double compute_seconds = 0;
  int passes = 0;
  bool warm_up = false;
};

struct StageSpec {
  // "worker/component", or a component name that is unique.
  std::string component;
  int passes = 1;
  Bytes activation;
  friend bool operator==(const StageSpec&, const StageSpec&) = default;
};

struct DeviceSpec {
  std::string uuid;
  Bytes capacity;
  // Never granted.
  Bytes reserve;
  // Bytes a second to the device, where no component says better. Above 0.
  double link_rate = 12e9;
  // Whether driver readings come for it. Without, external bytes are not known.
  bool has_probe = false;
};

}  // namespace vrambroker::core
