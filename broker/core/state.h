// Everything the machine remembers, as plain data. What follows from it is derived: charges
// (charge.h), the ledger (ledger.h), the future (future.h), the plan (planner.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/core/estimates.h"
#include "broker/core/events.h"
#include "broker/core/habits.h"
#include "broker/core/picture.h"
#include "broker/core/run_book.h"
#include "broker/core/specs.h"
#include "broker/core/units.h"

namespace vrambroker::core {

// A target that was sent and still counts: no later generation is completed.
struct OpenTarget {
  Generation generation;
  int layers = 0;
};

struct RunningUse {
  UseId id;
  // Ids that it had in earlier sessions of its worker, oldest first: others may know it by these.
  std::vector<UseId> formerly;
  std::string request_id;
  UseSpec spec;
  int granted = 0;
  int held_at_begin = 0;
  Bytes window;
  Bytes activation;
  // What it asked for. Unset: not known (it began under another broker), and its activation teaches
  // nothing.
  std::optional<ActivationAsk> ask;
  Generation generation;
  absl::Time began;
  // Place in the queue that it had: lower is older.
  uint64_t order = 0;
};

struct Component {
  ComponentId id;
  SessionId session;
  ComponentSpec spec;
  int held = 0;
  Generation completed;
  // Newest generation sent.
  Generation generation;
  // Targets that count, oldest first: those since the last completed generation, that one included,
  // less those that a later one covers. Never empty once admitted.
  std::vector<OpenTarget> open;
  // Newest generation that was sent below what was held then, or might have been loaded.
  Generation fall;
  std::optional<RunningUse> use;
  // Its worker was allowed to pin its copy (host_memory.cc).
  bool may_pin = false;
  // Fixed bytes (and all layers of a permanent set) are admitted and charged.
  bool admitted = false;
  bool fixed_placed = false;  // as the newest snapshot says
  // A part of some declared run: without a next use it is released rather than kept by recency.
  bool ever_declared = false;
  // A driver that is here, or may come back, has declared a pipeline with it: more runs may come.
  bool in_pipeline = false;
  // The others of its newest shard group: what it keeps is worth as much as the least that one of
  // them keeps.
  std::vector<ComponentId> peers;
  // Different runs that its uses were for, and the newest of these.
  int runs_seen = 0;
  RunId newest_run;
  // Rises with each use that ends, over all components.
  uint64_t last_used = 0;
  Reason reason = Reason::kUnspecified;
  DecisionId decision;
  // When the newest target was sent, and when it was last said again.
  absl::Time target_sent = absl::InfinitePast();
  absl::Time last_reminder = absl::InfinitePast();
  double pace = 0;
  // When layers were asked back that are still held, and what it held then. Unset: none are.
  std::optional<absl::Time> revoked_at;
  int revoked_from = 0;
  // What its uses have shown. Lives as long as the spec does.
  Estimates estimates;
  Regret regret;
  // Bytes that were released and loaded again within minimum_residency, all time.
  Bytes regret_bytes;

  double pass_seconds() const { return estimates.PassSeconds(spec.pass_seconds); }
  int count() const { return spec.layers.count(); }
  int target() const { return open.empty() ? held : open.back().layers; }
  bool permanent() const { return spec.lifetime == Lifetime::kPermanent; }
};

// A BeginUse that is not decided yet.
struct WaitingUse {
  uint64_t order = 0;
  CallId call;
  SessionId session;
  std::string request_id;
  ComponentId component;
  UseSpec spec;
  // What it asked for: spec.activation is what is to be charged.
  ActivationAsk ask;
  absl::Time arrived;
  // Until when it waits for more than its fewest layers. Unset: it has not come to that.
  std::optional<absl::Time> grow_until;
  // The same where it waits for the end of a use that runs.
  std::optional<absl::Time> end_until;
  // When it is named as one that waits long.
  absl::Time named_at;
  std::string blocked_by;
};

// What became of a request id.
struct RequestRecord {
  enum class State { kWaiting, kAnswered, kEnded };
  State state = State::kWaiting;
  // 0: not known (resumed, or a mark for a call that has not come).
  uint64_t fingerprint = 0;
  std::variant<std::monostate, BeginAnswer, EndAnswer, UpdateAnswer, DeclareRunAnswer, EmptyAnswer>
      answer;
  // The use that it began goes on.
  bool live = false;
  // Left by an EndUse for a BeginUse that has not come.
  bool mark = false;
};

struct Session {
  SessionId id;
  std::string worker;
  Place place;
  Process process;
  uint64_t attach_number = 0;
  SessionPhase phase = SessionPhase::kAttached;
  ConnectionId connection;
  std::string device;  // empty: a driver
  std::vector<ComponentId> components;
  uint64_t sequence = 0;  // of the newest snapshot booked
  Bytes pool;
  HostMemory host;
  Bytes pinned_host;
  // The allowance to pin that it was told last (unset: none since it attached), and the budgets
  // that there were when it last rose: of its domain and of the machine.
  std::optional<Bytes> pin_told;
  Bytes pin_budget;
  Bytes machine_pin_budget;
  std::map<std::string, RequestRecord> requests;
  std::deque<std::string> finished;  // ids that may be forgotten, oldest first
  int marks = 0;
  std::map<std::string, std::shared_ptr<const std::vector<StageSpec>>> pipelines;
  absl::Time lost_at;
  absl::Time gone_at;
  // When it was last told to trim, with no empty pool and no end of a use since.
  absl::Time trim_sent = absl::InfinitePast();
  // It was told to, and the deadline passed: what it keeps then is not counted on.
  bool trimmed_in_vain = false;

