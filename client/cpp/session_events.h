// What happens to a session (events), and what it has its shell do (effects).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::client {

// Names a use on this side, from asking to its end. Above 0.
using Ticket = uint64_t;

// ---- Events ----

// A channel is there: open a stream.
struct Connect {};

// A message of the stream that was opened with this attach number.
struct DirectiveReceived {
  uint64_t attach_number = 0;
  v1::Directive directive;
};

// The stream ended.
struct StreamEnded {
  uint64_t attach_number = 0;
  absl::Status status;
};

// The program wants a use. session_id and request_id of `request` are ignored.
struct UseAsked {
  Ticket ticket = 0;
  v1::BeginUseRequest request;
};

// Answers carry the attach number of the session that the call was made in.
struct BeginAnswered {
  uint64_t attach_number = 0;
  std::string request_id;
  absl::Status status;
  v1::BeginUseResponse response;
};

// The caller stopped waiting for its use.
struct UseGivenUp {
  Ticket ticket = 0;
};

// The use is over: window and activation have gone to the allocator, `held` layers are on the
// device.
struct UseOver {
  Ticket ticket = 0;
  int held = 0;
  v1::UseMeasurements measured;
  // The allocator's pool now that it has window and activation. Unset: as last told.
  std::optional<int64_t> pool_bytes;
};

struct EndAnswered {
  uint64_t attach_number = 0;
  std::string request_id;
  absl::Status status;
  v1::EndUseResponse response;
};

// The caller of UseOver waits no longer for a lost broker.
struct EndGivenUp {
  Ticket ticket = 0;
};

// Between uses: what is held now, a copy in flight included.
struct HeldChanged {
  std::string component;
  int held = 0;
  bool copying = false;
  // The allocator's pool, which the layers came from or went to. Unset: as last told.
  std::optional<int64_t> pool_bytes;
};

struct FixedPlaced {
  std::string component;
};

// Its copy on the host is about to be pinned, and counts as pinned from here on. Ignored unless
// NextWork() says kPin; pinning() tells.
struct PinBegins {
  std::string component;
};

// It was pinned, or refused.
struct PinEnded {
  std::string component;
  absl::Status status;
  // All that the worker has pinned now. Unset: so much more as its pin_host_bytes.
  std::optional<int64_t> pinned_host_bytes;
};

struct UpdateAnswered {
  uint64_t attach_number = 0;
  std::string request_id;
  absl::Status status;
  v1::UpdateComponentsResponse response;
};

// The allocator's pool, and pinned host bytes, as they are now.
struct PoolChanged {
  int64_t pool_bytes = 0;
  int64_t pinned_host_bytes = 0;
};

struct ReportAnswered {
  uint64_t attach_number = 0;
  absl::Status status;
  v1::ReportResidencyResponse response;
};

// The device's lock is free: no broker lives. Waiting uses run with what the worker is configured
// with.
struct NoBrokerLives {};

// A time asked for by WakeAt.
struct Tick {};

using Event =
    std::variant<Connect, DirectiveReceived, StreamEnded, UseAsked, BeginAnswered, UseGivenUp,
                 UseOver, EndAnswered, EndGivenUp, HeldChanged, FixedPlaced, PinBegins, PinEnded,
                 UpdateAnswered, PoolChanged, ReportAnswered, NoBrokerLives, Tick>;

// ---- Effects ----

// Open a stream with this. An earlier one is cancelled.
struct OpenStream {
  v1::AttachRequest request;
};

// Send, and hand the answer back as the event of the same name. Calls that fail on the way are sent
// again by Step; the shell does not retry.
struct SendBegin {
  uint64_t attach_number = 0;
  v1::BeginUseRequest request;
};
struct SendEnd {
  uint64_t attach_number = 0;
  v1::EndUseRequest request;
};
struct SendReport {
  uint64_t attach_number = 0;
  v1::ReportResidencyRequest request;
};
struct SendUpdate {
  uint64_t attach_number = 0;
  v1::UpdateComponentsRequest request;
};
// The answer to this request is not waited for any more.
struct CancelBegin {
  std::string request_id;
};

// A use may run.
struct UseGranted {
  Ticket ticket = 0;
  int resident_layers = 0;
  // Set aside for it.
  int64_t activation_bytes = 0;
  uint64_t use_id = 0;
  bool brokered = true;
  v1::Reason reason = v1::REASON_UNSPECIFIED;
};

// A use will not come.
struct UseRefused {
  Ticket ticket = 0;
  absl::Status status;
};

// The use has ended on the broker's side too; `keep` layers may stay, then HeldChanged is due.
struct UseClosed {
  Ticket ticket = 0;
  int keep = 0;
};

// NextWork() of this component may have changed.
struct WorkChanged {
  std::string component;
};

// Fixed bytes (and a permanent component's layers) are admitted: place them now, then FixedPlaced.
struct PlaceFixed {
  std::string component;
};

// Give the pool back, then PoolChanged.
struct TrimPool {};

// WhyPageable() of some component may have changed.
struct PinsChanged {};

// The session is open, or lost; `status` says why. Lost for good, where the broker refuses this
// worker, no ConnectAt follows.
struct SessionChanged {
  bool attached = false;
  absl::Status status;
  bool for_good = false;
};

// A Connect is wanted at this time.
struct ConnectAt {
  absl::Time time;
};

// A Tick is wanted at this time.
struct WakeAt {
  absl::Time time;
};

using Effect = std::variant<OpenStream, SendBegin, SendEnd, SendReport, SendUpdate, CancelBegin,
                            UseGranted, UseRefused, UseClosed, WorkChanged, PlaceFixed, TrimPool,
                            PinsChanged, SessionChanged, ConnectAt, WakeAt>;
using Effects = std::vector<Effect>;

}  // namespace vrambroker::client
