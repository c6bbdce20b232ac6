#include "tests/model/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_answers.h"
#include "broker/server/convert_attach.h"
#include "broker/server/convert_calls.h"
#include "tests/model/inspection.h"
#include "tests/sim/describe.h"

namespace vrambroker::model {
namespace {

using Kind = Action::Kind;

// Sessions are numbered on from an epoch: more than there are of them.
constexpr uint64_t kBetweenEpochs = 1000;

template <typename Content, typename Response>
absl::Status Write(const core::Answer& answer, Response* response) {
  if (const auto* status = std::get_if<absl::Status>(&answer.result)) return *status;
  const auto* content = std::get_if<Content>(&answer.result);
  if (content == nullptr) return absl::InternalError("an answer of another kind");
  server::Write(*content, response);
  return absl::OkStatus();
}

template <typename Event>
absl::StatusOr<core::Event> WithCall(absl::StatusOr<Event> event, uint64_t call) {
  if (!event.ok()) return event.status();
  event->header.call = core::CallId(call);
  return core::Event(*std::move(event));
}

absl::StatusOr<core::Event> Read(const Call& call, uint64_t id) {
  switch (call.kind) {
    case CallKind::kBegin:
      return WithCall(server::ReadBeginUse(*call.begin), id);
    case CallKind::kEnd:
      return WithCall(server::ReadEndUse(*call.end), id);
    case CallKind::kReport:
      break;
  }
  return WithCall(server::ReadReport(*call.report), id);
}

}  // namespace

void Do(const Scenario& scenario, const Action& action, State* state,
        std::vector<std::string>* story) {
  World(scenario, state, story).Do(action);
}

void World::Do(const Action& action) {
  if (story_ != nullptr) {
    Note(action.worker < 0 ? NameOf(action.kind)
                           : absl::StrCat("w", action.worker, ": ", NameOf(action.kind)));
  }
  switch (action.kind) {
    case Kind::kCloseTold:
    case Kind::kDirective:
    case Kind::kReply:
    case Kind::kCall:
    case Kind::kAttach:
    case Kind::kStreamEnds:
    case Kind::kCancelTold:
    case Kind::kDuplicate:
    case Kind::kFail:
    case Kind::kFailPending:
    case Kind::kLose:
    case Kind::kKilledInCall:
    case Kind::kKilledInAttach:
      OfNetwork(action);
      break;
    case Kind::kDeathNoticed:
    case Kind::kBytesGo:
    case Kind::kReadingBegins:
    case Kind::kReadingSampled:
    case Kind::kReadingArrives:
    case Kind::kUnpromptedReading:
    case Kind::kTime:
    case Kind::kRestart:
    case Kind::kDie:
      OfBroker(action);
      break;
    default:
      OfWorker(action);
  }
  if (said_ >= 0) Restart();
  Tidy();
}

void World::OfNetwork(const Action& action) {
  const size_t i = action.index;
  const auto take_call = [&] {
    Call call = std::move(s_.calls[i]);
    s_.calls.erase(s_.calls.begin() + static_cast<int64_t>(i));
    return call;
  };
  switch (action.kind) {
    case Kind::kCloseTold:
      s_.connections[i].close_told = true;
      return Step(core::StreamClosedEvent{core::ConnectionId(s_.connections[i].id)});
    case Kind::kDirective: {
      const auto directive = s_.connections[i].down.front();
      s_.connections[i].down.pop_front();
      return Step(action.worker,
                  client::DirectiveReceived{s_.connections[i].attach->attach_number(), *directive});
    }
    case Kind::kReply:
      return ArriveReply(i);
    case Kind::kKilledInCall:
      --s_.left.restart;
      said_ = action.said;
      [[fallthrough]];
    case Kind::kCall:
      return ArriveCall(take_call());
    case Kind::kDuplicate:
      --s_.left.duplicate;
      return ArriveCall(s_.calls[i]);
    case Kind::kFail:
      --s_.left.fail;
      return Fail(&s_.calls[i]);
    case Kind::kFailPending:
      --s_.left.fail;
      return Fail(&s_.pending.at(action.index).call);
    case Kind::kKilledInAttach:
      --s_.left.restart;
      said_ = action.said;
      [[fallthrough]];
    case Kind::kAttach:
      return ArriveAttach(&s_.connections[i]);
    case Kind::kStreamEnds:
      s_.connections[i].end_due = false;
      return Step(action.worker, client::StreamEnded{s_.connections[i].attach->attach_number(),
                                                     s_.connections[i].end_status});
    case Kind::kLose:
      --s_.left.lose;
      return Lose(&s_.connections[i], true);
    case Kind::kCancelTold:
      s_.pending.at(action.index).cancel_due = false;
      return Step(core::CallCancelledEvent{core::CallId(action.index)});
    default:
      return;
  }
}

Connection* World::Find(uint64_t connection) {
  for (Connection& c : s_.connections) {
    if (c.id == connection) return &c;
  }
  return nullptr;
}

Connection* World::NewestOf(int worker) {
  Connection* newest = nullptr;
  for (Connection& c : s_.connections) {
    if (c.worker == worker && (newest == nullptr || c.id > newest->id)) newest = &c;
  }
  return newest;
}

// What its callers wait for never comes; what is on its way may arrive late.
void World::Lose(Connection* connection, bool worker_hears) {
  connection->lost = true;
  connection->end_due = worker_hears;
  connection->end_status = absl::UnavailableError("the stream was lost");
  const auto of_it = [&](const Call& call) {
    return call.worker == connection->worker &&
           call.attach_number == connection->attach->attach_number();
  };
  for (Call& call : s_.calls) call.orphan |= of_it(call);
  for (auto& [id, pending] : s_.pending) pending.call.orphan |= of_it(pending.call);
  for (Reply& reply : s_.replies) reply.call.orphan |= of_it(reply.call);
}

// Its caller is told so, whatever becomes of it.
void World::Fail(Call* call) {
  s_.replies.push_back({*call, std::make_shared<core::Answer>(core::Answer{
                                   core::CallId(), absl::UnavailableError("the call failed")})});
  call->orphan = true;
}

void World::ArriveCall(Call call) {
  const uint64_t id = ++s_.last_call;
  const absl::StatusOr<core::Event> event = Read(call, id);
  if (!event.ok()) return Violate(absl::StrCat("at the edge: ", event.status().ToString()));
  s_.pending[id] = {std::move(call), false};
  Step(*event);
}

void World::ArriveAttach(Connection* connection) {
  absl::StatusOr<core::AttachEvent> event = server::ReadAttach(*connection->attach);
  if (!event.ok()) return Violate(absl::StrCat("at the edge: ", event.status().ToString()));
  event->connection = core::ConnectionId(connection->id);
  event->process = ProcessOf(connection->worker);
  connection->arrived = true;
  Of(connection->worker).noticed = false;  // it is watched from now on
  Step(*event);
}

// The first answer to a call counts; others of it are not waited for.
void World::ArriveReply(size_t index) {
  const Reply reply = s_.replies[index];
  const auto of_it = [&](const Call& call) {
    return call.worker == reply.call.worker && call.number == reply.call.number;
  };
  std::erase_if(s_.replies, [&](const Reply& r) { return of_it(r.call); });
  for (Call& call : s_.calls) call.orphan |= of_it(call);
  for (auto& [id, pending] : s_.pending) pending.call.orphan |= of_it(pending.call);
  if (!Of(reply.call.worker).alive) return;
  const Call& call = reply.call;
  if (call.kind == CallKind::kBegin) {
    client::BeginAnswered begun{call.attach_number, call.request_id, {}, {}};
    begun.status = Write<core::BeginAnswer>(*reply.answer, &begun.response);
    Step(call.worker, begun);
  } else if (call.kind == CallKind::kEnd) {
    client::EndAnswered ended{call.attach_number, call.request_id, {}, {}};
    ended.status = Write<core::EndAnswer>(*reply.answer, &ended.response);
    Step(call.worker, ended);
  } else {
    client::ReportAnswered reported{call.attach_number, {}, {}};
    reported.status = Write<core::ReportAnswer>(*reply.answer, &reported.response);
    Step(call.worker, reported);
  }
}

void World::OfBroker(const Action& action) {
  Reading& reading = s_.reading;
  switch (action.kind) {
    case Kind::kDeathNoticed:
      Of(action.worker).noticed = true;
      return Step(core::ProcessDiedEvent{ProcessOf(action.worker)});
    case Kind::kBytesGo: {
      Worker& w = Of(action.worker);
      w.layers = w.fixed = w.needs = w.pool = 0;
      return;
    }
    case Kind::kDie: {
      --s_.left.die;
      if (Connection* c = NewestOf(action.worker); c != nullptr && !c->lost) Lose(c, false);
      Worker& w = Of(action.worker);
      w.alive = w.noticed = w.copying = w.connect_due = w.place_due = w.trim_due = false;
      w.session = nullptr;
      w.program = Program::kIdle;
      w.granted = w.granted_needs = w.keep = w.uses_left = 0;
      for (Connection& c : s_.connections) {
        if (c.worker == action.worker) c.down.clear();
        if (c.worker == action.worker) c.end_due = false;
      }
      std::erase_if(s_.replies, [&](const Reply& r) { return r.call.worker == action.worker; });
      return;
    }
    case Kind::kUnpromptedReading:
      --s_.left.reading;
      [[fallthrough]];
    case Kind::kReadingBegins:
      s_.reading_wanted = false;
      reading = {Reading::Stage::kBegun, reading.number + 1, {}};
      return Step(core::ReadingBeganEvent{"GPU-0", reading.number});
    case Kind::kReadingSampled:
      reading.stage = Reading::Stage::kSampled;
      for (const Worker& w : s_.workers) reading.shown.push_back(w.Physical());
      return;
    case Kind::kReadingArrives: {
      core::ReadingEvent event{"GPU-0", reading.number, {}, {}, true, {}, {}};
      for (size_t i = 0; i < reading.shown.size(); ++i) {
        if (reading.shown[i] == 0) continue;
        const core::Bytes bytes(reading.shown[i] * kUnit);
        event.by_process.emplace_back(ProcessOf(static_cast<int>(i)).pid, bytes);
        event.total_used += bytes;
      }
      reading = {Reading::Stage::kNone, reading.number, {}};
      return Step(event);
    }
    case Kind::kTime:
      return Pass();
    case Kind::kRestart:
      --s_.left.restart;
      return Restart();
    default:
      return;
  }
}

// To the next time that somebody asked for; who asked for it is woken.
void World::Pass() {
  s_.now = NextWake(s_);
  s_.left.time = std::max(0, s_.left.time - 1);
  if (core::MachineInspection::WakeAt(*s_.machine) == s_.now) Step(core::TickEvent{});
  for (size_t i = 0; i < s_.workers.size(); ++i) {
    const Worker& w = s_.workers[i];
    if (!w.alive || client::SessionInspection::WakeAt(*w.session) != s_.now) continue;
    Step(static_cast<int>(i), client::Tick{});
  }
}

// What is on its way to the old one never arrives; what it has said may.
void World::Restart() {
  said_ = -1;
  for (Connection& c : s_.connections) {
    const Worker& w = Of(c.worker);
    if (!c.lost) Lose(&c, w.alive);
    c.arrived = c.close_told = true;
  }
  s_.calls.clear();
  s_.pending.clear();
  s_.reading = {Reading::Stage::kNone, s_.reading.number, {}};
  s_.reading_wanted = false;
  std::vector<core::Owner> owners;
  for (auto& [pid, owner] : s_.record) {
    owner.provable = true;
    owners.push_back(owner);
  }
  for (Worker& w : s_.workers) w.noticed = false;
  s_.epoch += kBetweenEpochs;
  s_.machine = core::MachineInspection::Next(*s_.machine, core::Epoch(s_.epoch), owners);
  Step(core::TickEvent{});
}

void World::Step(const core::Event& event) {
  std::unique_ptr<core::Machine> machine = core::MachineInspection::Copy(*s_.machine);
  const core::Effects effects = machine->Step(event, s_.now);
  if (story_ != nullptr) {
    Note(absl::StrCat("  ", simulation::Describe(event)));
    for (const core::Effect& effect : effects) {
      Note(absl::StrCat("    ", simulation::Describe(effect)));
    }
  }
  machine->CheckInvariants();
  const core::Bytes before = core::MachineInspection::LedgerOf(*s_.machine).Overcommitted();
  const core::Bytes after = core::MachineInspection::LedgerOf(*machine).Overcommitted();
  const bool fact = std::holds_alternative<core::AttachEvent>(event) ||
                    std::holds_alternative<core::ReadingEvent>(event);
  if (after > before && !fact) Violate("a decision raises the charges above the capacity");
  s_.machine = std::move(machine);
  CarryOut(effects);
}

void World::CarryOut(const core::Effects& effects) {
  for (const core::Effect& effect : effects) {
    const auto* record = std::get_if<core::RecordCharge>(&effect);
    const auto* directive = std::get_if<core::SendDirective>(&effect);
    const auto* close = std::get_if<core::CloseStream>(&effect);
    const auto* answer = std::get_if<core::Answer>(&effect);
    s_.reading_wanted |= std::holds_alternative<core::WantReading>(effect);
    if (record == nullptr && directive == nullptr && close == nullptr && answer == nullptr)
      continue;
    if (said_ == 0) return;
    said_ -= said_ > 0 ? 1 : 0;
    if (record != nullptr) {
      s_.record[record->owner.process.pid] = record->owner;
      if (record->owner.charge == core::Bytes()) s_.record.erase(record->owner.process.pid);
    } else if (directive != nullptr) {
      Connection* c = Find(directive->connection.value());
      if (c == nullptr) return Violate("a directive for no connection");
      auto message = std::make_shared<v1::Directive>();
      if (directive->welcome) server::Write(*directive->welcome, message->mutable_welcome());
      for (const core::Target& t : directive->targets) server::Write(t, message->add_targets());
      message->set_trim_pool(directive->trim_pool);
      if (!c->lost) c->down.push_back(std::move(message));
    } else if (close != nullptr) {
      Connection* c = Find(close->connection.value());
      if (c == nullptr) return Violate("the end of no connection");
      c->close_told = true;
      if (c->lost) continue;
      Lose(c, Of(c->worker).alive);
      c->end_status = close->status;
    } else {
      CarryOut(*answer);
    }
  }
}

void World::CarryOut(const core::Answer& answer) {
  const auto node = s_.pending.extract(answer.call.value());
  if (node.empty()) return Violate("a call is answered that does not wait");
  const Call& call = node.mapped().call;
  if (!call.orphan) s_.replies.push_back({call, std::make_shared<core::Answer>(answer)});
}

void World::Tidy() {
  std::erase_if(s_.connections, [](const Connection& c) {
    return c.lost && c.arrived && c.close_told && !c.end_due && c.down.empty();
  });
}

}  // namespace vrambroker::model
