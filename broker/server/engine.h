// The core between the wire and the outside: events in through one mailbox, effects carried out in
// order.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/events.h"
#include "broker/core/machine.h"
#include "broker/observe/charge_record.h"
#include "broker/observe/process_watch.h"
#include "broker/server/attach_stream.h"
#include "broker/server/calls.h"
#include "broker/server/clock.h"
#include "broker/server/log.h"
#include "broker/server/mailbox.h"
#include "broker/server/sessions.h"

namespace vrambroker::server {

// What the engine asks of its surroundings, in the order of decisions. None of them blocks.
struct EngineHooks {
  std::function<void(absl::Time)> wake_at;
  std::function<void(const std::string& device_uuid)> want_reading;
  // The core has taken this event.
  std::function<void(const core::ReadingBeganEvent&)> reading_began;
  // The picture may have changed.
  std::function<void()> changed;
  // The broker drains from now on.
  std::function<void()> draining;
  // Optional: called with each event and the time that its Step took.
  std::function<void(const core::Event&, absl::Duration)> on_step;
  // Optional: called with each effect before it is carried out.
  std::function<void(const core::Effect&)> on_effect;
};

// Thread-safe. Answers every call that it is given exactly once, at the latest in Stop().
class Engine : public CallListener, public StreamListener {
 public:
  // Calls and attaches that may wait for a decision; past it RESOURCE_EXHAUSTED.
  static constexpr size_t kMailboxBound = 4096;

  // Looks at the machine, in the order of decisions.
  using Inspection = std::function<void(const core::Machine&, absl::Time now)>;

  // Records of charges by device UUID.
  using Records = std::map<std::string, observe::ChargeRecord*>;

  // All outlive the engine. `log`, `watch` and `records` are used in the order of decisions. What
  // the records say of an earlier broker's workers is charged until they attach again or have died.
  Engine(const core::Config& config, std::vector<core::DeviceSpec> devices, const Clock& clock,
         Log* log, observe::ProcessWatch* watch, Records records, EngineHooks hooks);
  ~Engine() override { Stop(); }

  // Takes over the call, and its answer with it. `event` is filled but for the call's number.
  template <typename Event>
  void Submit(UnaryCall* call, Event event) {
    if (!Open(call)) return;
    event.header.call = call->id();
    call->set_request_id(event.header.request_id);
    PostCall(call->id(), core::Event(std::move(event)));
  }
  void SubmitDrain(UnaryCall* call);
  // Runs `look` with the call, which it answers; it is not run where the call is answered otherwise
  // before.
  void SubmitInspection(UnaryCall* call,
                        std::function<void(UnaryCall*, const core::Machine&, absl::Time)> look);
  // Opens a session; the stream's fields are set but for its id.
  void SubmitAttach(const std::shared_ptr<AttachStream>& stream, core::AttachEvent event);
  // Of the outside: readings, ticks. Bounded by what makes them.
  void Post(core::Event event) { mailbox_.Post(std::move(event)); }
  void Inspect(Inspection look) { mailbox_.Post(std::move(look)); }
  // Calls and other events that wait for a decision.
  size_t waiting() const { return mailbox_.waiting(); }

  // Watches the processes that are on record from an earlier broker; those that are gone already
  // are told to the core. Once, when all that the hooks lead to is there.
  void WatchRecorded();
  // Answers all waiting calls and ends all streams with UNAVAILABLE; whatever comes later gets the
  // same.
  void Stop();

  SessionTable& sessions() { return sessions_; }

  void CallCancelled(core::CallId call) override;
  void StreamEnded(core::ConnectionId connection) override;

 private:
  using Item = std::variant<core::Event, Inspection>;

  bool Open(UnaryCall* call);
  void PostCall(core::CallId call, Item item);
  // In the order of decisions, one at a time:
  void Handle(Item item);
  void Step(const core::Event& event, absl::Time now);
  void LogStep(const core::Event& event, absl::Time now, absl::Duration took);
  // False: the event is about something that is over.
  bool Before(const core::Event& event, absl::Time now);
  void After(const core::Event& event);
  void CarryOut(core::Effect& effect, absl::Time now);
  void CarryOut(const core::RecordCharge& record, absl::Time now);
  void CarryOut(const core::SendDirective& directive, absl::Time now);
  void CarryOut(const core::CloseStream& close, absl::Time now);
  void CarryOut(const core::Answer& answer, absl::Time now);
  void CarryOut(const core::WakeAt& wake, absl::Time) { hooks_.wake_at(wake.time); }
  void CarryOut(const core::WantReading& want, absl::Time) {
    hooks_.want_reading(want.device_uuid);
  }
  void CarryOut(const core::Count&, absl::Time) {}  // on_effect has it
  void CarryOut(const core::LongWait& wait, absl::Time now);
  void CarryOut(const core::LogDecision& decision, absl::Time) { log_->Write(decision.decision); }
  void Welcome(AttachStream* stream, const core::Welcome& welcome, absl::Time now);
  void WatchProcess(const AttachStream& stream, absl::Time now);
  bool Watch(const core::Process& process, observe::UniqueFd pidfd, const std::string& worker,
             absl::Time now);
  void WatchOwners(absl::Time now);

  const Clock& clock_;
  Log* const log_;
  observe::ProcessWatch* const watch_;
  const Records records_;
  const EngineHooks hooks_;
  CallTable calls_;
  StreamTable streams_;
  SessionTable sessions_;
  core::Machine machine_;
  // Processes whose death will be told.
  std::set<core::Process> watched_;
  // Devices whose last reading failed.
  std::set<std::string> unread_;
  Mailbox<Item> mailbox_;
};

}  // namespace vrambroker::server
