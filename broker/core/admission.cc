// Admission: who of those that wait may begin, with how many layers, and what is asked of others
// for it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/core/machine_impl.h"
#include "broker/core/sizing.h"

namespace vrambroker::core {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr int kMaxLayersOfAll = std::numeric_limits<int>::max();

}  // namespace

// The oldest running use that can end only after `w`, by its place in the queue; 0 where none.
uint64_t Machine::Impl::HolderOrder(const WaitingUse& w) const {
  uint64_t oldest = 0;
  if (w.spec.held_uses.empty()) return oldest;
  for (const auto& [id, c] : state.components) {
    const std::vector<UseId>& held = w.spec.held_uses;
    if (!c.use.has_value() || std::find(held.begin(), held.end(), c.use->id) == held.end())
      continue;
    if (oldest == 0 || c.use->order < oldest) oldest = c.use->order;
  }
  return oldest;
}

// Those that have waited past max_wait by age, and with them those that a running use waits for, by
// the age of that; then by priority; then by age. A group has the place of its oldest member on
// every device; while members of it are missing, it has none.
std::vector<uint64_t> Machine::Impl::QueueOrder(const Device& device) const {
  std::vector<std::tuple<bool, int, uint64_t, uint64_t>> keys;
  for (const auto& [order, w] : state.waiting) {
    if (state.sessions.at(w.session).device != device.spec.uuid || !IsComplete(w)) continue;
    const uint64_t holder = HolderOrder(w);
    const uint64_t place = PlaceOf(w);
    const WaitingUse& first = state.waiting.at(place);
    const bool aged = now - first.arrived >= config.max_wait || holder != 0;
    keys.emplace_back(!aged, aged ? 0 : -first.spec.priority, holder != 0 ? holder : place, order);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<uint64_t> orders;
  orders.reserve(keys.size());
  for (const auto& key : keys) orders.push_back(std::get<3>(key));
  return orders;
}

// Each round admits one use or ends. At most as many rounds as uses wait.
void Machine::Impl::AdmitWaiting(Device* device) {
  RefuseInfeasible(*device);
  if (state.recovering) {
    for (auto& [order, w] : state.waiting) w.blocked_by = RecoveryText();
    return;
  }
  for (auto& [order, w] : state.waiting) {
    if (IsComplete(w)) continue;
    w.blocked_by = absl::StrCat("members of its shard group that have not asked: ",
                                WaitingOf(w.spec.group).size(), " of ", w.spec.group_size, " have");
  }
  for (bool admitted = true; admitted;) {
    admitted = false;
    const WaitingUse* oldest = nullptr;
    std::set<ComponentId> taken;
    for (uint64_t order : QueueOrder(*device)) {
      WaitingUse& w = state.waiting.at(order);
      const bool in_use = state.components.at(w.component).use.has_value();
      // What an older running use waits for, the oldest waits for too.
      const uint64_t holder = HolderOrder(w);
      const bool first =
          oldest == nullptr ||
          (holder != 0 && (holder < oldest->order || WaitsForHeldUses(*oldest, *device)));
      if (in_use || !taken.insert(w.component).second) {
        w.blocked_by = "another use of the same component";
      } else if (!first && w.spec.held_uses.empty() && MustComeToRest(*device)) {
        w.blocked_by = "a reading of the dead, which needs all uses to have ended";
      } else if (w.spec.group.empty()
                     ? TryAdmit(&w, device, first ? kNoLimit : LimitBeside(*oldest, *device))
                     : TryAdmitGroup(w)) {
        admitted = true;
        break;
      }
      taken.insert(w.component);
      if (oldest == nullptr) oldest = &w;
    }
  }
}

// Whether it cannot begin before some running uses have ended that end only after what they wait
// for has begun: that goes first then, however young.
bool Machine::Impl::WaitsForHeldUses(const WaitingUse& oldest, const Device& device) const {
  std::set<UseId> held;
  for (const auto& [order, w] : state.waiting) {
    held.insert(w.spec.held_uses.begin(), w.spec.held_uses.end());
  }
  int64_t room = Ceiling(device).count();
  for (const auto& [id, c] : state.components) {
    if (!c.use.has_value() || !held.contains(c.use->id)) continue;
    if (state.sessions.at(c.session).device != device.spec.uuid) continue;
    room -= ((c.permanent() ? Bytes() : LayerCharge(c)) + NeedsCharge(c)).count();
  }
  return FewestBytes(state.components.at(oldest.component), oldest.spec).count() > room;
}

int64_t Machine::Impl::LimitOf(const WaitingUse& w) const {
  const Device& device = state.devices.at(state.sessions.at(w.session).device);
  const uint64_t first = QueueOrder(device).front();
  return first == w.order ? kNoLimit : LimitBeside(state.waiting.at(first), device);
}

// What a younger use may be charged so that `oldest` still fits beside it, once all that is older
// has ended. External bytes count where it fits beside them; where it does not, it waits for them
// alone, and they are among what has to end.
int64_t Machine::Impl::LimitBeside(const WaitingUse& oldest, const Device& device) const {
  const Ledger ledger = DeriveLedger(state, device);
  const int64_t external = MinusOrZero(ledger.external, ComingResidual(device)).count();
  int64_t limit = Ceiling(device).count() -
                  FewestBytes(state.components.at(oldest.component), oldest.spec).count();
  if (limit >= external) limit -= external;
  for (const auto& [id, c] : state.components) {
    if (!c.use.has_value() || id == oldest.component || c.use->order < oldest.order) continue;
    if (state.sessions.at(c.session).device != device.spec.uuid) continue;
    limit -= ((c.permanent() ? Bytes() : LayerCharge(c)) + NeedsCharge(c)).count();
  }
  return limit;
}

// Bytes above the target of a component, as long as its deadline has not passed: who is late is
// not counted on.
Bytes Machine::Impl::ComingOf(const Component& c) const {
  if (c.use.has_value() || c.permanent()) return Bytes();
  if (now - c.target_sent >= config.release_deadline) return Bytes();
  return MinusOrZero(LayerCharge(c), c.spec.layers.Of(c.target()));
}

// A pool that was told to go, and may yet.
Bytes Machine::Impl::PoolComing(const Session& session) const {
  if (session.trimmed_in_vain) return Bytes();
  return now - session.trim_sent < config.release_deadline ? session.pool : Bytes();
}

// Bytes that others are giving back already: above targets, pools told to trim, the dead, and what
// the driver has not shown as free yet.
int64_t Machine::Impl::AlreadyComing(const Device& device, ComponentId except) const {
  Bytes coming = ComingResidual(device);
  for (const auto& [id, s] : state.sessions) {
    if (s.device != device.spec.uuid) continue;
    const bool gone = s.phase == SessionPhase::kGone && now - s.gone_at < config.settling_time;
    if (gone) coming += SessionCharge(state, s);
    if (s.phase != SessionPhase::kAttached) continue;
    coming += PoolComing(s);
    for (ComponentId cid : s.components) {
      if (cid != except) coming += ComingOf(state.components.at(cid));
    }
  }
  return coming.count();
}

// What the others could give up for a use, besides what is coming already.
Machine::Impl::Obtainable Machine::Impl::WhatCanBeHad(const Component& c, const Problem& problem,
                                                      const Plan& plan,
                                                      const Device& device) const {
  Obtainable o;
  o.free = DeriveLedger(state, device).Free().count();
  // What it gives back itself is in the size of its grant.
  o.coming = AlreadyComing(device, c.id);
  for (const auto& [id, s] : state.sessions) {
    if (s.device != device.spec.uuid || s.phase != SessionPhase::kAttached) continue;
    const bool not_asked = s.trim_sent == absl::InfinitePast();
    if (not_asked) o.coming += s.pool.count();
    for (ComponentId cid : s.components) {
      const Component& other = state.components.at(cid);
      if (cid == c.id || other.use.has_value() || other.permanent()) continue;
      const Bytes target = other.spec.layers.Of(other.target());
      const auto it = problem.index.find(cid);
      const int keep = it == problem.index.end() ? other.target() : plan.keep[it->second];
      o.by_plan += MinusOrZero(target, other.spec.layers.Of(keep)).count();
      o.at_most += target.count();
    }
  }
  return o;
}

// The size that the plan gives the use, or what it can have of that for now; unset: it waits, and
// what it waits for was asked of those who have it. `limit`: the most that it may be charged in
// all, so that an older one that waits still fits beside it. `cap`: the most layers that its group
// can have.
std::optional<Machine::Impl::Offer> Machine::Impl::Consider(WaitingUse* w, Device* device,
                                                            int64_t limit, int cap) {
  const Component& c = state.components.at(w->component);
  const Ledger ledger = DeriveLedger(state, *device);
  if (ledger.Overcommitted() > Bytes()) {
    w->blocked_by = absl::StrCat("the card is overcommitted by ", ToString(ledger.Overcommitted()));
    return std::nullopt;
  }
  const Sizing sizing(c, w->spec);
  const int64_t free = ledger.Free().count();
  const bool capped = cap < Most(c, w->spec);
  const int most = std::min(cap, Most(c, w->spec));
  const int fewest = Fewest(c, w->spec);
  auto grantable = [&](int layers) {
    return layers >= sizing.charged() && sizing.Raise(layers) <= free &&
           sizing.Total(layers) <= limit && (!Falling(c) || layers <= c.target());
  };
  if (c.permanent() && grantable(most)) {
    return Offer{most, Reason::kPermanent, std::nullopt};
  }
  planned.reset();
  Problem problem = BuildProblem(*device, w);
  // Fits whole, moves nobody, and nothing else is known to come that it could be in the way of.
  if (most == c.count() && grantable(most) && problem.plan.uses.size() <= 1) {
    return Offer{most, Reason::kFitsWhole, std::nullopt};
  }
  Plan plan = MakePlan(problem.plan);
  const Basis rests_on(this, *device, problem, plan);
  int wanted = fewest;
  if (!c.permanent() && problem.deciding >= 0) {
    wanted = std::clamp(plan.resident[problem.deciding], fewest, most);
  }
  while (wanted > fewest && sizing.Total(wanted) > limit) --wanted;
  if (sizing.Total(wanted) > limit) {
    w->blocked_by = "an older use that would not fit beside it";
    return std::nullopt;
  }
  const Obtainable room = WhatCanBeHad(c, problem, plan, *device);
  bool beyond_plan = false;
  int layers = sizing.MostWithin(room.free + room.coming + room.by_plan, fewest, wanted);
  const int alone =
      sizing.MostWithin(std::min(limit, room.free + room.coming + room.at_most), wanted, most);
  if (!capped && alone > std::max(layers, wanted) &&
      BetterAlone(*w, c, std::max(layers, fewest), alone)) {
    beyond_plan = true;
    layers = wanted = alone;
  }
  if (layers < 0) {
    // Needs go before what the plan would keep. All layers without a window may be the least.
    beyond_plan = true;
    const int64_t bytes = room.free + room.coming + room.at_most;
    layers = sizing.MostWithin(bytes, fewest, fewest);
    const bool all = most == c.count() && sizing.Total(most) <= limit;
    if (layers < 0 && all && sizing.Raise(most) <= bytes) layers = most;
  }
  if (layers < 0) {
    w->blocked_by = absl::StrCat(
        "uses that run: ", ToString(ledger.in_use), " in use, ", ToString(ledger.external),
        " external, ", ToString(ledger.draining), " draining, ", ToString(ledger.Free()), " free");
    return std::nullopt;
  }
  // What is charged anyway may as well be used, unless it is held and the plan has it for others.
  const bool for_others = wanted < sizing.charged() && c.held > wanted;
  if (layers < sizing.charged() && !for_others && sizing.charged() <= most &&
      grantable(sizing.charged())) {
    layers = sizing.charged();
  }
  if (!capped && WaitsForAnEnd(w, c, layers, limit, room.free + room.coming + room.by_plan)) {
    return std::nullopt;
  }
  if (grantable(layers)) {
    const Reason reason = c.permanent()         ? Reason::kPermanent
                          : layers == c.count() ? Reason::kFitsWhole
                                                : Reason::kPlanned;
    return Offer{layers, reason, Planned{device->spec.uuid, std::move(problem), std::move(plan)}};
  }
  if (c.target() > layers) {
    Revoke(&state.components.at(c.id), layers, Reason::kWantedByOthers, false,
           "its next use gets fewer layers than it holds");
  }
  MakeRoom(sizing.Raise(layers) - free, problem, plan.keep, beyond_plan, c.id,
           Reason::kWantedByOthers, absl::StrCat("room for ", ComponentName(c)), device);
  const int at_once = sizing.MostWithin(free, std::max(fewest, sizing.charged()), layers);
  const double sigma = problem.plan.components[problem.index.at(c.id)].sigma;
  if (at_once >= 0 && grantable(at_once) && GrowWaitIsOver(w, c, sigma, layers, at_once)) {
    return Offer{at_once, Reason::kGrowWaitEnded,
                 Planned{device->spec.uuid, std::move(problem), std::move(plan)}};
  }
  if (Falling(c) && layers > c.target()) {
    w->blocked_by = absl::StrCat("its own release to ", c.target(), " layers is not reported yet");
    return std::nullopt;
  }
  w->blocked_by = absl::StrCat(
      "bytes on their way: ", ToString(Bytes(std::max<int64_t>(0, sizing.Raise(layers) - free))),
      " missing, ", ToString(ledger.draining), " draining, ", ToString(ledger.pooled), " pooled");
  return std::nullopt;
}

bool Machine::Impl::TryAdmit(WaitingUse* w, Device* device, int64_t limit) {
  const std::optional<Offer> offer = Consider(w, device, limit, kMaxLayersOfAll);
  if (offer.has_value()) Accept(w, *offer);
  return offer.has_value();
}

void Machine::Impl::Accept(WaitingUse* w, const Offer& offer) {
  if (!offer.planned.has_value()) return Grant(w, offer.layers, offer.reason);
  const Planned& p = *offer.planned;
  {
    const Basis rests_on(this, state.devices.at(p.device), p.problem, p.plan);
    Grant(w, offer.layers, offer.reason);
  }
  // Near enough to what would be planned with it begun: what is free bounds what is loaded ahead.
  planned = p;
}

void Machine::Impl::Grant(WaitingUse* w, int layers, Reason reason) {
  Component& c = state.components.at(w->component);
  Session& session = state.sessions.at(w->session);
  const Sizing sizing(c, w->spec);
  RunningUse use;
  use.id = UseId(++last_use);
  use.request_id = w->request_id;
  use.spec = w->spec;
  use.granted = layers;
  use.window = sizing.window(layers);
  use.activation = w->spec.activation;
  use.ask = w->ask;
  use.began = now;
  use.order = w->order;
  const int held = c.held;
  use.held_at_begin = held;
  const Bytes there = c.spec.layers.Of(std::min(held, layers));
  const double saved = c.permanent() ? 0 : Sigma(c, DeviceOf(session)) * there.as_double();
  c.revoked_at.reset();
  PushTarget(layers, &c);
  use.generation = c.generation;
  c.use = use;
  c.reason = reason;
  c.pace = 0;
  c.target_sent = c.last_reminder = now;
  NoteHeld(layers, &c);
  if (w->spec.group.empty()) LeavePeers(&c);
  VRAM_CHECK(DeriveLedger(state, DeviceOf(session)).Overcommitted() == Bytes());

  c.decision = Log(DecisionKind::kGrant, reason, c, layers, c.spec.layers.Of(layers),
                   absl::StrCat("granted ", layers, " of ", c.count(), " layers (",
                                ToString(c.spec.layers.Of(layers)), "), ", held, " held, ",
                                ToString(use.window), " window, ", ToString(use.activation),
                                " activation, after ", absl::FormatDuration(now - w->arrived)));
  CountUp(Count::What::kUseBegan, c, there, now - w->arrived, absl::Seconds(saved));
  BeginAnswer answer{use.id, layers,     use.generation, c.decision,
                     reason, use.window, use.activation, now - w->arrived};
  RequestRecord& record = session.requests[w->request_id];
  record.state = RequestRecord::State::kAnswered;
  record.live = true;
  record.answer = answer;
  effects.push_back(Answer{w->call, answer});
  state.waiting_calls.erase(w->call);
  state.waiting.erase(w->order);
}

}  // namespace vrambroker::core
