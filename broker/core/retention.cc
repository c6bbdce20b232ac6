// Retention: what stays when a use ends, what is asked back of those without a use, what is loaded
// ahead.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

// Requires a use that has ended and is booked. Clears it; the answer is the component's new target.
Target Machine::Impl::DecideAtEnd(Component* c, std::optional<absl::Duration>* next_use) {
  Device& device = DeviceOf(SessionOf(*c));
  const Generation settled = c->use->generation;
  c->use.reset();
  device.stirred = now;
  c->last_used = ++last_used;
  c->pace = 0;
  c->target_sent = c->last_reminder = now;
  planned.reset();
  const Planned& p = PlanNow(device);
  const Basis rests_on(this, device, p.problem, p.plan);
  const int index = p.problem.index.at(c->id);
  const double next = p.problem.next_use[index];
  if (next >= 0) *next_use = absl::Seconds(next);
  if (c->permanent()) {
    PushTarget(c->count(), c);
    c->reason = Reason::kPermanent;
    return TargetOf(*c);
  }

  const int held = c->held;
  // Its next use waits already: what others need of it they ask back.
  const bool wanted = std::any_of(state.waiting.begin(), state.waiting.end(),
                                  [&](const auto& w) { return w.second.component == c->id; });
  const int planned_keep = wanted ? held : std::min(held, p.plan.keep[index]);
  const int keep = state.draining ? 0 : LevelOf(*c, planned_keep);
  const bool recency = KeptByRecency(*c, device);
  if (state.draining || (next < 0 && !recency)) {
    c->reason = Reason::kNoNextUse;
  } else if (keep == 0 && held > 0) {
    c->reason = Reason::kWantedByOthers;
  } else {
    c->reason = next >= 0 ? Reason::kKeptForNextUse : Reason::kKeptByRecency;
  }
  PushTarget(keep, c, settled);
  std::string why =
      next >= 0 ? absl::StrCat(
                      "next use expected in ",
                      absl::FormatDuration(absl::Milliseconds(static_cast<int64_t>(next * 1000))))
      : !recency         ? "no use of it is known to come"
      : c->ever_declared ? "run after run came for it"
                         : "nothing is known of its next use";
  c->decision = Log(
      DecisionKind::kRetention, c->reason, *c, keep, c->spec.layers.Of(keep),
      absl::StrCat("kept ", keep, " of ", held, " held layers (", ToString(c->spec.layers.Of(keep)),
                   " of ", ToString(c->spec.layers.Of(held)), "): ", why, "; ",
                   ToString(DeriveLedger(state, device).Free()), " free beside it"));
  return TargetOf(*c);
}

void Machine::Impl::Revoke(Component* c, int layers, Reason reason, bool trim,
                           const std::string& why) {
  planned.reset();
  const int before = c->target();
  const Bytes asked =
      MinusOrZero(c->spec.layers.Of(std::min(before, c->held)), c->spec.layers.Of(layers));
  if (asked > Bytes() && !c->revoked_at.has_value()) {
    c->revoked_at = now;
    c->revoked_from = c->held;
  }
  PushTarget(layers, c);
  c->reason = reason;
  c->pace = 0;
  c->target_sent = c->last_reminder = now;
  c->decision = Log(DecisionKind::kRevocation, reason, *c, layers, asked,
                    absl::StrCat("asked back ", std::max(0, before - layers), " layers, ", layers,
                                 " of ", c->held, " held may stay: ", why));
  Session& session = SessionOf(*c);
  SendDirective& d = directives[session.connection];
  d.connection = session.connection;
  std::erase_if(d.targets, [&](const Target& t) { return t.component == c->spec.name; });
  d.targets.push_back(TargetOf(*c));
  if (trim) {
    d.trim_pool = true;
    session.trim_sent = now;
  }
}

void Machine::Impl::TrimPools(int64_t* bytes, Device* device) {
  for (auto& [id, s] : state.sessions) {
    if (*bytes <= 0) return;
    if (s.device != device->spec.uuid || s.phase != SessionPhase::kAttached) continue;
    if (s.pool == Bytes() || now - s.trim_sent < config.release_deadline) continue;
    s.trimmed_in_vain = s.trim_sent > absl::InfinitePast();
    s.trim_sent = now;
    SendDirective& d = directives[s.connection];
    d.connection = s.connection;
    d.trim_pool = true;
    *bytes -= PoolComing(s).count();
  }
}

