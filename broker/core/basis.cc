// What decisions rest on, remembered while they are made, and their explanation.
#include <string>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

// Keeps what the plan in force knows for this decision. False: no plan is in force.
bool Machine::Impl::NoteBasis(DecisionId decision, ComponentId component) {
  if (basis == nullptr) return false;
  const auto it = basis->problem.index.find(component);
  if (it == basis->problem.index.end()) return false;
  if (basis->knowledge == nullptr) {
    basis->knowledge =
        memory.Copy(basis->device, basis->problem, basis->plan,
                    [this](ComponentId id) { return ComponentName(state.components.at(id)); });
  }
  memory.Add({decision, it->second, basis->knowledge});
  return true;
}

absl::StatusOr<Explanation> Machine::Impl::Explain(DecisionId id) const {
  const std::deque<Decision>& all = state.decisions;
  if (all.empty()) {
    return absl::NotFoundError(
        absl::StrCat("decision_id: ", id.value(), " given, but nothing has been decided yet"));
  }
  if (id < all.front().id || id > all.back().id) {
    return absl::NotFoundError(absl::StrCat("decision_id: ", id.value(), " given, decisions ",
                                            all.front().id.value(), " to ", all.back().id.value(),
                                            " are known; ListDecisions lists them"));
  }
  const Decision& decision = all[id.value() - all.front().id.value()];
  VRAM_CHECK(decision.id == id);
  if (const PlanMemory::Entry* entry = memory.Find(id); entry != nullptr) {
    return core::Explain(decision, *entry->knowledge, entry->component);
  }
  if (decision.planned) {
    return absl::NotFoundError(
        absl::StrCat("decision_id: ", id.value(),
                     " given, what its plan was made from is forgotten: it is kept ",
                     "of the last ", PlanMemory::kMostDecisions, " decisions that rest on one, ",
                     memory.entries().front().decision.value(), " to ",
                     memory.entries().back().decision.value()));
  }
  Explanation unplanned;
  unplanned.decision = decision;
  return unplanned;
}

}  // namespace vrambroker::core
