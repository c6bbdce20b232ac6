// Inside of the machine. Handlers of events are spread over files by subject; each ends by leaving
// the state consistent, and Settle() then decides whatever has become possible.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "broker/core/charge.h"
#include "broker/core/explain.h"
#include "broker/core/future.h"
#include "broker/core/machine.h"
#include "broker/core/planner.h"
#include "broker/core/session_life.h"
#include "broker/core/state.h"

namespace vrambroker::core {

struct Machine::Impl {
  Impl(const Config& config, std::vector<DeviceSpec> devices, std::vector<Owner> recorded);

  // machine.cc
  Effects Step(const Event& event, absl::Time time);
  void Settle();
  void SettleDevice(Device* device);
  bool IsElsewhere(const std::string& uuid) const;
  // The one device whose state an event can change; empty: none by itself. Unset: any.
  std::optional<std::string> DeviceConcerned(const Event& event) const;
  void FlushDirectives();
  void TrackFloors();
  void AskToWake();
  void Fail(CallId call, absl::Status status);
  // `bytes`: as Decision::bytes.
  DecisionId Log(DecisionKind kind, Reason reason, const Component& c, int layers, Bytes bytes,
                 std::string text);
  void CountUp(Count::What what, const Component& c, Bytes bytes,
               absl::Duration time = absl::ZeroDuration(),
               absl::Duration saved = absl::ZeroDuration());
  std::string ComponentName(const Component& c) const;
  Device& DeviceOf(const Session& session) { return state.devices.at(session.device); }
  Session& SessionOf(const Component& c) { return state.sessions.at(c.session); }
  // Something with bytes has changed: whoever waits for a reading gets one at once.
  void Stir(Device* device) { device->next_wanted_reading = now; }

  // sessions.cc
  void On(const AttachEvent& e);
  void On(const StreamClosedEvent& e);
  void On(const ProcessDiedEvent& e);
  absl::Status CheckAttach(const AttachEvent& e) const;
  Session* SameProcess(const AttachEvent& e);
  // `fresh`: nothing was known of the process.
  void SayWelcome(const AttachEvent& e, bool fresh, Session* session);
  // session_life.cc: what the table says. `heir`: the newer session of kAttachedAgain, which is not
  // among the others yet.
  void Happens(SessionEvent event, SessionId id, const std::string& why, Session* heir = nullptr);
  void LetGo(Session* session, const std::string& why);
  void HandOver(Session* old, Session* heir);
  void Drop(Session* session);
  absl::Status CheckSnapshot(const Session& session, const Snapshot& snapshot) const;
  // The target of a component whose worker dropped layers by itself follows what is held.
  void FollowDrop(Component* c, Session* session);
  void AdmitByFact(Component* c);
  void CountReported(const Residency& r, const Component& c);
  void Book(const Snapshot& snapshot, Session* session);

  // resumed_uses.cc
  void ResumeUses(const AttachEvent& e, Session* session, Welcome* welcome);
  void NameAgain(const ResumedUseSpec& said, RunningUse* use);
  const Component* FindUse(UseId id) const;

  // recovery.cc
  void Adopt(std::vector<Owner> recorded);
  void NoteRecovery();
  std::string RecoveryText() const;
  void RecordCharges();
  void RecordChargeOf(Session* session);
  void ForgetCharge(const Session& session);

  // components.cc
  void On(const UpdateComponentsEvent& e);
  void AddComponent(const ComponentSpec& spec, Session* session);
  void RemoveComponent(ComponentId id, Session* session);
  // Admits what can be admitted of fixed bytes and permanent sets. Returns what is missing, 0 if
  // admitted.
  Bytes AdmitFixed(Component* c);
  std::string MissingText(const Component& c, Bytes missing) const;

  // requests.cc
  // The open session, or null after the call was refused.
  Session* OpenSession(const CallHeader& header);
  // Whether the request is a repeat and has been dealt with.
  bool DealtWith(const CallHeader& header, Session* session);
  void Remember(const CallHeader& header, RequestRecord record, Session* session);
  void Finished(const std::string& request_id, Session* session);

  // uses.cc
  void On(const BeginUseEvent& e);
  void On(const CallCancelledEvent& e);
  void On(const EndUseEvent& e);
  void On(const ReportEvent& e);
  absl::Status CheckBegin(const BeginUseEvent& e, const Session& session) const;
  Component* FindComponent(const Session& session, const std::string& name);
  const Component* FindComponent(const Session& session, const std::string& name) const;
  void NoteHabit(const WaitingUse& w, const Session& session);
  void Withdraw(uint64_t order, absl::Status status);
  void LeaveMark(const std::string& begin_request_id, Session* session);
  Target TargetOf(const Component& c) const;