// Asks for `bytes` beyond what is coming already: pools first (they hold nothing), then what the
// plan gives up, then, where `beyond_plan`, the rest in the order of least worth.
void Machine::Impl::MakeRoom(int64_t bytes, const Problem& problem, const std::vector<int>& keep,
                             bool beyond_plan, ComponentId except, Reason reason,
                             const std::string& why, Device* device) {
  bytes -= AlreadyComing(*device, except);
  TrimPools(&bytes, device);
  // Who is late with what it was asked for comes last.
  std::vector<std::tuple<bool, double, uint64_t, ComponentId>> order;
  for (const auto& [id, index] : problem.index) {
    const Component& c = state.components.at(id);
    if (id == except || c.use.has_value() || c.permanent() || c.target() == 0) continue;
    const bool has_next = problem.next_use[index] >= 0;
    const bool late = ChargedLayers(c) > c.target() && ComingOf(c) == Bytes();
    order.emplace_back(late, has_next ? problem.plan.components[index].sigma : -1, c.last_used, id);
  }
  std::sort(order.begin(), order.end());
  for (bool all : {false, true}) {
    if (all && !beyond_plan) return;
    for (const auto& [late, worth, used, id] : order) {
      if (bytes <= 0) return;
      Component& c = state.components.at(id);
      const LayerTable& layers = c.spec.layers;
      const int64_t have = layers.Of(c.target()).count();
      const int enough = layers.Within(Bytes(std::max<int64_t>(0, have - bytes)));
      const int target = std::max(all ? 0 : keep[problem.index.at(id)], enough);
      if (target >= c.target()) continue;
      bytes -= have - layers.Of(target).count();
      Revoke(&c, target, reason, true, why);
    }
  }
}

// Only a reading, or what an attaching worker holds, brings this about. Every retained byte that
// helps goes.
void Machine::Impl::RelieveOvercommitment(Device* device) {
  const Bytes over = SurelyOvercommitted(*device, DeriveLedger(state, *device));
  if (over == Bytes()) return;
  const Problem problem = BuildProblem(*device, nullptr);
  const std::vector<int> keep(problem.components.size(), 0);
  MakeRoom(over.count(), problem, keep, true, ComponentId(), Reason::kOvercommitted,
           absl::StrCat("the card holds ", ToString(over), " more than it should"), device);
}

// What was kept for uses that no longer come goes.
void Machine::Impl::ReleaseWithoutFuture(Device* device) {
  const Problem problem = BuildProblem(*device, nullptr);
  for (const auto& [id, index] : problem.index) {
    Component& c = state.components.at(id);
    if (c.use.has_value() || c.permanent() || c.target() == 0) continue;
    if (problem.next_use[index] >= 0 || KeptByRecency(c, *device)) continue;
    Revoke(&c, 0, Reason::kNoNextUse, false, "no use of it is known to come");
  }
}

// Components whose fixed bytes were refused at attach, in order of their arrival.
void Machine::Impl::AdmitRefused(Device* device) {
  for (auto& [id, c] : state.components) {
    if (c.admitted) continue;
    Session& s = SessionOf(c);
    if (s.device != device->spec.uuid || s.phase != SessionPhase::kAttached) continue;
    const Bytes missing = AdmitFixed(&c);
    if (missing > Bytes()) {
      if (state.draining) continue;
      const Problem problem = BuildProblem(*device, nullptr);
      Bytes retained;
      for (const auto& [other, index] : problem.index) {
        const Component& o = state.components.at(other);
        if (!o.use.has_value() && !o.permanent()) retained += o.spec.layers.Of(o.target());
      }
      for (const auto& [session, other] : state.sessions) {
        if (other.device == device->spec.uuid) retained += other.pool - PoolComing(other);
      }
      const int64_t coming = AlreadyComing(*device, ComponentId());
      if (retained.count() + coming < missing.count()) continue;  // no use
      const std::vector<int> keep(problem.components.size(), 0);
      MakeRoom(missing.count(), problem, keep, true, ComponentId(), Reason::kWantedByOthers,
               absl::StrCat("room for the fixed bytes of ", ComponentName(c)), device);
      continue;
    }
    PushTarget(c.permanent() ? c.count() : c.held, &c);
    c.reason = c.permanent() ? Reason::kPermanent : Reason::kUnchanged;
    SendDirective& d = directives[s.connection];
    d.connection = s.connection;
    d.targets.push_back(TargetOf(c));
  }
}

// A revocation past its deadline is said again, in the same words.
void Machine::Impl::Remind(Device* device) {
  for (auto& [id, c] : state.components) {
    if (c.use.has_value() || c.held <= c.target()) continue;
    if (now - c.last_reminder < config.release_deadline) continue;
    Session& s = SessionOf(c);
    if (s.device != device->spec.uuid || s.phase != SessionPhase::kAttached) continue;
    if (c.last_reminder == c.target_sent) {
      CountUp(Count::What::kOverdue, c, c.spec.layers.Of(c.held) - c.spec.layers.Of(c.target()));
    }
    c.last_reminder = now;
    SendDirective& d = directives[s.connection];
    d.connection = s.connection;
    d.targets.push_back(TargetOf(c));
  }
}

}  // namespace vrambroker::core
