// Shard groups: the members of one stage that is sharded over devices (tensor or sequence parallel)
// ask separately, and go together. All begin at once with the same layers or none does; what one of
// them cannot keep between uses is worth nothing to the others.
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"
#include "broker/core/sizing.h"

namespace vrambroker::core {

std::vector<uint64_t> Machine::Impl::WaitingOf(const std::string& group) const {
  std::vector<uint64_t> members;
  for (const auto& [order, w] : state.waiting) {
    if (w.spec.group == group) members.push_back(order);
  }
  return members;
}

// Against the members that wait already. Each device has one: two would take room from each other.
absl::Status Machine::Impl::CheckGroup(const UseSpec& use, const Component& c) const {
  if (use.group.empty()) return absl::OkStatus();
  const auto differs = [&](const char* field, int given, int theirs, const Component& other) {
    return absl::FailedPreconditionError(absl::StrCat(
        "shard_group: \"", use.group, "\" is asked for with ", field, " ", given, ", and by ",
        ComponentName(other), " with ", theirs, "; all members of a shard group ask for the same"));
  };
  for (uint64_t order : WaitingOf(use.group)) {
    const WaitingUse& w = state.waiting.at(order);
    const Component& other = state.components.at(w.component);
    if (w.spec.group_size != use.group_size) {
      return differs("size", use.group_size, w.spec.group_size, other);
    }
    if (other.count() != c.count()) return differs("layers", c.count(), other.count(), other);
    if (Fewest(other, w.spec) != Fewest(c, use)) {
      return differs("fewest layers", Fewest(c, use), Fewest(other, w.spec), other);
    }
    if (Most(other, w.spec) != Most(c, use)) {
      return differs("most layers", Most(c, use), Most(other, w.spec), other);
    }
    const std::string& device = state.sessions.at(c.session).device;
    if (state.sessions.at(other.session).device == device) {
      return absl::FailedPreconditionError(
          absl::StrCat("shard_group: ", ComponentName(other), " waits for \"", use.group, "\" on ",
                       device, " already; each member has a device of its own"));
    }
  }
  return absl::OkStatus();
}

bool Machine::Impl::IsComplete(const WaitingUse& w) const {
  return w.spec.group.empty() ||
         static_cast<int>(WaitingOf(w.spec.group).size()) == w.spec.group_size;
}

uint64_t Machine::Impl::PlaceOf(const WaitingUse& w) const {
  return w.spec.group.empty() ? w.order : WaitingOf(w.spec.group).front();
}

// Requires that `lost` waits no more.
void Machine::Impl::FailGroupOf(const WaitingUse& lost, const absl::Status& status) {
  if (lost.spec.group.empty()) return;
  const std::vector<uint64_t> members = WaitingOf(lost.spec.group);
  for (uint64_t order : members) state.waiting.at(order).spec.group.clear();
  const std::string text =
      absl::StrCat("shard group \"", lost.spec.group, "\" has failed, as ",
                   ComponentName(state.components.at(lost.component)), " waits no more (",
                   std::string(status.message()), "); let all its members ask again");
  for (uint64_t order : members) {
    Withdraw(order, absl::IsUnavailable(status) ? status : absl::AbortedError(text));
  }
}

// Requires that all of its group wait. Each member is sized for its own device; the smallest size
// is then everybody's.
bool Machine::Impl::TryAdmitGroup(const WaitingUse& w) {
  const std::vector<uint64_t> members = WaitingOf(w.spec.group);
  std::map<uint64_t, Offer> offers;
  int cap = std::numeric_limits<int>::max();
  // Only a smaller size makes another round.
  for (size_t round = 0; round <= members.size() + 1; ++round) {
    for (uint64_t order : members) {
      WaitingUse& member = state.waiting.at(order);
      const Component& c = state.components.at(member.component);
      if (const auto it = offers.find(order); it != offers.end() && it->second.layers <= cap) {
        continue;
      }
      std::optional<Offer> offer;
      if (c.use.has_value()) {
        member.blocked_by = "another use of the same component";
      } else if (cap < Fewest(c, member.spec)) {
        member.blocked_by = absl::StrCat("its shard group, which could have ", cap, " layers");
      } else {
        offer = Consider(&member, &DeviceOf(SessionOf(c)), LimitOf(member), cap);
      }
      if (!offer.has_value()) {
        const std::string why = absl::StrCat(ComponentName(c), " of its shard group, which waits ",
                                             "for: ", member.blocked_by);
        for (uint64_t other : members) {
          if (other != order) state.waiting.at(other).blocked_by = why;
        }
        return false;
      }
      cap = std::min(cap, offer->layers);
      offers[order] = *std::move(offer);
    }
    const bool agreed = std::all_of(offers.begin(), offers.end(),
                                    [&](const auto& o) { return o.second.layers == cap; });
    if (!agreed) continue;
    NotePeers(members);
    for (uint64_t order : members) Accept(&state.waiting.at(order), offers.at(order));
    return true;
  }
  return false;
}

void Machine::Impl::NotePeers(const std::vector<uint64_t>& members) {
  concerned.reset();
  std::vector<ComponentId> ids;
  ids.reserve(members.size());
  for (uint64_t order : members) ids.push_back(state.waiting.at(order).component);
  for (ComponentId id : ids) {
    Component& c = state.components.at(id);
    c.peers = ids;
    std::erase(c.peers, id);
  }
}

void Machine::Impl::LeavePeers(Component* c) {
  for (ComponentId id : c->peers) {
    const auto it = state.components.find(id);
    if (it != state.components.end()) std::erase(it->second.peers, c->id);
  }
  c->peers.clear();
}

bool Machine::Impl::HasPeers(const Component& c) const {
  return std::any_of(c.peers.begin(), c.peers.end(),
                     [this](ComponentId id) { return state.components.contains(id); });
}

int Machine::Impl::LevelOf(const Component& c, int own) const {
  for (ComponentId id : c.peers) {
    const auto it = state.components.find(id);
    if (it == state.components.end() || it->second.use.has_value()) continue;
    if (state.sessions.at(it->second.session).phase != SessionPhase::kAttached) continue;
    own = std::min(own, it->second.target());
  }
  return own;
}

void Machine::Impl::LevelPeers() {
  for (auto& [id, c] : state.components) {
    if (c.peers.empty() || c.use.has_value() || c.permanent() || !c.admitted) continue;
    if (SessionOf(c).phase != SessionPhase::kAttached) continue;
    const int level = LevelOf(c, c.target());
    if (level >= c.target()) continue;
    Revoke(&c, level, Reason::kWantedByOthers, false,
           absl::StrCat("another member of its shard group keeps ", level));
  }
}

}  // namespace vrambroker::core
