// Components of a session: added, changed, removed, and their fixed bytes admitted.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

void Machine::Impl::On(const UpdateComponentsEvent& e) {
  Session* session = OpenSession(e.header);
  if (session == nullptr || DealtWith(e.header, session)) return;
  auto refuse = [&](absl::Status status) { Fail(e.header.call, std::move(status)); };
  if (absl::Status s = CheckSnapshot(*session, e.snapshot); !s.ok()) return refuse(std::move(s));
  // What only tells of the host's copy is taken whatever runs or is held.
  const auto of_host_only = [&](const ComponentSpec& spec) {
    const Component* c = FindComponent(*session, spec.name);
    return c != nullptr && c->spec != spec && SameOnDevice(c->spec, spec);
  };
  std::vector<std::string> changed = e.remove;
  for (const ComponentSpec& spec : e.upsert) {
    if (!of_host_only(spec)) changed.push_back(spec.name);
  }
  const size_t upserts = changed.size() - e.remove.size();
  for (const std::string& name : changed) {
    const Component* c = FindComponent(*session, name);
    if (c != nullptr && c->use.has_value()) {
      return refuse(absl::FailedPreconditionError(
          absl::StrCat("component ", name, " is in use; end the use first")));
    }
    for (const auto& [order, w] : state.waiting) {
      if (c != nullptr && w.component == c->id) {
        return refuse(absl::FailedPreconditionError(
            absl::StrCat("component ", name, " has a use that waits; withdraw it first")));
      }
    }
  }
  Book(e.snapshot, session);
  for (const std::string& name : changed) {
    const Component* c = FindComponent(*session, name);
    if (c == nullptr) continue;
    const int may_hold = c->permanent() ? c->held : ChargedLayers(*c);
    if (may_hold > 0 || c->fixed_placed) {
      return refuse(absl::FailedPreconditionError(absl::StrCat(
          "component ", name, " has ", c->fixed_placed ? "its fixed bytes placed, " : "", "holds ",
          c->held, " layers and may hold ", may_hold, "; release all of it and report first")));
    }
  }
  if (static_cast<int>(state.components.size() + upserts) > config.max_components ||
      session->components.size() + upserts > 64 + e.remove.size()) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat("components: at most 64 a session and ", config.max_components, " in all")));
  }
  if (session->device.empty() && !e.upsert.empty()) {
    return refuse(absl::FailedPreconditionError(
        "a driver's session takes no components; attach again with them"));
  }
  for (const std::string& name : e.remove) {
    if (const Component* c = FindComponent(*session, name); c != nullptr) {
      RemoveComponent(c->id, session);
    }
  }
  UpdateAnswer answer;
  for (const ComponentSpec& spec : e.upsert) {
    const bool tells_of_host_only = of_host_only(spec);
    AddComponent(spec, session);
    if (tells_of_host_only) continue;
    Component* c = FindComponent(*session, spec.name);
    const Bytes missing = AdmitFixed(c);
    if (missing > Bytes()) {
      answer.refused.push_back({spec.name, MissingText(*c, missing), missing});
      continue;
    }
    PushTarget(c->permanent() ? c->count() : 0, c);
    c->reason = c->permanent() ? Reason::kPermanent : Reason::kUnchanged;
    answer.targets.push_back(TargetOf(*c));
  }
  pins_changed = true;
  if (!changed.empty()) future_changed = pipelines_changed = true;
  RequestRecord record;
  record.state = RequestRecord::State::kAnswered;
  record.answer = answer;
  Remember(e.header, std::move(record), session);
  Finished(e.header.request_id, session);
  effects.push_back(Answer{e.header.call, std::move(answer)});
}

void Machine::Impl::AddComponent(const ComponentSpec& spec, Session* session) {
  if (Component* c = FindComponent(*session, spec.name); c != nullptr) {
    if (spec.pin_host > c->spec.pin_host) c->may_pin = false;  // less was allowed
    if (SameOnDevice(c->spec, spec)) {
      if (spec.host_tier != c->spec.host_tier) c->estimates.ForgetLinkRate();
      c->spec = spec;
    } else {
      c->open.clear();
      c->spec = spec;
      c->admitted = c->fixed_placed = false;  // of the size that it had
      c->estimates = Estimates();
      c->regret = Regret();
    }
    return;
  }
  Component c;
  c.id = ComponentId(++last_component);
  c.session = session->id;
  c.spec = spec;
  session->components.push_back(c.id);
  state.components.emplace(c.id, std::move(c));
}

void Machine::Impl::RemoveComponent(ComponentId id, Session* session) {
  std::erase(session->components, id);
  state.components.erase(id);
}

Bytes Machine::Impl::AdmitFixed(Component* c) {
  if (c->admitted) return Bytes();
  Bytes more = c->spec.fixed - FixedCharge(*c);
  if (c->permanent()) more += c->spec.layers.All() - LayerCharge(*c);
  const Ledger ledger = DeriveLedger(state, DeviceOf(SessionOf(*c)));
  const bool closed = state.draining || state.recovering;
  if (more > Bytes() && (closed || more > ledger.Free())) {
    return more - std::min(more, ledger.Free()) + (closed ? more : Bytes());
  }
  c->admitted = true;
  return Bytes();
}

std::string Machine::Impl::MissingText(const Component& c, Bytes missing) const {
  const Device& device = state.devices.at(state.sessions.at(c.session).device);
  return absl::StrCat(
      ComponentName(c), " needs ", ToString(c.spec.fixed), " of fixed bytes",
      c.permanent() ? absl::StrCat(" and ", ToString(c.spec.layers.All()), " of permanent layers")
                    : "",
      "; ", ToString(missing), " are missing on ", device.spec.uuid, " (", Holders(device),
      "). It is admitted by a target once there is room.");
}

}  // namespace vrambroker::core