  // On record from an earlier broker, and not said anything of since: charged until it attaches
  // again or is gone.
  Bytes recorded;
  // Whether its death can be told (Owner).
  bool provable = true;
  // The charge that is on record now, and with which attach number.
  Bytes on_record;
  uint64_t attach_on_record = 0;

  // Driver readings. `floor`: least charge since the newest complete reading began; `next_floor`:
  // since the one under way began. A reading shows a worker's excess only above its floor.
  Bytes floor;
  Bytes next_floor;
  // Where readings give totals only: least that it said it held since the newest one that counts
  // began. 0: attached since, or it was in motion then.
  Bytes total_floor;
  // The charge has risen since the reading under way began: what it shows may be more than it began
  // with, so it says nothing of this worker.
  bool raised_in_reading = false;
  Bytes charge_when_reading_began;
  bool learned_known = false;
  // Its charge, and when that last fell: for settling_time after, a reading may still show what has
  // gone.
  Bytes last_charge;
  absl::Time charge_fell = absl::InfinitePast();
  // Bytes beyond held that a quiet reading showed: context, libraries.
  Bytes learned;
  // Since when a reading shows more than charge, learned and tolerance allow. Infinite: it does
  // not.
  absl::Time residual_since = absl::InfiniteFuture();
  // When the reading under way began: death was proven; nothing was in motion.
  bool gone_before_reading = false;
  bool quiet_when_reading_began = false;
};

struct Device {
  DeviceSpec spec;
  // Newest reading that was complete.
  bool reading_known = false;
  Bytes reading_total;
  bool by_process_known = false;
  std::map<int32_t, Bytes> by_process;
  Bytes unlisted;
  // A list has named one of ours: its pids are those of our namespace.
  bool pids_match = false;
  // Where the driver does not list processes: bytes on the device, from the newest reading that
  // counts.
  bool quiet_total_known = false;
  Bytes quiet_total;
  uint64_t reading_begun = 0;  // 0: none under way
  absl::Time next_wanted_reading = absl::InfinitePast();
  absl::Time readings_fail_since = absl::InfiniteFuture();
  // When a use ended or a run was declared last, and when loading ahead is looked at again.
  absl::Time stirred = absl::InfinitePast();
  absl::Time load_at = absl::InfiniteFuture();
  // Share of the link's leftover that is used to load ahead: above 0, at most 1.
  double ahead_pace = 1;
  // What was used in which order, and whether it is still expected to go on so.
  Habits habits;
  bool expecting = false;
  // Bytes a second that uses of its components have shown, by the tier that they come from.
  std::map<HostTier, Samples> link_rates;
};

// Bytes a second at which a component comes to its device. Its own uses say it; before there are
// enough of them, those of other components of its device and host tier, else what it declares,
// else what the device is said to have.
double LinkRate(const Component& c, const Device& device);

// Seconds lost to each byte of it that is streamed in a pass (planner.h).
double Sigma(const Component& c, const Device& device);
// What a use takes, copies that compute does not hide included: `there` layers are on the device
// when it begins, `resident` in its later passes. 0: its compute was never measured.
double UseSeconds(const Component& c, int passes, int there, int resident, const Device& device);
// Until its running use is over, at least 0.
double SecondsLeft(const Component& c, const Device& device, absl::Time now);

inline ActivationAsk AskOf(const StageSpec& stage) {
  return {stage.shape, stage.activation, stage.activation_is_exact};
}

struct State {
  std::map<std::string, Device> devices;
  std::map<SessionId, Session> sessions;
  std::map<ComponentId, Component> components;
  std::map<ConnectionId, SessionId> connections;
  std::map<CallId, uint64_t> waiting_calls;  // to order
  std::map<uint64_t, WaitingUse> waiting;    // by order
  RunBook runs;
  // The most runs that were under way at once.
  int lanes = 1;
  std::deque<Decision> decisions;
  bool draining = false;
  // What is on record has not attached again yet. Infinite future: until the first event says what
  // time it is.
  bool recovering = false;
  absl::Time recovery_ends = absl::InfiniteFuture();
  // From when on workers are allowed to pin more. Infinite future: as above.
  absl::Time pins_open_at = absl::InfiniteFuture();
};

}  // namespace vrambroker::core
