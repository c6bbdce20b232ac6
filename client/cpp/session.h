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
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/session_events.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::client {

// What brings a component nearer to its target, or its copy on the host to what it is to be. Only
// between uses.
struct Work {
  enum class Kind { kNone, kRelease, kPin, kLoad };
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
  // Its components. Of those with pin_host_bytes the copies on the host are pinned once the broker
  // allows it, or once no broker lives; host_tier then says that they are.
  std::vector<v1::Component> components;
  // What its process may use of the host's memory.
  v1::HostMemory host_memory;
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
  // Whether its copy on the host is being pinned; whether that of any is, or is about to be.
  bool pinning(const std::string& component) const;
  bool pins_due() const;
  // Why its copy is pageable though it was to be pinned, in words. Empty: it is pinned, or was not
  // to be.
  std::string WhyPageable(const std::string& component) const;
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
    bool pinning = false;
    absl::Status pin_refused;
    // The broker has yet to hear what became of its copy on the host.
    bool host_changed = false;
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
  void On(const PinBegins& e);
  void On(const PinEnded& e);
  void On(const UpdateAnswered& e);
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
  // Pinned, or being pinned.
  int64_t PinnedBytes() const;
  static bool WishesPin(const ComponentState& c);
  bool MayPin(const ComponentState& c) const;
  void SayPinsDue();
  void TakePinAllowance(int64_t bytes);
  void UpdateIfDue();
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
  // What the broker allows to be pinned. Unset: it has not said it in this session.
  std::optional<int64_t> pin_allowance_;
  // A wish was given up in this session: from then on the allowance only falls.
  bool pins_given_up_ = false;
  bool pin_freely_ = false;  // no broker lives
  // The UpdateComponents that is under way.
  std::optional<v1::UpdateComponentsRequest> update_;
  absl::Time update_again_ = absl::InfiniteFuture();
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