  // learning.cc
  // What the end of a use shows of its component.
  void Learn(const Measurements& measured, Component* c);
  // What is to be charged for the activation of a use that waits.
  void ChargeWhatIsKnown(WaitingUse* w);
  // `layers` of it are on the device from now on, or are allowed to be by a use that begins.
  void NoteHeld(int layers, Component* c);

  // admission.cc
  void AdmitWaiting(Device* device);
  std::vector<uint64_t> QueueOrder(const Device& device) const;
  // Bytes for a use: free now, given back by others already (pools included), what the plan would
  // take from others, and all that they retain.
  struct Obtainable {
    int64_t free = 0;
    int64_t coming = 0;
    int64_t by_plan = 0;
    int64_t at_most = 0;
  };
  Obtainable WhatCanBeHad(const Component& c, const Problem& problem, const Plan& plan,
                          const Device& device) const;
  struct Planned {
    std::string device;
    Problem problem;
    Plan plan;
  };
  // A size that a use can begin with now.
  struct Offer {
    int layers = 0;
    Reason reason = Reason::kUnspecified;
    // What it rests on; unset: on no plan.
    std::optional<Planned> planned;
  };
  std::optional<Offer> Consider(WaitingUse* w, Device* device, int64_t limit, int cap);
  bool TryAdmit(WaitingUse* w, Device* device, int64_t limit);
  void Accept(WaitingUse* w, const Offer& offer);
  // `layers`: that it could have now; `limit`, `bytes`: for all of it, and beyond its charge.
  bool WaitsForAnEnd(WaitingUse* w, const Component& c, int layers, int64_t limit,
                     int64_t bytes) const;
  bool BetterAlone(const WaitingUse& w, const Component& c, int layers, int alone) const;
  bool GrowWaitIsOver(WaitingUse* w, const Component& c, double sigma, int layers,
                      int at_once) const;
  bool WaitsForHeldUses(const WaitingUse& oldest, const Device& device) const;
  int64_t LimitBeside(const WaitingUse& oldest, const Device& device) const;
  uint64_t HolderOrder(const WaitingUse& w) const;
  void Grant(WaitingUse* w, int layers, Reason reason);
  Bytes ComingOf(const Component& c) const;
  Bytes PoolComing(const Session& session) const;
  // `except`: not of this component.
  int64_t AlreadyComing(const Device& device, ComponentId except) const;

  // feasibility.cc
  void RefuseInfeasible(const Device& device);
  Bytes FewestBytes(const Component& c, const UseSpec& use) const;
  Bytes Ceiling(const Device& device) const;
  std::string Holders(const Device& device) const;

  // groups.cc
  absl::Status CheckGroup(const UseSpec& use, const Component& c) const;
  // The uses that wait under the name of a group, in order of arrival.
  std::vector<uint64_t> WaitingOf(const std::string& group) const;
  bool IsComplete(const WaitingUse& w) const;
  // Its own place in the queue, or the oldest one's of its group.
  uint64_t PlaceOf(const WaitingUse& w) const;
  void FailGroupOf(const WaitingUse& lost, const absl::Status& status);
  // What it may be charged so that the first of its device's queue still fits beside it.
  int64_t LimitOf(const WaitingUse& w) const;
  bool TryAdmitGroup(const WaitingUse& w);
  void NotePeers(const std::vector<uint64_t>& members);
  // The fewest layers that a peer of it may keep; its own where none has a say.
  int LevelOf(const Component& c, int own) const;
  bool HasPeers(const Component& c) const;
  // It is used alone from now on.
  void LeavePeers(Component* c);
  void LevelPeers();

  // watchdog.cc
  void NameLongWaits(const Device& device);
  std::string WhoHolds(const Device& device) const;

  // deadlock.cc
  // Names the uses that would wait for each other, or is empty.
  std::string FindDeadlock(const WaitingUse& w) const;
  // Withdraws it where waiting would never end. Whether it did.
  bool RefuseDeadlock(uint64_t order);
  // Of all that wait, the youngest first: a use that they hold has become known.
  void RefuseDeadlocks();
  // Held uses by the ids that they have now.
  void UseNewestIds(UseSpec* spec) const;

  // retention.cc
  Target DecideAtEnd(Component* c, std::optional<absl::Duration>* next_use);
  void Revoke(Component* c, int layers, Reason reason, bool trim, const std::string& why);
  void MakeRoom(int64_t bytes, const Problem& problem, const std::vector<int>& keep,
                bool beyond_plan, ComponentId except, Reason reason, const std::string& why,
                Device* device);
  void TrimPools(int64_t* bytes, Device* device);
  void RelieveOvercommitment(Device* device);
  void ReleaseWithoutFuture(Device* device);
  void AdmitRefused(Device* device);
  void Remind(Device* device);

