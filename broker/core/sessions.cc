// Sessions: who is attached with which components, what they say they hold, and how they are lost.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {
void Machine::Impl::On(const AttachEvent& e) {
  Session* old = SameProcess(e);
  if (absl::Status status = CheckAttach(e); !status.ok()) {
    effects.push_back(CloseStream{e.connection, std::move(status)});
    return;
  }
  const bool fresh = old == nullptr || old->recorded > Bytes();
  Session session;
  session.id = SessionId(++last_session);
  session.worker = e.worker;
  session.place = e.place;
  session.process = e.process;
  session.attach_number = e.attach_number;
  session.connection = e.connection;
  session.device = e.device_uuid;
  session.host = e.host;
  if (session.device.empty() && !e.components.empty()) {
    session.device = state.devices.begin()->first;
  }
  if (old != nullptr) {
    Happens(SessionEvent::kAttachedAgain, old->id, "the same process has attached again", &session);
  }
  state.connections[e.connection] = session.id;
  const SessionId id = session.id;
  SayWelcome(e, fresh, &state.sessions.emplace(id, std::move(session)).first->second);
}

Session* Machine::Impl::SameProcess(const AttachEvent& e) {
  for (auto& [id, s] : state.sessions) {
    if (s.worker == e.worker && s.process == e.process && s.phase != SessionPhase::kGone) return &s;
  }
  return nullptr;
}

absl::Status Machine::Impl::CheckAttach(const AttachEvent& e) const {
  const std::string uuid = e.device_uuid.empty() && !state.devices.empty()
                               ? state.devices.begin()->first
                               : e.device_uuid;
  if (!e.components.empty()) {
    if (e.device_uuid.empty() && state.devices.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("components.device_uuid: empty, and this broker has ", state.devices.size(),
                       " devices; name one"));
    }
    if (!state.devices.contains(uuid)) {
      return absl::InvalidArgumentError(
          absl::StrCat("components.device_uuid: \"", uuid, "\" is not a device of this broker"));
    }
  }
  for (const auto& [id, s] : state.sessions) {
    if (s.phase != SessionPhase::kGone || !s.process.known() || s.process != e.process) continue;
    return absl::AbortedError(absl::StrCat("pid: process ", s.process.pid, " is known to be dead"));
  }
  const Session* same = const_cast<Impl*>(this)->SameProcess(e);
  if (same != nullptr && same->attach_number >= e.attach_number) {
    return absl::AbortedError(absl::StrCat("attach_number: ", e.attach_number,
                                           " is not newer than ", same->attach_number,
                                           ", the newest of this process"));
  }
  if (same != nullptr && same->device != uuid && !same->components.empty()) {
    return absl::FailedPreconditionError("components.device_uuid: a worker does not change device");
  }
  for (const auto& [id, s] : state.sessions) {
    if (&s != same && s.worker == e.worker && s.phase == SessionPhase::kAttached) {
      return absl::FailedPreconditionError(absl::StrCat("worker: the name \"", e.worker,
                                                        "\" is in use by process ", s.process.pid,
                                                        "; choose another"));
    }
  }
  if (same == nullptr && static_cast<int>(state.sessions.size()) >= config.max_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this broker holds ", config.max_sessions, " sessions, its most"));
  }
  if (static_cast<int>(state.components.size() + e.components.size()) > config.max_components) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this broker holds ", state.components.size(), " components; with ",
                     e.components.size(), " more it would pass ", config.max_components));
  }
  for (const ComponentSpec& spec : e.components) {
    const Component* c = same == nullptr ? nullptr : FindComponent(*same, spec.name);
    if (c != nullptr && !SameOnDevice(c->spec, spec) && (c->held > 0 || c->use.has_value())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "components: ", spec.name, " has other layers than it attached with, and holds ", c->held,
          " of them; release them, then UpdateComponents"));
    }
  }
  // What the worker says of itself must at least agree with itself.
  std::map<std::string, const ComponentSpec*> specs;
  for (const ComponentSpec& spec : e.components) specs[spec.name] = &spec;
  for (const Residency& r : e.snapshot.components) {
    const auto it = specs.find(r.component);
    if (it == specs.end() || r.held < 0 || r.held > it->second->layers.count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("snapshot: ", r.component, " with ", r.held,
                       " held layers is not one of the components, or holds more than it has"));
    }
  }
  for (const ResumedUseSpec& u : e.running_uses) {
    const auto it = specs.find(u.component);
    if (it == specs.end() || u.granted < 0 || u.granted > it->second->layers.count()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "running_uses: ", u.component, " with ", u.granted, " granted layers is not one of the ",
          "components, or has more than it has"));
    }
  }
  return absl::OkStatus();
}

