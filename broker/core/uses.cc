// The calls of a worker about its uses.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

const Component* Machine::Impl::FindComponent(const Session& session,
                                              const std::string& name) const {
  for (ComponentId id : session.components) {
    const Component& c = state.components.at(id);
    if (c.spec.name == name) return &c;
  }
  return nullptr;
}

Component* Machine::Impl::FindComponent(const Session& session, const std::string& name) {
  return const_cast<Component*>(std::as_const(*this).FindComponent(session, name));
}

Target Machine::Impl::TargetOf(const Component& c) const {
  return Target{c.spec.name, c.target(), c.generation, c.pace, c.reason, c.decision};
}

void Machine::Impl::On(const BeginUseEvent& e) {
  Session* session = OpenSession(e.header);
  if (session == nullptr || DealtWith(e.header, session)) return;
  if (absl::Status status = CheckBegin(e, *session); !status.ok()) {
    if (absl::IsFailedPrecondition(status)) {
      // Its caller goes on without it: a copy that comes later must not begin it.
      RequestRecord refused;
      refused.state = RequestRecord::State::kEnded;
      Remember(e.header, std::move(refused), session);
      Finished(e.header.request_id, session);
    }
    return Fail(e.header.call, std::move(status));
  }
  NoteStage(e.use);
  WaitingUse w;
  w.order = ++last_order;
  w.call = e.header.call;
  w.session = session->id;
  w.request_id = e.header.request_id;
  w.component = FindComponent(*session, e.use.component)->id;
  w.spec = e.use;
  w.ask = {e.use.shape, e.use.activation, e.use.activation_is_exact};
  ChargeWhatIsKnown(&w);
  UseNewestIds(&w.spec);
  w.arrived = now;
  w.named_at = now + config.long_wait;
  NoteHabit(w, *session);
  w.blocked_by = "not looked at yet";
  if (w.spec.run && state.runs.Find(w.spec.run) != nullptr) {
    state.components.at(w.component).ever_declared = true;
  }
  Remember(e.header, RequestRecord{}, session);
  state.waiting_calls[w.call] = w.order;
  const uint64_t order = w.order;
  state.waiting.emplace(order, std::move(w));
  RefuseDeadlock(order);
}

void Machine::Impl::NoteHabit(const WaitingUse& w, const Session& session) {
  bool alone = true;
  for (const auto& [id, c] : state.components) {
    alone &= !c.use.has_value() || SessionOf(c).device != session.device;
  }
  Component& c = state.components.at(w.component);
  if (!w.spec.run || w.spec.run != c.newest_run) ++c.runs_seen;
  c.newest_run = w.spec.run;
  DeviceOf(session).habits.Note(ComponentName(c), w.spec, alone, now);
}

absl::Status Machine::Impl::CheckBegin(const BeginUseEvent& e, const Session& session) const {
  const UseSpec& use = e.use;
  const Component* c = FindComponent(session, use.component);
  if (c == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("component: \"", use.component, "\" is not attached by this session"));
  }
  if (state.draining) {
    return absl::UnavailableError("the broker is draining and admits no use; try again later");
  }
  if (!c->admitted) {
    return absl::FailedPreconditionError(
        absl::StrCat("component: \"", use.component,
                     "\" was refused at attach: its fixed bytes have no room yet"));
  }
  const int most = use.max_resident == 0 ? c->count() : use.max_resident;
  if (use.min_resident < 0 || most > c->count() || use.min_resident > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_resident_layers, max_resident_layers: ", use.min_resident, " to ", most,
                     " is not within 0 and the ", c->count(), " layers of ", use.component));
  }
  if (absl::Status status = CheckGroup(use, *c); !status.ok()) return status;
  if (static_cast<int>(state.waiting.size()) >= config.max_waiting) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue holds ", config.max_waiting,
                                                     " waiting uses, its most; try again later"));
  }
  return absl::OkStatus();
}

void Machine::Impl::On(const CallCancelledEvent& e) {
  const auto it = state.waiting_calls.find(e.call);
  if (it == state.waiting_calls.end()) return;  // decided, or answered: it stays so
  Withdraw(it->second, absl::CancelledError("the caller stopped waiting"));
}

