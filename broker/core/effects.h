// What a step asks the shell to do, in order. The shell does it and reports nothing back: what
// comes of it arrives as an event.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "broker/core/specs.h"
#include "broker/core/units.h"

namespace vrambroker::core {

// In the order of the protocol's Reason.
enum class Reason {
  kUnspecified = 0,
  kFitsWhole,
  kPlanned,
  kGrowWaitEnded,
  kKeptForNextUse,
  kKeptByRecency,
  kNoNextUse,
  kWantedByOthers,
  kOvercommitted,
  kLoadAhead,
  kUnchanged,
  kPermanent,
  kCannotFit,
};

// In the order of the protocol's DecisionKind.
enum class DecisionKind { kUnspecified = 0, kGrant, kRefusal, kRetention, kRevocation, kLoadAhead };

struct Decision {
  DecisionId id;
  absl::Time time;
  DecisionKind kind = DecisionKind::kUnspecified;
  Reason reason = Reason::kUnspecified;
  std::string component;  // "worker/component"
  int held = 0;
  int layers = 0;
  int component_layers = 0;
  std::string text;
  bool planned = false;  // it rests on a plan
  // UUID of the component's device.
  std::string device;
  // Of layers. Grant, retention: of those granted, kept. Revocation: of those on the device that
  // are asked back. Load ahead: of those to be loaded that were not before. Refusal: 0.
  Bytes bytes;
  // Retention: of the layers that are held and do not stay.
  Bytes given_up;
};

struct Target {
  std::string component;
  int layers = 0;
  Generation generation;
  // Loading ahead, bytes a second. 0: the link's own.
  double pace = 0;
  Reason reason = Reason::kUnspecified;
  DecisionId decision;
};

struct RefusedComponent {
  std::string component;
  std::string message;
  Bytes missing;
};

struct Welcome {
  SessionId session;
  Epoch epoch;
  int version = 1;
  absl::Duration release_deadline;
  absl::Duration orphan_after;
  std::vector<std::pair<std::string, UseId>> resumed_uses;
  std::vector<RefusedComponent> refused;
};

// Goes out on the stream. Not yet sent ones of a connection may be merged: the newest target of
// each component, trim if any says so, the newest allowance.
struct SendDirective {
  ConnectionId connection;
  std::optional<Welcome> welcome;
  std::vector<Target> targets;
  bool trim_pool = false;
  // Host bytes that the worker may have pinned. Unset: as said last.
  std::optional<Bytes> pin_allowance = std::nullopt;
};

// Ends the stream with this status. No StreamClosedEvent needs to follow.
struct CloseStream {
  ConnectionId connection;
  absl::Status status;
};

struct BeginAnswer {
  UseId use;
  int resident = 0;
  Generation generation;
  DecisionId decision;
  Reason reason = Reason::kUnspecified;
  // Charged for this use beside its layers.
  Bytes window;
  Bytes activation;
  absl::Duration waited;
};

struct EndAnswer {
  // Component empty: no target (the use was not known here).
  Target target;
  bool trim_pool = false;
  std::optional<absl::Duration> expected_next_use;
};

struct ReportAnswer {
  std::vector<Target> targets;
};

struct UpdateAnswer {
  std::vector<Target> targets;
  std::vector<RefusedComponent> refused;
};

struct DeclareRunAnswer {
  RunId run;
};

// Success without content.
struct EmptyAnswer {};

// The one answer of a call.
struct Answer {
  CallId call;
  std::variant<absl::Status, BeginAnswer, EndAnswer, ReportAnswer, UpdateAnswer, DeclareRunAnswer,
               EmptyAnswer>
      result;
};

// A TickEvent is wanted at this time; replaces the time asked for before. Infinite future: none.
struct WakeAt {
  absl::Time time;
};

// A driver reading would let somebody go on: begin one soon, once.
struct WantReading {
  std::string device_uuid;
};

// What a worker is charged changed. To be on record (specs.h, Owner) before any later effect of the
// step is carried out: the answers that tell it come after.
struct RecordCharge {
  Owner owner;
};

struct Knowledge;  // explain.h

// For the decision log.
struct LogDecision {
  Decision decision;
  // What its plan was made from, which decisions of one plan share. Null: it needed none.
  std::shared_ptr<const Knowledge> knowledge = nullptr;
  // Of knowledge->components.
  int component = 0;
};

// What came of decisions, once each: for the metrics.
struct Count {
  enum class What {
    kUseBegan,     // bytes: of its resident layers that were held; time: waited; saved: see below
    kUseEnded,     // bytes: copied during it; time: compute waited for copies; both as reported
    kReleased,     // a revocation is fulfilled. bytes: released since it; time: since it
    kOverdue,      // a deadline has passed. bytes: still held above the target
    kLoadedAhead,  // a report shows more. bytes: more
    kShownFree,    // a driver shows no more of a worker than it has. time: for which it did
  };
  What what = What::kUseBegan;
  std::string device;
  Bytes bytes;
  absl::Duration time;
  // Of a use that began: the stall that the copies of `bytes` would have been, had nothing stayed.
  absl::Duration saved;
};

// A use has waited for Config::long_wait, or twice as long as when that was said last.
struct LongWait {
  std::string component;  // "worker/component"
  std::string device;
  std::string request_id;
  absl::Duration waited;
  std::string blocked_by;
  // Who holds what of the device, in words and figures.
  std::string holders;
};

using Effect = std::variant<RecordCharge, SendDirective, CloseStream, Answer, WakeAt, WantReading,
                            LogDecision, Count, LongWait>;
using Effects = std::vector<Effect>;

}  // namespace vrambroker::core
