#include "tests/sim/reference_ledger.h"

#include <algorithm>

namespace vrambroker::simulation {

using core::Answer;
using core::Effect;
using core::Effects;

const Answer* FindAnswer(const Effects& effects, core::CallId call) {
  for (const Effect& effect : effects) {
    const auto* answer = std::get_if<Answer>(&effect);
    if (answer != nullptr && answer->call == call) return answer;
  }
  return nullptr;
}

bool IsError(const Answer& answer) { return std::holds_alternative<absl::Status>(answer.result); }

int ReferenceLedger::Component::ChargedLayers() const {
  int layers = held;
  if (use.has_value()) layers = std::max(layers, use->granted);
  for (const auto& [generation, target] : targets) {
    if (generation >= completed) layers = std::max(layers, target);
  }
  return layers;
}

int64_t ReferenceLedger::Component::Charge() const {
  const int64_t fixed = admitted || fixed_placed ? spec.fixed.count() : 0;
  return fixed + LayerBytes(ChargedLayers()) + (use.has_value() ? use->needs : 0);
}

int64_t ReferenceLedger::Worker::Charge() const {
  int64_t sum = pool + recorded;
  for (const auto& [component, c] : components) sum += c.Charge();
  return sum;
}

int64_t ReferenceLedger::Charged(const std::string& device) const {
  int64_t sum = 0;
  for (const auto& [pid, worker] : workers_) sum += worker.device == device ? worker.Charge() : 0;
  return sum;
}

int64_t ReferenceLedger::Permanent(const std::string& device) const {
  int64_t sum = 0;
  for (const auto& [pid, worker] : workers_) {
    if (worker.device != device) continue;
    for (const auto& [name, c] : worker.components) {
      if (c.admitted || c.fixed_placed) sum += c.spec.fixed.count();
      if (c.spec.lifetime == core::Lifetime::kPermanent) sum += c.LayerBytes(c.ChargedLayers());
    }
  }
  return sum;
}

const ReferenceLedger::Worker* ReferenceLedger::FindSession(uint64_t session) const {
  const auto it = by_session_.find(session);
  if (it == by_session_.end()) return nullptr;
  const auto worker = workers_.find(it->second);
  return worker == workers_.end() || worker->second.session != session ? nullptr : &worker->second;
}

ReferenceLedger::Worker* ReferenceLedger::Of(core::SessionId session) {
  return const_cast<Worker*>(FindSession(session.value()));
}

void ReferenceLedger::Restart(const std::vector<core::Owner>& owners) {
  const uint64_t order = last_order_;
  *this = ReferenceLedger();
  last_order_ = order;
  for (const core::Owner& owner : owners) {
    Worker& worker = workers_[owner.process.pid];
    worker.name = owner.worker;
    worker.process = owner.process;
    worker.device = owner.device;
    worker.recorded = owner.charge.count();
  }
}

void ReferenceLedger::Book(const core::Snapshot& snapshot, Worker* worker) {
  if (snapshot.sequence <= worker->sequence) return;
  worker->sequence = snapshot.sequence;
  worker->pool = snapshot.pool.count();
  for (const core::Residency& r : snapshot.components) {
    const auto it = worker->components.find(r.component);
    if (it == worker->components.end()) continue;
    Component& c = it->second;
    c.held = r.held;
    c.fixed_placed = r.fixed_placed;
    if (c.spec.lifetime == core::Lifetime::kForward && (r.fixed_placed || r.held > 0)) {
      c.admitted = true;
    }
    c.completed = std::max(c.completed, r.completed.value());
    std::erase_if(c.targets, [&](const auto& entry) { return entry.first < c.completed; });
  }
}

void ReferenceLedger::NoteAttach(const core::AttachEvent& e, const core::Welcome& welcome) {
  Worker& worker = workers_[e.process.pid];
  worker.recorded = 0;
  worker.name = e.worker;
  worker.process = e.process;
  worker.device = e.device_uuid;
  worker.session = welcome.session.value();
  by_session_[worker.session] = e.process.pid;
  by_connection_[e.connection.value()] = e.process.pid;
  std::map<std::string, Component> before = std::move(worker.components);
  worker.components.clear();
  for (const core::ComponentSpec& spec : e.components) {
    Component& c = worker.components[spec.name];
    if (const auto it = before.find(spec.name); it != before.end()) c = it->second;
    if (!core::SameOnDevice(c.spec, spec)) {
      c.targets.clear();
      c.admitted = false;
    }
    c.spec = spec;
    c.use.reset();
  }
  for (const core::ResumedUseSpec& u : e.running_uses) {
    const auto id = std::find_if(welcome.resumed_uses.begin(), welcome.resumed_uses.end(),
                                 [&](const auto& r) { return r.first == u.request_id; });
    Component& c = worker.components.at(u.component);
    Use use;
    use.request_id = u.request_id;
    if (id != welcome.resumed_uses.end()) use.id = id->second.value();
    for (core::UseId former : u.former_ids) use.formerly.insert(former.value());
    use.generation = u.generation.value();
    use.granted = u.granted;
    use.needs = (u.window + u.activation).count();
    // It keeps its place where it is known; else it is as new as what comes now.
    const auto it = before.find(u.component);
    const bool known = it != before.end() && it->second.use.has_value() &&
                       it->second.use->request_id == u.request_id;
    use.order = known ? it->second.use->order : ++last_order_;
    if (known) use.formerly.merge(it->second.use->formerly);
    if (known) use.formerly.insert(it->second.use->id);
    c.use = use;
    c.admitted |= c.spec.lifetime == core::Lifetime::kForward;
  }
  Book(e.snapshot, &worker);
  for (auto& [name, c] : worker.components) {
    const bool refused = std::any_of(
        welcome.refused.begin(), welcome.refused.end(),
        [&c = c](const core::RefusedComponent& r) { return r.component == c.spec.name; });
    if (!refused) c.admitted = true;
  }
}

void ReferenceLedger::NoteTarget(const core::Target& target, Worker* worker) {
  const auto it = worker->components.find(target.component);
  if (it == worker->components.end()) return;
  it->second.admitted = true;
  if (target.generation.value() < it->second.completed) return;
  it->second.targets[target.generation.value()] = target.layers;
}

void ReferenceLedger::NoteEvent(const core::Event& event, const Effects& effects, absl::Time now) {
  const auto accepted = [&](const core::CallHeader& header) {
    const Answer* answer = FindAnswer(effects, header.call);
    return answer != nullptr && !IsError(*answer);
  };
  if (const auto* attach = std::get_if<core::AttachEvent>(&event)) {
    for (const Effect& effect : effects) {
      const auto* directive = std::get_if<core::SendDirective>(&effect);
      if (directive == nullptr || directive->connection != attach->connection) continue;
      if (directive->welcome.has_value()) NoteAttach(*attach, *directive->welcome);
    }
  } else if (const auto* report = std::get_if<core::ReportEvent>(&event)) {
    session_of_call_[report->header.call.value()] = report->header.session.value();
    if (Worker* w = Of(report->header.session); accepted(report->header) && w != nullptr) {
      Book(report->snapshot, w);
    }
  } else if (const auto* end = std::get_if<core::EndUseEvent>(&event)) {
    session_of_call_[end->header.call.value()] = end->header.session.value();
    Worker* w = Of(end->header.session);
    if (w == nullptr || !accepted(end->header)) return;
    Book(end->snapshot, w);
    for (auto& [name, c] : w->components) {
      if (!c.use.has_value()) continue;
      if (end->use ? c.use->id == end->use.value() : c.use->request_id == end->begin_request_id) {
        c.use.reset();
      }
    }
  } else if (const auto* begin = std::get_if<core::BeginUseEvent>(&event)) {
    const Worker* w = Of(begin->header.session);
    if (w == nullptr) return;
    Waiting waiting{w->process.pid, begin->header.request_id, begin->use, now, 0};
    for (const auto& [call, other] : waiting_) {
      const bool same = other.pid == waiting.pid && other.request_id == waiting.request_id;
      if (same) waiting = other;  // takes over its place
    }
    if (waiting.order == 0) waiting.order = ++last_order_;
    waiting_[begin->header.call.value()] = waiting;
  } else if (const auto* update = std::get_if<core::UpdateComponentsEvent>(&event)) {
    session_of_call_[update->header.call.value()] = update->header.session.value();
  } else if (const auto* died = std::get_if<core::ProcessDiedEvent>(&event)) {
    const auto it = workers_.find(died->process.pid);
    if (it != workers_.end()) it->second.died = true;
  } else if (const auto* closed = std::get_if<core::StreamClosedEvent>(&event)) {
    by_connection_.erase(closed->connection.value());
  }
}

void ReferenceLedger::NoteAnswer(const Answer& answer) {
  const auto waiting = waiting_.find(answer.call.value());
  if (const auto* granted = std::get_if<core::BeginAnswer>(&answer.result)) {
    const Waiting& begun = waiting->second;
    Component& c = workers_.at(begun.pid).components.at(begun.spec.component);
    if (!c.use.has_value() || c.use->id != granted->use.value()) {
      c.use = Use{begun.request_id,
                  granted->use.value(),
                  granted->generation.value(),
                  granted->resident,
                  (granted->window + granted->activation).count(),
                  begun.order,
                  {}};
    }
    c.targets[granted->generation.value()] = granted->resident;
  }
  if (waiting != waiting_.end()) waiting_.erase(waiting);
  const auto session = session_of_call_.find(answer.call.value());
  if (session == session_of_call_.end()) return;
  if (Worker* w = Of(core::SessionId(session->second)); w != nullptr) {
    if (const auto* end = std::get_if<core::EndAnswer>(&answer.result)) NoteTarget(end->target, w);
    if (const auto* report = std::get_if<core::ReportAnswer>(&answer.result)) {
      for (const core::Target& target : report->targets) NoteTarget(target, w);
    }
    if (const auto* update = std::get_if<core::UpdateAnswer>(&answer.result)) {
      for (const core::Target& target : update->targets) NoteTarget(target, w);
    }
  }
  session_of_call_.erase(session);
}

void ReferenceLedger::Note(const core::Event& event, const Effects& effects, absl::Time now) {
  NoteEvent(event, effects, now);
  waited_ = waiting_;
  for (const Effect& effect : effects) {
    if (const auto* answer = std::get_if<Answer>(&effect)) NoteAnswer(*answer);
    const auto* directive = std::get_if<core::SendDirective>(&effect);
    if (directive == nullptr) continue;
    const auto it = by_connection_.find(directive->connection.value());
    if (it == by_connection_.end() || !workers_.contains(it->second)) continue;
    for (const core::Target& target : directive->targets) {
      NoteTarget(target, &workers_.at(it->second));
    }
  }
}

}  // namespace vrambroker::simulation
