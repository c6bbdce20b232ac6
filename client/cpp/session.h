// The logic of a session with the broker as a pure state machine: Step(event, now) -> effects. What
// is attached, which generation counts, which uses go on across a re-attach, what is sent again. No
// thread, clock or channel: those are around it (broker_client.h), and simulations drive it
// directly.
//
// Rules that it keeps, each of them needed for the broker's ledger to stay true:
//   - From composing an Attach on, every answer and directive of earlier sessions is ignored, and
//   uses that the
//     Attach does not list have ended. Components have no target until the new session's first
//     directive.
//   - A grant is a target. The newest generation wins.
//   - A generation is completed when exactly its layers are held and no copy is in flight.
//   - A request id that was given to EndUse is never asked with again.
//   - Every message that carries held carries all of it, under one sequence number of the process.
#pragma once

#include <cstdint>
#include <map>
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

using Event = std::variant<Connect, DirectiveReceived, StreamEnded, UseAsked, BeginAnswered,
                           UseGivenUp, UseOver, EndAnswered, EndGivenUp, HeldChanged, FixedPlaced,
                           PoolChanged, ReportAnswered, NoBrokerLives, Tick>;

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

using Effect =
    std::variant<OpenStream, SendBegin, SendEnd, SendReport, CancelBegin, UseGranted, UseRefused,
                 UseClosed, WorkChanged, PlaceFixed, TrimPool, SessionChanged, ConnectAt, WakeAt>;
using Effects = std::vector<Effect>;

// ---- The machine ----

// What brings a component nearer to its target. Only between uses.
struct Work {
  enum class Kind { kNone, kRelease, kLoad };
  Kind kind = Kind::kNone;
  int layers = 0;   // kRelease: down to
  double pace = 0;  // kLoad: one layer, bytes a second, 0: no limit
};

struct SessionOptions {
  std::string worker;
  // Where it runs, at most 128 bytes each. Empty: not said.
  std::string pod;
  std::string pod_namespace;
  std::string container;
  int32_t pid = 0;
  uint64_t start_time_ticks = 0;
  std::vector<v1::Component> components;
  // Layers of a use where no broker lives, by component; others 0.
  std::map<std::string, int> configured_resident;
  // Pause before an attach is tried again; doubles up to ten times this.
  absl::Duration retry_interval = absl::Milliseconds(100);
};

class Session {
 public:
  explicit Session(SessionOptions options);

  Effects Step(const Event& event, absl::Time now);

  // What is to be done for a component now. kNone while a use runs.
  Work NextWork(const std::string& component) const;

  bool attached() const { return session_id_ != 0; }
  uint64_t session_id() const { return session_id_; }
  uint64_t broker_epoch() const { return epoch_; }
  uint64_t attach_number() const { return attach_number_; }
  // Components that the broker has not admitted, with its words.
  const std::map<std::string, std::string>& refused() const { return refused_; }
  bool fixed_placed(const std::string& component) const;
  // Whether all that was to be reported has been, and was answered.
  bool reported() const { return !report_due_ && !report_in_flight_; }
  // Whether layers of it are about to go to the allocator: a use ends, or a target is below held.
  bool releasing(const std::string& component) const;
  int held(const std::string& component) const;
  int layers(const std::string& component) const;

 private:
  // For tests that try every order of events: they tell states apart.
  friend class SessionInspection;
  struct Target {
    uint64_t generation = 0;
    int layers = 0;
    double pace = 0;
    absl::Time not_before = absl::InfinitePast();
    bool put_off = false;  // not_before has not come
  };
  enum class Phase { kWaiting, kRunning, kEnding };
  struct UseState {
    Phase phase = Phase::kWaiting;
    v1::BeginUseRequest request;           // with its request id
    bool sent = false;                     // in this session
    bool listed = false;                   // as running, in the newest Attach
    uint64_t use_id = 0;                   // of this session, 0: not known
    std::vector<uint64_t> former_use_ids;  // of earlier ones, oldest first
    int granted = 0;
    uint64_t generation = 0;
    int64_t window_bytes = 0;
    int64_t activation_bytes = 0;
    bool brokered = true;
    v1::EndUseRequest end;
    absl::Time send_again = absl::InfiniteFuture();
  };
  struct ComponentState {
    v1::Component spec;
    int layers = 0;
    int held = 0;
    bool copying = false;
    bool fixed_placed = false;
    bool placing = false;
    std::optional<Target> target;
    uint64_t completed = 0;
    // Above 0: it dropped layers by itself, and nothing is loaded until a report later than this
    // snapshot has been answered: the target that it had reached asks for them still.
    uint64_t dropped_after = 0;
  };
  // An EndUse for a BeginUse whose caller stopped waiting.
  struct Withdrawal {
    v1::EndUseRequest request;
    absl::Time send_again = absl::InfiniteFuture();
  };

  void On(const Connect& e);
  void On(const DirectiveReceived& e);
  void On(const StreamEnded& e);
  void On(const UseAsked& e);
  void On(const BeginAnswered& e);
  void On(const UseGivenUp& e);
  void On(const UseOver& e);
  void On(const EndAnswered& e);
  void On(const EndGivenUp& e);
  void On(const HeldChanged& e);
  void On(const FixedPlaced& e);
  void On(const PoolChanged& e);
  void On(const ReportAnswered& e);
  void On(const NoBrokerLives& e);
  void On(const Tick&) {}

  v1::AttachRequest ComposeAttach();
  // Its id is of an earlier session from now on.
  static void NoteFormerId(UseState* use);
  void TakeWelcome(const v1::Welcome& welcome);
  void TakeTarget(const v1::Target& target);
  void SendWaiting(Ticket ticket);
  void SendEnding(Ticket ticket);
  void Withdraw(const UseState& use);
  void Close(Ticket ticket, int keep);
  // The use of a component that runs or ends, or null.
  const UseState* ActiveUse(const std::string& component) const;
  v1::Snapshot TakeSnapshot();
  void DoWhatIsDue();
  void NoteConverged();
  void ReportIfDue();
  void AskToWake();
  std::string NewRequestId(const char* kind);
  template <typename T>
  void Emit(T effect) {
    effects_.push_back(std::move(effect));
  }

  SessionOptions options_;
  std::map<std::string, ComponentState> components_;
  std::map<Ticket, UseState> uses_;
  std::map<std::string, Withdrawal> withdrawals_;  // by their request id
  // Uses that the Attach under way lists as running, and whose end was given up before its welcome.
  std::vector<UseState> untold_;
  std::map<std::string, std::string> refused_;
  uint64_t attach_number_ = 0;
  bool stream_open_ = false;  // from composing Attach to the end of its stream
  bool closed_ = false;       // the broker refuses this worker
  uint64_t session_id_ = 0;   // 0: no welcome yet
  uint64_t epoch_ = 0;
  uint64_t sequence_ = 0;
  uint64_t requests_ = 0;
  int64_t pool_bytes_ = 0;
  int64_t pinned_host_bytes_ = 0;
  absl::Duration backoff_;
  absl::Duration orphan_after_ = absl::InfiniteDuration();
  absl::Time lost_at_ = absl::InfiniteFuture();
  bool orphaned_ = false;
  bool report_due_ = false;
  bool report_in_flight_ = false;
  // Number of the snapshot that is in flight.
  uint64_t reported_sequence_ = 0;
  absl::Time report_again_ = absl::InfiniteFuture();
  absl::Time connect_at_ = absl::InfiniteFuture();
  absl::Time wake_at_ = absl::InfiniteFuture();
  absl::Time now_ = absl::InfinitePast();
  Effects effects_;
};

}  // namespace vrambroker::client
