// Loading ahead: what the plan brings to the device in the slot that runs now, at the pace that the
// link has left. In doubt, late rather than in the way: nothing waits for it, and whoever wants the
// bytes for a use gets them.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {
namespace {

// A pace is said anew only where it differs by more than this share.
constexpr double kPaceTolerance = 0.25;
// After a use that lost more to copies than was planned while something was loaded ahead, the pace
// falls by this; after each other it comes back by as much less again.
constexpr double kSlower = 0.5;
constexpr double kFaster = 1.25;
// More than was planned: by this share and this many seconds.
constexpr double kStallShare = 0.2;
constexpr double kStallSeconds = 0.010;

}  // namespace

// The plan of this step, made again only where something has changed since.
const Machine::Impl::Planned& Machine::Impl::PlanNow(const Device& device) {
  if (!planned.has_value() || planned->device != device.spec.uuid) {
    Problem problem = BuildProblem(device, nullptr);
    Plan plan = MakePlan(problem.plan);
    planned = Planned{device.spec.uuid, std::move(problem), std::move(plan)};
  }
  return *planned;
}

bool Machine::Impl::MayLoadAhead(const Device& device) const {
  if (!config.load_ahead || state.draining) return false;
  for (const auto& [order, w] : state.waiting) {
    if (state.sessions.at(w.session).device == device.spec.uuid) return false;
  }
  return DeriveLedger(state, device).Overcommitted() == Bytes();
}

// Of a component without a declared use, whose layers have come only just: what is merely expected
// of another does not push it out again.
bool Machine::Impl::IsSettling(const Component& c, bool next_is_certain) const {
  return !next_is_certain && c.target() > 0 && now - c.regret.came() < config.minimum_residency;
}

// What the plan gives up anyway makes room for `missing` bytes of its loads, of which `expected`
// are for uses that nobody declared.
void Machine::Impl::MakeRoomAhead(int64_t missing, int64_t expected, const Planned& p,
                                  Device* device) {
  const auto make = [&](int64_t bytes, const std::vector<int>& keep) {
    if (bytes <= 0) return;
    MakeRoom(bytes, p.problem, keep, false, ComponentId(), Reason::kWantedByOthers,
             "room for what is loaded ahead", device);
  };
  make(missing - expected, p.plan.ahead);
  if (missing <= 0 || expected == 0) return;
  std::vector<int> keep = p.plan.ahead;
  for (const auto& [id, index] : p.problem.index) {
    const Component& c = state.components.at(id);
    if (!IsSettling(c, p.problem.next_is_certain[static_cast<size_t>(index)])) continue;
    keep[index] = std::max(keep[index], c.target());
    device->load_at = std::min(device->load_at, c.regret.came() + config.minimum_residency);
  }
  make(missing, keep);
}

// Components that the plan loads, or that load for a plan that no longer wants it; by next use.
std::vector<std::pair<double, ComponentId>> Machine::Impl::LoadsOf(const Planned& p) const {
  std::vector<std::pair<double, ComponentId>> loads;
  for (const auto& [id, index] : p.problem.index) {
    const Component& c = state.components.at(id);
    if (c.use.has_value() || c.permanent() || HasPeers(c)) continue;
    const bool loading = c.target() > c.held;
    const double next = p.problem.next_use[index];
    if (loading || (next >= 0 && p.plan.ahead[index] > c.held)) loads.emplace_back(next, id);
  }
  std::sort(loads.begin(), loads.end());
  return loads;
}

void Machine::Impl::LoadAhead(Device* device) {
  if (!MayLoadAhead(*device)) return;
  if (const Planned& p = PlanNow(*device); LoadsOf(p).empty() && !p.problem.idle) {
    device->load_at = absl::InfiniteFuture();
    return;
  }
  const Planned p = *planned;
  const Basis rests_on(this, *device, p.problem, p.plan);
  const std::vector<std::pair<double, ComponentId>> loads = LoadsOf(p);
  // A use that begins while its next layer is on the way waits for that layer: between two stages
  // nothing is begun.
  const absl::Time quiet_at = device->stirred + config.idle_before_load;
  device->load_at = absl::InfiniteFuture();
  if (p.problem.idle && now < quiet_at) {
    device->load_at = quiet_at;
    return;
  }
  int64_t missing = -DeriveLedger(state, *device).Free().count(), wanted = 0, expected = 0;
  for (const auto& [next, id] : loads) {
    const Component& c = state.components.at(id);
    const LayerTable& layers = c.spec.layers;
    const int64_t ahead = layers.Of(p.plan.ahead[p.problem.index.at(id)]).count();
    wanted += std::max<int64_t>(0, ahead - layers.Of(c.held).count());
    const int64_t more = std::max<int64_t>(0, ahead - LayerCharge(c).count());
    missing += more;
    if (!p.problem.next_is_certain[static_cast<size_t>(p.problem.index.at(id))]) expected += more;
  }
  for (const auto& [next, id] : loads) {
    const int index = p.problem.index.at(id);
    Component& c = state.components.at(id);
    const Bytes charge = LayerCharge(c);
    const int fits = c.spec.layers.Within(charge + DeriveLedger(state, *device).Free());
    const int ahead = std::max(c.held, std::min(p.plan.ahead[index], fits));
    const int64_t bytes = (c.spec.layers.Of(ahead) - c.spec.layers.Of(c.held)).count();
    SetAhead(&c, ahead, next, PaceOf(p, *device, bytes, wanted));
  }
  MakeRoomAhead(missing, expected, p, device);
}

