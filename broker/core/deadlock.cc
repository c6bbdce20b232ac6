// Deadlock by nested uses: a run holds uses while it waits for another. A wait is refused when
// reduction fails: end every use that no wait holds up, give back its bytes, admit what fits,
// repeat. What is left is the cycle.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

std::string Machine::Impl::FindDeadlock(const WaitingUse& w) const {
  std::set<uint64_t> unresolved;
  bool nested = false;
  for (const auto& [order, other] : state.waiting) {
    unresolved.insert(order);
    nested |= !other.spec.held_uses.empty();
  }
  if (!nested) return "";
  const Device& mine = state.devices.at(state.sessions.at(w.session).device);
  const Component& asked = state.components.at(w.component);
  if (FewestBytes(asked, w.spec) > Ceiling(mine)) return "";  // it is refused as such

  std::map<std::string, int64_t> available;  // by device, retained bytes counted: they can be had
  for (const auto& [uuid, device] : state.devices) available[uuid] = Ceiling(device).count();
  std::map<UseId, const Component*> running;
  auto bytes = [](const Component& c) {
    return (NeedsCharge(c) + (c.permanent() ? Bytes() : LayerCharge(c))).count();
  };
  auto device = [&](const Component& c) -> const std::string& {
    return state.sessions.at(c.session).device;
  };
  for (const auto& [id, c] : state.components) {
    if (!c.use.has_value()) continue;
    running[c.use->id] = &c;
    available[device(c)] -= bytes(c);
  }
  // Each round ends a use or admits one, so there are at most as many rounds as both together.
  for (bool progress = true; progress;) {
    progress = false;
    std::set<UseId> held;
    for (uint64_t order : unresolved) {
      for (UseId id : state.waiting.at(order).spec.held_uses) held.insert(id);
    }
    for (auto it = running.begin(); it != running.end();) {
      if (held.contains(it->first)) {
        ++it;
        continue;
      }
      available[device(*it->second)] += bytes(*it->second);
      it = running.erase(it);
      progress = true;
    }
    for (auto it = unresolved.begin(); it != unresolved.end();) {
      const WaitingUse& other = state.waiting.at(*it);
      // Members of a group begin together, those that have not asked yet among them.
      bool fits = true;
      for (uint64_t order : other.spec.group.empty() ? std::vector<uint64_t>{other.order}
                                                     : WaitingOf(other.spec.group)) {
        const WaitingUse& member = state.waiting.at(order);
        const Component& c = state.components.at(member.component);
        const bool free = !c.use.has_value() || !running.contains(c.use->id);
        fits &= free && FewestBytes(c, member.spec).count() <= available[device(c)];
      }
      if (fits) {
        it = unresolved.erase(it);
        progress = true;
      } else {
        ++it;
      }
    }
  }
  if (!unresolved.contains(w.order) || running.empty()) return "";
  std::vector<std::string> names;
  for (const auto& [id, c] : running) {
    names.push_back(absl::StrCat("use ", id.value(), " of ", ComponentName(*c)));
    if (names.size() >= 16) break;
  }
  return absl::StrJoin(names, ", ");
}

bool Machine::Impl::RefuseDeadlock(uint64_t order) {
  const std::string cycle = FindDeadlock(state.waiting.at(order));
  if (cycle.empty()) return false;
  Withdraw(order, absl::AbortedError(absl::StrCat(
                      "waiting would deadlock with ", cycle,
                      ": each waits for what another holds; end one of these uses first")));
  return true;
}

void Machine::Impl::RefuseDeadlocks() {
  std::vector<uint64_t> youngest_first;
  for (const auto& [order, w] : state.waiting) youngest_first.push_back(order);
  std::reverse(youngest_first.begin(), youngest_first.end());
  for (uint64_t order : youngest_first) {
    if (state.waiting.contains(order)) RefuseDeadlock(order);
  }
}

void Machine::Impl::UseNewestIds(UseSpec* spec) const {
  if (spec->held_uses.empty()) return;
  for (const auto& [id, c] : state.components) {
    if (!c.use.has_value()) continue;
    for (UseId former : c.use->formerly) {
      std::replace(spec->held_uses.begin(), spec->held_uses.end(), former, c.use->id);
    }
  }
}

}  // namespace vrambroker::core
