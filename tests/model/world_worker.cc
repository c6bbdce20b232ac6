#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/model/world.h"

namespace vrambroker::model {

void World::OfWorker(const Action& action) {
  const int i = action.worker;
  Worker& w = Of(i);
  switch (action.kind) {
    case Action::Kind::kConnect:
      w.connect_due = false;
      return Step(i, client::Connect{});
    case Action::Kind::kPlace:
      return Place(i);
    case Action::Kind::kTrim:
      w.trim_due = false;
      w.pool = 0;
      return Step(i, client::PoolChanged{0, 0});
    case Action::Kind::kApply:
      return Apply(i);
    case Action::Kind::kCopied:
      w.copying = false;
      return TellHeld(i, w.layers, false);
    case Action::Kind::kAsk:
      return Ask(i);
    case Action::Kind::kRun:
      return Run(i);
    case Action::Kind::kEnd:
      w.program = Program::kEnding;
      Free(std::exchange(w.needs, 0), &w);
      return Step(i, client::UseOver{w.ticket, w.layers, {}, w.pool * kUnit});
    case Action::Kind::kClosed: {
      const int keep = std::min(w.keep, w.layers);
      Free(w.layers - keep, &w);
      w.layers = keep;
      w.program = Program::kIdle;
      return TellHeld(i, keep, false);
    }
    case Action::Kind::kGiveUp:
      --s_.left.give_up;
      w.program = Program::kIdle;
      return Step(i, client::UseGivenUp{w.ticket});
    case Action::Kind::kGiveUpEnd:
      --s_.left.give_up_end;
      return Step(i, client::EndGivenUp{w.ticket});
    case Action::Kind::kDrop:
      --s_.left.drop;
      Free(w.layers, &w);
      w.layers = 0;
      return TellHeld(i, 0, false);
    default:
      return Violate("an action of no worker");
  }
}

void World::Ask(int worker) {
  Worker& w = Of(worker);
  --w.uses_left;
  w.program = Program::kAsked;
  client::UseAsked asked;
  asked.ticket = ++w.ticket;
  asked.request.set_component("c");
  asked.request.set_passes(2);
  asked.request.set_activation_bytes(scenario_.need * kUnit);
  if (worker == 0) asked.request.set_max_resident_layers(scenario_.most_of_first);
  Step(worker, asked);
}

void World::Free(int units, Worker* w) {
  if (scenario_.caching) w->pool += units;
}

void World::Allocate(int units, Worker* w) { w->pool -= std::min(w->pool, units); }

void World::TellHeld(int worker, int held, bool copying) {
  Step(worker, client::HeldChanged{"c", held, copying, Of(worker).pool * kUnit});
}

// One layer, or what is to go in one.
void World::Apply(int worker) {
  Worker& w = Of(worker);
  const client::Work work = w.session->NextWork("c");
  if (work.kind == client::Work::Kind::kRelease) {
    Free(w.layers - work.layers, &w);
    w.layers = work.layers;
    return TellHeld(worker, w.layers, false);
  }
  TellHeld(worker, w.layers + 1, true);
  Allocate(1, &w);
  ++w.layers;
  w.copying = true;
}

// All that it was granted is there at once: the most that the use has at any time.
void World::Run(int worker) {
  Worker& w = Of(worker);
  if (w.layers > w.granted) {
    Free(w.layers - w.granted, &w);
    w.layers = w.granted;
  }
  Allocate(w.granted_needs + w.granted - w.layers, &w);
  w.needs = w.granted_needs;
  w.layers = w.granted;
  w.program = Program::kRunning;
}

void World::Place(int worker) {
  Worker& w = Of(worker);
  w.place_due = false;
  Allocate(scenario_.fixed, &w);
  w.fixed = scenario_.fixed;
  if (IsPermanent(worker)) {
    Allocate(scenario_.layers, &w);
    w.layers = scenario_.layers;
    TellHeld(worker, w.layers, false);
  }
  Step(worker, client::FixedPlaced{"c"});
}

void World::Step(int worker, const client::Event& event) {
  auto session = std::make_shared<client::Session>(*Of(worker).session);
  const client::Effects effects = session->Step(event, s_.now);
  Of(worker).session = std::move(session);
  for (const client::Effect& effect : effects) {
    std::visit([&](const auto& e) { Carry(worker, e); }, effect);
  }
}

void World::Carry(int worker, const client::OpenStream& e) {
  if (Connection* before = NewestOf(worker); before != nullptr && !before->lost) {
    Lose(before, false);
  }
  Connection connection;
  connection.id = ++s_.last_connection;
  connection.worker = worker;
  connection.attach = std::make_shared<v1::AttachRequest>(e.request);
  s_.connections.push_back(std::move(connection));
}

// Where its stream is lost already, nobody waits for an answer.
void World::Send(int worker, Call call) {
  call.worker = worker;
  call.number = ++Of(worker).last_call;
  const Connection* connection = NewestOf(worker);
  call.orphan = connection == nullptr || connection->lost ||
                connection->attach->attach_number() != call.attach_number;
  s_.calls.push_back(std::move(call));
}

void World::Carry(int worker, const client::SendBegin& e) {
  Call call;
  call.attach_number = e.attach_number;
  call.kind = CallKind::kBegin;
  call.request_id = e.request.request_id();
  call.begin = std::make_shared<v1::BeginUseRequest>(e.request);
  Send(worker, std::move(call));
}

void World::Carry(int worker, const client::SendEnd& e) {
  Call call;
  call.attach_number = e.attach_number;
  call.kind = CallKind::kEnd;
  call.request_id = e.request.request_id();
  call.end = std::make_shared<v1::EndUseRequest>(e.request);
  Send(worker, std::move(call));
}

void World::Carry(int worker, const client::SendReport& e) {
  Call call;
  call.attach_number = e.attach_number;
  call.kind = CallKind::kReport;
  call.report = std::make_shared<v1::ReportResidencyRequest>(e.request);
  Send(worker, std::move(call));
}

void World::Carry(int worker, const client::CancelBegin& e) {
  const auto of_it = [&](const Call& call) {
    return call.worker == worker && call.kind == CallKind::kBegin &&
           call.request_id == e.request_id;
  };
  for (Call& call : s_.calls) call.orphan |= of_it(call);
  for (auto& [id, pending] : s_.pending) {
    if (!of_it(pending.call)) continue;
    pending.call.orphan = pending.cancel_due = true;
  }
  std::erase_if(s_.replies, [&](const Reply& reply) { return of_it(reply.call); });
}

void World::Carry(int worker, const client::UseGranted& e) {
  Worker& w = Of(worker);
  if (w.program != Program::kAsked || e.ticket != w.ticket) {
    return Violate(absl::StrCat("w", worker, " is granted a use that nobody waits for"));
  }
  w.program = Program::kGranted;
  w.granted = e.resident_layers;
  w.granted_needs = static_cast<int>(e.activation_bytes / kUnit) +
                    (w.granted < scenario_.layers ? scenario_.window : 0);
  Note(absl::StrCat("  w", worker, " may use ", w.granted, " layers"));
}

void World::Carry(int worker, const client::UseRefused& e) {
  Worker& w = Of(worker);
  if (w.program != Program::kAsked || e.ticket != w.ticket) {
    return Violate(absl::StrCat("w", worker, " is refused a use that nobody waits for"));
  }
  w.program = Program::kIdle;
  if (!scenario_.may_refuse) {
    Violate(absl::StrCat("a use of w", worker, " that fits is refused: ", e.status.ToString()));
  }
}

void World::Carry(int worker, const client::UseClosed& e) {
  Worker& w = Of(worker);
  if (w.program != Program::kEnding || e.ticket != w.ticket) {
    return Violate(absl::StrCat("w", worker, " is told the end of a use that did not end"));
  }
  w.program = Program::kClosing;
  w.keep = e.keep;
}

void World::Carry(int worker, const client::SessionChanged& e) {
  if (e.for_good) {
    Violate(absl::StrCat("w", worker, " is refused for good: ", e.status.ToString()));
  }
}

}  // namespace vrambroker::model