// Bytes a second for `bytes` of the `wanted` that are loaded now. 0: the link's own.
double Machine::Impl::PaceOf(const Planned& p, const Device& device, int64_t bytes,
                             int64_t wanted) const {
  if (p.problem.idle || p.problem.first_slot_seconds <= 0 || wanted == 0) return 0;
  const double left = std::min(device.spec.link_rate,
                               std::max(0.0, p.plan.link_left) / p.problem.first_slot_seconds);
  return std::max(
      1.0, device.ahead_pace * left * static_cast<double>(bytes) / static_cast<double>(wanted));
}

void Machine::Impl::SetAhead(Component* c, int ahead, double next, double pace) {
  const bool repaced = ahead > c->held && std::abs(pace - c->pace) > kPaceTolerance * c->pace;
  if (ahead == c->target() && !repaced) return;
  if (ahead > c->target() && Falling(*c)) return;
  const bool withdrawn = ahead < c->target();
  const Bytes more =
      MinusOrZero(c->spec.layers.Of(ahead), c->spec.layers.Of(std::max(c->held, c->target())));
  PushTarget(ahead, c);
  c->reason = Reason::kLoadAhead;
  c->target_sent = c->last_reminder = now;
  c->pace = ahead > c->held ? pace : 0;
  const std::string when =
      next < 0 ? "no use of it is known to come"
               : absl::StrCat(
                     "next use expected in ",
                     absl::FormatDuration(absl::Milliseconds(static_cast<int64_t>(next * 1000))));
  c->decision =
      Log(DecisionKind::kLoadAhead, c->reason, *c, ahead, more,
          withdrawn
              ? absl::StrCat("load no further than ", ahead, " of ", c->count(), " layers, ",
                             c->held, " held: the link or the room is wanted; ", when)
              : absl::StrCat(
                    "load ahead ", ahead - c->held, " layers to ", ahead, " of ", c->count(),
                    c->pace > 0
                        ? absl::StrCat(" at ", ToString(Bytes(static_cast<int64_t>(c->pace))), "/s")
                        : "",
                    ": ", when));
  SendDirective& d = directives[SessionOf(*c).connection];
  d.connection = SessionOf(*c).connection;
  std::erase_if(d.targets, [&](const Target& t) { return t.component == c->spec.name; });
  d.targets.push_back(TargetOf(*c));
}

// Loads of other processes share the link with a use that streams, and nothing gives that one the
// first place: where it lost more than its plan, they were in the way.
void Machine::Impl::NoteStall(const Component& c, const Measurements& measured) {
  if (measured.warm_up || measured.passes <= 0) return;
  Device& device = DeviceOf(SessionOf(c));
  const RunningUse& use = *c.use;
  const double sigma = Sigma(c, device);
  const double planned_stall =
      sigma *
      ((c.spec.layers.All() - c.spec.layers.Of(std::min(use.held_at_begin, use.granted)))
           .as_double() +
       (measured.passes - 1) * (c.spec.layers.All() - c.spec.layers.Of(use.granted)).as_double());
  const bool in_the_way =
      measured.stall_seconds > planned_stall * (1 + kStallShare) + kStallSeconds;
  bool loading = false;
  for (const auto& [id, other] : state.components) {
    loading |= !other.use.has_value() && other.target() > other.held && other.pace > 0 &&
               SessionOf(other).device == device.spec.uuid;
  }
  device.ahead_pace = in_the_way && loading ? std::max(0.1, device.ahead_pace * kSlower)
                                            : std::min(1.0, device.ahead_pace * kFaster);
}

}  // namespace vrambroker::core
