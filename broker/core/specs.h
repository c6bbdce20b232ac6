// What callers tell the broker: plain values, checked at the edge, kept as they came.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/layers.h"
#include "broker/core/units.h"

namespace vrambroker::core {

enum class Lifetime { kForward, kPermanent };

// What the host's copy of the layers is: it decides how fast they come to the device.
enum class HostTier { kUnknown, kPageable, kPinned };

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
  HostTier host_tier = HostTier::kUnknown;
  // Host bytes that pinning its copy takes. 0: it is not to be pinned.
  Bytes pin_host;
  friend bool operator==(const ComponentSpec&, const ComponentSpec&) = default;
};

// Whether both are the same on the device: what else they say is of the host's copy.
inline bool SameOnDevice(ComponentSpec a, const ComponentSpec& b) {
  a.host_tier = b.host_tier;
  a.pin_host = b.pin_host;
  return a == b;
}

// Host memory that a worker's process may use.
struct HostMemory {
  // 0: not known.
  Bytes limit;
  // Whose limit that is: processes that share it say the same. Empty: the machine's.
  std::string domain;
};

// A process for certain: a pid alone may be somebody else's by now.
struct Process {
  // 0: not known.
  int32_t pid = 0;
  uint64_t start_time = 0;
  // 0: of the broker's own pid namespace, or machine. Of another, where the pid is its own word and
  // may be somebody else's here: what tells it apart from all others.
  uint64_t foreign_id = 0;
  friend auto operator<=>(const Process&, const Process&) = default;

  // Whether there is anything to tell it by.
  bool known() const { return pid != 0 || foreign_id != 0; }
  // Whether a driver that lists processes of the broker's namespace means it by its pid.
  bool named_by_pid() const { return pid != 0 && foreign_id == 0; }
};

// A worker and the most that it may hold on its device: what the next broker needs to know of it if
// this one is killed.
struct Owner {
  std::string worker;
  Process process;
  uint64_t attach_number = 0;
  std::string device;  // UUID
  // 0: nothing is left of it, it is to be forgotten.
  Bytes charge;
  // Whether its death can be told, as it can of processes of this machine. Set by who keeps the
  // record.
  bool provable = false;
};

// Where a worker runs, in its own words. Empty: not said.
struct Place {
  std::string pod;
  std::string pod_namespace;
  std::string container;
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
  // Ids that it had, oldest first.
  std::vector<UseId> former_ids = {};
};

struct UseSpec {
  std::string component;
  RunId run;
  int stage = 0;
  int passes = 1;
  // As declared; once it waits, what is charged for it (see Estimates::ActivationNeed).
  Bytes activation;
  // The caller's name for what makes uses alike. Empty: none.
  std::string shape;
  // Nothing but what is declared is charged, whatever was measured.
  bool activation_is_exact = false;
  // The window that is charged where not all layers are resident. 0: the component's own.
  Bytes window;
  int min_resident = 0;
  // 0: all.
  int max_resident = 0;
  int priority = 0;
  // Uses that the same run holds while this one waits.
  std::vector<UseId> held_uses;
  // Members of one sharded stage ask under one name, so many of them, each on a device of its own:
  // they are admitted together and with the same layers. Empty: of none.
  std::string group;
  int group_size = 0;
};

// Of one use. 0: not measured.
struct Measurements {
  Bytes peak_activation;
  Bytes bytes_loaded;
  // Compute waited for copies; the whole use; computed, all passes; its copies took the link.
  double stall_seconds = 0;
  double seconds = 0;
  double compute_seconds = 0;
  double copy_seconds = 0;
  int passes = 0;
  bool warm_up = false;
};

struct StageSpec {
  // "worker/component", or a component name that is unique.
  std::string component;
  int passes = 1;
  Bytes activation;
  // As in UseSpec.
  std::string shape;
  bool activation_is_exact = false;
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