// Takes a waiting use out of the queue: its id is spent. Those that wait with it as one group go
// with it.
void Machine::Impl::Withdraw(uint64_t order, absl::Status status) {
  const auto node = state.waiting.extract(order);
  VRAM_CHECK(!node.empty());
  const WaitingUse& w = node.mapped();
  // Where it waited, others have moved up.
  if (IsElsewhere(state.sessions.at(w.session).device)) concerned.reset();
  FailGroupOf(w, status);
  state.waiting_calls.erase(w.call);
  Fail(w.call, std::move(status));
  if (const Run* run = state.runs.Find(w.spec.run);
      run != nullptr && run->next_stage == w.spec.stage + 1) {
    state.runs.SetNextStage(run->id, w.spec.stage);
  }
  Session& session = state.sessions.at(w.session);
  session.requests[w.request_id].state = RequestRecord::State::kEnded;
  Finished(w.request_id, &session);
}

void Machine::Impl::On(const EndUseEvent& e) {
  Session* session = OpenSession(e.header);
  if (session == nullptr || DealtWith(e.header, session)) return;
  if (absl::Status status = CheckSnapshot(*session, e.snapshot); !status.ok()) {
    return Fail(e.header.call, std::move(status));
  }
  Component* ended = nullptr;
  for (ComponentId id : session->components) {
    Component& c = state.components.at(id);
    if (!c.use.has_value()) continue;
    if (e.use ? c.use->id == e.use : c.use->request_id == e.begin_request_id) ended = &c;
  }
  if (ended == nullptr && e.use) {
    return Fail(e.header.call,
                absl::FailedPreconditionError(
                    absl::StrCat("use_id: use ", e.use.value(), " does not run in this session")));
  }
  Book(e.snapshot, session);

  EndAnswer answer;
  if (ended != nullptr) {
    RequestRecord& begun = session->requests[ended->use->request_id];
    begun.state = RequestRecord::State::kEnded;
    begun.live = false;
    Finished(ended->use->request_id, session);
    session->trim_sent = absl::InfinitePast();
    session->trimmed_in_vain = false;
    CountUp(Count::What::kUseEnded, *ended, e.measured.bytes_loaded,
            absl::Seconds(e.measured.stall_seconds));
    NoteStall(*ended, e.measured);
    Learn(e.measured, ended);
    answer.target = DecideAtEnd(ended, &answer.expected_next_use);
    NoteHeld(ended->held, ended);
  } else {
    for (const auto& [order, w] : state.waiting) {
      if (w.session != session->id || w.request_id != e.begin_request_id) continue;
      answer.target = TargetOf(state.components.at(w.component));
      Withdraw(order, absl::CancelledError("its caller ended the use"));
      break;
    }
    LeaveMark(e.begin_request_id, session);
  }
  if (session->marks > config.max_request_ids) {
    // Its late calls can no longer be told from new ones: only a new session can.
    effects.push_back(CloseStream{
        session->connection,
        absl::ResourceExhaustedError(absl::StrCat("more than ", config.max_request_ids,
                                                  " uses were ended whose BeginUse never came"))});
    Fail(e.header.call, absl::AbortedError("attach again: too many uses ended unseen"));
    return Happens(SessionEvent::kStreamEnded, session->id, "too many uses ended unseen");
  }
  for (const auto& [order, w] : state.waiting) {
    answer.trim_pool |= session->pool > Bytes() &&
                        SessionOf(state.components.at(w.component)).device == session->device;
  }
  if (answer.trim_pool) session->trim_sent = now;
  RequestRecord record;
  record.state = RequestRecord::State::kAnswered;
  record.answer = answer;
  Remember(e.header, std::move(record), session);
  Finished(e.header.request_id, session);
  effects.push_back(Answer{e.header.call, std::move(answer)});
}

void Machine::Impl::On(const ReportEvent& e) {
  Session* session = OpenSession(e.header);
  if (session == nullptr) return;
  if (absl::Status status = CheckSnapshot(*session, e.snapshot); !status.ok()) {
    return Fail(e.header.call, std::move(status));
  }
  Book(e.snapshot, session);
  ReportAnswer answer;
  for (ComponentId id : session->components) {
    const Component& c = state.components.at(id);
    if (c.admitted && !c.use.has_value()) answer.targets.push_back(TargetOf(c));
  }
  effects.push_back(Answer{e.header.call, std::move(answer)});
}

}  // namespace vrambroker::core