  // load_ahead.cc
  const Planned& PlanNow(const Device& device);
  bool MayLoadAhead(const Device& device) const;
  bool IsSettling(const Component& c, bool next_is_certain) const;
  void MakeRoomAhead(int64_t missing, int64_t expected, const Planned& p, Device* device);
  std::vector<std::pair<double, ComponentId>> LoadsOf(const Planned& p) const;
  void LoadAhead(Device* device);
  double PaceOf(const Planned& p, const Device& device, int64_t bytes, int64_t wanted) const;
  // `next`: seconds until its next use, below 0 where none is known.
  void SetAhead(Component* c, int ahead, double next, double pace);
  void NoteStall(const Component& c, const Measurements& measured);

  // basis.cc
  // While it lives, what is decided rests on this plan. All outlive it.
  struct Basis {
    Basis(Impl* m, const Device& d, const Problem& known, const Plan& made)
        : machine(m), device(d.spec.uuid), problem(known), plan(made), outer(m->basis) {
      machine->basis = this;
    }
    ~Basis() { machine->basis = outer; }
    Basis(const Basis&) = delete;
    Basis& operator=(const Basis&) = delete;

    Impl* const machine;
    const std::string& device;
    const Problem& problem;
    const Plan& plan;
    Basis* const outer;
    std::shared_ptr<const Knowledge> knowledge;  // null: no decision yet
  };
  bool NoteBasis(DecisionId decision, ComponentId component);
  absl::StatusOr<Explanation> Explain(DecisionId id) const;

  // readings.cc
  void On(const ReadingBeganEvent& e);
  void On(const ReadingEvent& e);
  bool NamesOneOfOurs(const ReadingEvent& e) const;
  void TakeTotal(Bytes total, Device* device);
  bool StayedQuiet(const Session& session) const;
  void DropShownGone(const Device& device);
  void DropProvenGone(Device* device);
  // Whether the dead can be told from the living only once nothing is in motion, and that has been
  // waited for long enough.
  bool MustComeToRest(const Device& device) const;
  void LearnFrom(const Device& device, Session* session);
  // Bytes shown beyond charge that a reading may yet take back.
  Bytes ComingResidual(const Device& device) const;
  bool Quiet(const Session& session) const;
  // Whether a reading would let somebody go on.
  bool ReadingWanted(const Device& device) const;
  void WantReadings(Device* device);

  // runs.cc
  void On(const DeclarePipelineEvent& e);
  void On(const DeclareRunEvent& e);
  void On(const FinishRunEvent& e);
  void EndRuns();
  absl::Time ExpectsUntil(const Device& device) const;
  void NoteExpectations();
  void MarkDeclared();
  void MarkPipelines();
  void On(const TickEvent& e);
  void On(const DrainEvent& e);
  void NoteStage(const UseSpec& use);
  int RunsUnderWay() const;
  Problem BuildProblem(const Device& device, const WaitingUse* deciding) const;

  // host_memory.cc
  Bytes PinWish(const Session& session) const;
  Bytes PinAllowance(const Session& session) const;
  // What counts of it against budgets.
  Bytes PinCharge(const Session& session) const;
  HostPools HostMemoryNow() const;
  void AllowPins();
  void AllowMorePins();
  void CheckPins() const;

  // picture.cc, invariants.cc
  Picture GetPicture(absl::Time at) const;
  void CheckInvariants() const;

  Config config;
  State state;
  absl::Time now = absl::InfinitePast();
  absl::Time wake_at = absl::InfiniteFuture();
  Effects effects;
  // Go before all other effects of this step.
  std::vector<RecordCharge> records;
  // Directives of this step, one a connection, newest target of each component.
  std::map<ConnectionId, SendDirective> directives;
  // What this step is about, as DeviceConcerned.
  std::optional<std::string> concerned;
  // Runs or components changed: what has no next use may be released.
  bool future_changed = false;
  // Pipelines, their drivers or components changed.
  bool pipelines_changed = false;
  // What is pinned, may be or is wished to be has changed since allowances were decided.
  bool pins_changed = false;
  // The newest plan of this step, as long as nothing that it was made from has changed.
  std::optional<Planned> planned;
  // What is decided now rests on; null: on no plan.
  Basis* basis = nullptr;
  PlanMemory memory;

  uint64_t last_session = 0;
  uint64_t last_component = 0;
  uint64_t last_use = 0;
  uint64_t last_run = 0;
  uint64_t last_decision = 0;
  uint64_t last_order = 0;
  uint64_t last_used = 0;
};

}  // namespace vrambroker::core
