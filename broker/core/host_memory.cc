// Host memory that workers pin. Pinned pages cannot be reclaimed, so that together they stay within
// budgets: of each domain (whose limit the workers of one container share), and of the machine.
//
// A worker is allowed to pin whole components, in the order of attaching, as far as the budgets
// reach; one that does not fit is passed over. What is allowed stays allowed while the worker
// lives, and is charged whether or not it is pinned yet; what is pinned without being allowed is a
// fact that is charged as well. Both end with the process: its memory goes with it, and no driver
// has to show that. Nothing here bears on device memory.
#include <algorithm>
#include <limits>
#include <utility>

#include "broker/core/machine_impl.h"

namespace vrambroker::core {
namespace {

// What no budget bounds.
constexpr Bytes kAnyBytes{std::numeric_limits<int64_t>::max()};

bool Fits(const HostPool& pool, Bytes more) {
  return !pool.budget.has_value() ||
         (pool.charged <= *pool.budget && more <= *pool.budget - pool.charged);
}

std::optional<Bytes> BudgetOf(const Config& config, const std::string& domain, Bytes limit) {
  if (config.host_pin_fraction <= 0) return Bytes();
  if (domain.empty() && config.host_pin_budget > Bytes()) return config.host_pin_budget;
  if (limit == Bytes()) return std::nullopt;
  return Bytes(static_cast<int64_t>(config.host_pin_fraction * limit.as_double()));
}

}  // namespace

Bytes Machine::Impl::PinWish(const Session& session) const {
  Bytes wish;
  for (ComponentId id : session.components) wish += state.components.at(id).spec.pin_host;
  return wish;
}

Bytes Machine::Impl::PinAllowance(const Session& session) const {
  Bytes allowed;
  for (ComponentId id : session.components) {
    const Component& c = state.components.at(id);
    if (c.may_pin) allowed += c.spec.pin_host;
  }
  return allowed;
}

Bytes Machine::Impl::PinCharge(const Session& session) const {
  return std::max(PinAllowance(session), session.pinned_host);
}

HostPools Machine::Impl::HostMemoryNow() const {
  HostPools pools;
  pools[""].limit = config.host_memory;
  for (const auto& [id, s] : state.sessions) {
    if (s.phase == SessionPhase::kGone || s.device.empty()) continue;
    HostPool& own = pools[s.host.domain];
    const bool said = s.host.limit > Bytes();
    if (said && (!s.host.domain.empty() || config.host_memory == Bytes())) {
      own.limit = own.limit == Bytes() ? s.host.limit : std::min(own.limit, s.host.limit);
    }
    HostPool& machine = pools.at("");
    for (HostPool* pool : {&own, s.host.domain.empty() ? nullptr : &machine}) {
      if (pool == nullptr) continue;
      pool->pinned += s.pinned_host;
      pool->allowed += PinAllowance(s);
      pool->wished += PinWish(s);
      pool->charged += PinCharge(s);
    }
  }
  for (auto& [domain, pool] : pools) pool.budget = BudgetOf(config, domain, pool.limit);
  return pools;
}

// At the end of each step. During a recovery, and for its whole window from the start on, nobody is
// allowed more: what those have pinned who have not attached again is not known, and who holds
// nothing on a device is on no record.
void Machine::Impl::AllowPins() {
  if (!std::exchange(pins_changed, false)) return;
  const bool open = !state.recovering && now >= state.pins_open_at;
  if (open) AllowMorePins();
  for (auto& [id, s] : state.sessions) {
    if (s.phase != SessionPhase::kAttached || s.device.empty()) continue;
    const Bytes allowance = PinAllowance(s);
    const bool wishes = PinWish(s) > Bytes();
    pins_changed |= wishes && !open;  // looked at again then
    const bool told = s.pin_told.has_value();
    if (told ? allowance == *s.pin_told : !wishes) continue;
    s.pin_told = allowance;
    SendDirective& directive = directives[s.connection];
    directive.connection = s.connection;
    directive.pin_allowance = allowance;
  }
}

void Machine::Impl::AllowMorePins() {
  HostPools pools = HostMemoryNow();
  HostPool& machine = pools.at("");
  for (auto& [id, s] : state.sessions) {
    if (s.phase != SessionPhase::kAttached || s.device.empty()) continue;
    HostPool& own = pools.at(s.host.domain);
    for (ComponentId component : s.components) {
      Component& c = state.components.at(component);
      if (c.may_pin || c.spec.pin_host == Bytes()) continue;
      const Bytes before = PinCharge(s);
      c.may_pin = true;
      const Bytes more = PinCharge(s) - before;
      if (!Fits(own, more) || !Fits(machine, more)) {
        c.may_pin = false;
        continue;
      }
      own.charged += more;
      if (&own != &machine) machine.charged += more;
      s.pin_budget = own.budget.value_or(kAnyBytes);
      s.machine_pin_budget = machine.budget.value_or(kAnyBytes);
    }
  }
}

// Allowances stay within the budgets that there were when one of them last rose: limits that
// workers name may fall since, and nothing is taken back.
void Machine::Impl::CheckPins() const {
  const HostPools pools = HostMemoryNow();
  std::map<std::string, Bytes> most;
  for (const auto& [id, s] : state.sessions) {
    if (s.phase == SessionPhase::kGone || s.device.empty()) continue;
    const Bytes allowed = PinAllowance(s);
    VRAM_CHECK(s.phase != SessionPhase::kAttached || s.pin_told.value_or(Bytes()) == allowed);
    if (allowed == Bytes()) continue;
    most[s.host.domain] = std::max(most[s.host.domain], s.pin_budget);
    most[""] = std::max(most[""], s.machine_pin_budget);
  }
  for (const auto& [domain, pool] : pools) VRAM_CHECK(pool.allowed <= most[domain]);
}

}  // namespace vrambroker::core
