// Shard groups: all members begin together and with the same layers, or none does; and between uses
// none keeps what another cannot.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/checks.h"

namespace vrambroker::simulation {

void Checks::NoteGroups() {
  groups_.clear();
  for (const auto& [call, waiting] : waiting_) {
    if (waiting.spec.group.empty()) continue;
    const auto [it, fresh] = groups_.insert({waiting.spec.group, {waiting, {}}});
    it->second.members.insert({waiting.pid, waiting.spec.component});
    if (waiting.order < it->second.first.order) it->second.first = waiting;
  }
}

void Checks::CheckGroupGrants(const std::vector<Granted>& granted) {
  std::map<std::string, std::vector<const Granted*>> groups;
  for (const Granted& g : granted) {
    if (!g.asked.spec.group.empty()) {
      groups[g.asked.spec.group].push_back(&g);
      continue;
    }
    // It is used alone from now on.
    const Key alone{g.asked.pid, g.asked.spec.component};
    for (const Key& peer : peers_[alone]) peers_[peer].erase(alone);
    peers_.erase(alone);
  }
  for (const auto& [name, members] : groups) {
    const core::UseSpec& spec = members.front()->asked.spec;
    if (static_cast<int>(members.size()) != spec.group_size) {
      fail_(absl::StrCat(members.size(), " of the ", spec.group_size, " members of shard group ",
                         name, " begin without the others"));
    }
    std::set<Key> keys;
    for (const Granted* member : members) {
      keys.insert({member->asked.pid, member->asked.spec.component});
      if (member->resident == members.front()->resident) continue;
      fail_(absl::StrCat("members of shard group ", name, " begin with ", members.front()->resident,
                         " and with ", member->resident, " layers"));
    }
    for (const Key& key : keys) {
      peers_[key] = keys;
      peers_[key].erase(key);
    }
  }
}

// What counts is kept between uses, by workers that are attached.
void Checks::CheckLevels(const core::Picture& picture) {
  std::set<int32_t> attached;
  for (const core::SessionPicture& s : picture.sessions) {
    if (s.phase == core::SessionPhase::kAttached) attached.insert(s.pid);
  }
  const auto idle = [&](const Key& key) -> const ReferenceLedger::Component* {
    const auto worker = ledger_.workers().find(key.first);
    if (worker == ledger_.workers().end() || !attached.contains(key.first)) return nullptr;
    const auto c = worker->second.components.find(key.second);
    if (c == worker->second.components.end() || c->second.use.has_value()) return nullptr;
    return &c->second;
  };
  for (const auto& [key, peers] : peers_) {
    const ReferenceLedger::Component* c = idle(key);
    if (c == nullptr || !c->admitted) continue;
    for (const Key& other : peers) {
      const ReferenceLedger::Component* peer = idle(other);
      if (peer == nullptr || peer->Target() >= c->Target()) continue;
      fail_(absl::StrCat(key.second, " of pid ", key.first, " keeps ", c->Target(),
                         " layers, of which another of its shard group keeps ", peer->Target()));
    }
  }
}

}  // namespace vrambroker::simulation
