// A copy of what the machine knows, for those who look at it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/ledger.h"
#include "broker/core/specs.h"
#include "broker/core/units.h"

namespace vrambroker::core {

enum class SessionPhase { kAttached = 1, kLost = 2, kGone = 3 };

struct ComponentPicture {
  std::string id;  // "worker/component"
  int layers = 0;
  int held = 0;
  int target = 0;
  Generation generation;
  Generation completed;
  // Of all layers, and of those held.
  Bytes layer_bytes;
  Bytes held_bytes;
  Bytes target_bytes;
  Bytes charge;
  UseId use;
  int granted = 0;
  Lifetime lifetime = Lifetime::kForward;
  bool refused = false;
  // What is planned with: measured, or declared while it is not. 0: not known.
  double pass_seconds = 0;
  // Bytes a second. Above 0.
  double link_rate = 0;
  // Seconds that each byte copied during its uses exposed. 0: none, or not measured.
  double stall_per_byte = 0;
  // Highest of the recent uses. 0: not measured.
  Bytes activation_peak;
  // Uses that taught something.
  int64_t measured_uses = 0;
  // Released and loaded again within minimum_residency, all time.
  Bytes regret;
  SessionId session;
  // For how long layers have been asked back that are still held. Unset: none are.
  std::optional<absl::Duration> release_asked;
  // By the newest target for longer than release_deadline.
  bool release_overdue = false;
};

struct DevicePicture {
  std::string uuid;
  Ledger ledger;
  std::vector<ComponentPicture> components;
};

struct SessionPicture {
  SessionId id;
  std::string worker;
  Place place;
  int32_t pid = 0;
  SessionPhase phase = SessionPhase::kAttached;
  Bytes pool;
  // Charged from an earlier broker's record alone. 0 once it has attached again.
  Bytes recorded;
  Bytes unexplained;
  bool under_released = false;
  int overdue_targets = 0;
  // Held above these.
  Bytes overdue;
  // Host bytes: pinned as it reports, allowed and wished. 0 once it is gone: they are free again.
  Bytes pinned_host;
  Bytes pin_allowance;
  Bytes pin_wish;
};

// Host memory that workers pin of one domain, or of the machine.
struct HostPool {
  // 0: not known.
  Bytes limit;
  // The most that they may pin together. Unset: the limit is not known, and nothing is refused.
  std::optional<Bytes> budget;
  Bytes pinned;
  Bytes allowed;
  Bytes wished;
  // Of each worker the larger of pinned and allowed. More than the budget where somebody has pinned
  // without being allowed to: then nobody is allowed more.
  Bytes charged;
};

// By domain. "" is the machine, which is always there and has the figures of all workers.
using HostPools = std::map<std::string, HostPool>;

struct WaitingPicture {
  std::string component;
  std::string request_id;
  absl::Duration waited;
  Bytes needed;
  int priority = 0;
  std::string blocked_by;
  // It has waited for long_wait or longer.
  bool is_long = false;
};

struct RunPicture {
  RunId id;
  std::string pipeline;
  std::string driver;
  int next_stage = 0;
  int stages = 0;
  bool started = false;
};

struct Picture {
  Epoch epoch;
  absl::Time time;
  std::vector<DevicePicture> devices;
  std::vector<SessionPicture> sessions;
  std::vector<WaitingPicture> waiting;
  std::vector<RunPicture> runs;
  bool draining = false;
  // Nothing grows for at most this long: workers on record have not attached again. 0: no recovery.
  absl::Duration recovery_left;
  HostPools host_memory;
};

}  // namespace vrambroker::core