void Machine::Impl::SayWelcome(const AttachEvent& e, bool fresh, Session* session) {
  Welcome welcome;
  welcome.session = session->id;
  welcome.epoch = config.epoch;
  welcome.version = e.version;
  welcome.release_deadline = config.release_deadline;
  welcome.orphan_after = config.orphan_after;

  std::set<std::string> named;
  for (const ComponentSpec& spec : e.components) {
    named.insert(spec.name);
    AddComponent(spec, session);
  }
  const std::vector<ComponentId> before = session->components;
  for (ComponentId id : before) {
    if (!named.contains(state.components.at(id).spec.name)) RemoveComponent(id, session);
  }
  ResumeUses(e, session, &welcome);
  Book(e.snapshot, session);
  if (fresh) session->floor = session->next_floor = SessionCharge(state, *session);

  SendDirective directive{session->connection, std::nullopt, {}, false};
  for (ComponentId id : session->components) {
    Component& c = state.components.at(id);
    const Bytes missing = AdmitFixed(&c);
    if (missing > Bytes()) {
      welcome.refused.push_back({c.spec.name, MissingText(c, missing), missing});
      continue;
    }
    const int keep = state.draining ? 0 : c.held;
    PushTarget(c.permanent() ? c.count() : c.use.has_value() ? c.use->granted : keep, &c);
    c.reason = c.permanent() ? Reason::kPermanent : Reason::kUnchanged;
    c.target_sent = c.last_reminder = now;
    directive.targets.push_back(TargetOf(c));
  }
  directive.welcome = std::move(welcome);
  effects.push_back(std::move(directive));
  future_changed = pins_changed = true;
}

absl::Status Machine::Impl::CheckSnapshot(const Session& session, const Snapshot& snapshot) const {
  if (snapshot.sequence <= session.sequence) return absl::OkStatus();  // dropped, not judged
  std::set<std::string> named;
  for (const Residency& r : snapshot.components) {
    const Component* c = FindComponent(session, r.component);
    if (c == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("snapshot.components: ", r.component, " is not attached"));
    }
    named.insert(r.component);
    if (r.held < 0 || r.held > c->count()) {
      return absl::InvalidArgumentError(absl::StrCat("snapshot.components.held_layers: ", r.held,
                                                     " of ", r.component, " is not within 0 and ",
                                                     c->count()));
    }
    if (r.completed > c->generation) {
      return absl::InvalidArgumentError(
          absl::StrCat("snapshot.components.completed_generation: ", r.completed.value(), " of ",
                       r.component, " was never sent; the newest is ", c->generation.value()));
    }
  }
  for (ComponentId id : session.components) {
    const std::string& name = state.components.at(id).spec.name;
    if (!named.contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("snapshot.components: ", name, " is left out; a snapshot has all of them"));
    }
  }
  return absl::OkStatus();
}

void Machine::Impl::FollowDrop(Component* c, Session* session) {
  if (c->use.has_value() || c->permanent() || c->held >= c->target()) return;
  PushTarget(c->held, c);
  c->reason = Reason::kUnchanged;
  c->target_sent = c->last_reminder = now;
  if (session->phase != SessionPhase::kAttached) return;
  SendDirective& d = directives[session->connection];
  d.connection = session->connection;
  std::erase_if(d.targets, [&](const Target& t) { return t.component == c->spec.name; });
  d.targets.push_back(TargetOf(*c));
}

// What is on the device is admitted, whoever allowed it, and has a target from then on. A permanent
// set that is not all there has yet to be admitted as such.
void Machine::Impl::AdmitByFact(Component* c) {
  if (c->admitted || c->permanent()) return;
  if (!c->fixed_placed && c->held == 0 && !c->use.has_value()) return;
  c->admitted = true;
  if (c->open.empty()) PushTarget(c->use.has_value() ? c->use->granted : c->held, c);
}

// Requires that it is not booked yet.
void Machine::Impl::CountReported(const Residency& r, const Component& c) {
  if (c.use.has_value()) return;
  const LayerTable& layers = c.spec.layers;
  if (r.held > c.held && c.reason == Reason::kLoadAhead) {
    CountUp(Count::What::kLoadedAhead, c, layers.Of(r.held) - layers.Of(c.held));
  }
  if (c.revoked_at.has_value() && r.held <= c.target()) {
    CountUp(Count::What::kReleased, c,
            MinusOrZero(layers.Of(std::min(c.revoked_from, c.count())), layers.Of(r.held)),
            now - *c.revoked_at);
  }
}

// Requires a checked snapshot. An older one than what is booked says nothing.
void Machine::Impl::Book(const Snapshot& snapshot, Session* session) {
  if (snapshot.sequence <= session->sequence) return;
  session->sequence = snapshot.sequence;
  if (snapshot.pool > session->pool) session->trim_sent = absl::InfinitePast();
  session->pool = snapshot.pool;
  pins_changed |= session->pinned_host != snapshot.pinned_host;
  session->pinned_host = snapshot.pinned_host;
  if (snapshot.pool == Bytes()) session->trim_sent = absl::InfinitePast();
  if (session->trim_sent == absl::InfinitePast()) session->trimmed_in_vain = false;
  for (const Residency& r : snapshot.components) {
    Component* c = FindComponent(*session, r.component);
    if (c == nullptr) continue;
    CountReported(r, *c);
    c->held = r.held;
    if (c->held <= c->target()) c->revoked_at.reset();
    c->fixed_placed = r.fixed_placed;
    AdmitByFact(c);
    c->generation = std::max(c->generation, r.completed);
    Complete(r.completed, c);
    // Less than the target that it had reached: the worker has dropped layers by itself, and is not
    // to load them again for that target.
    if (c->completed == c->generation) FollowDrop(c, session);
    if (!c->use.has_value()) NoteHeld(c->held, c);
  }
  if (!session->device.empty()) Stir(&DeviceOf(*session));
}

}  // namespace vrambroker::core
