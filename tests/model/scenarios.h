// The scenarios that are explored.
#pragma once

#include <vector>

#include "tests/model/actions.h"

namespace vrambroker::model {

// `deep`: with more uses and faults, which takes minutes each.
std::vector<Scenario> Scenarios(bool deep);

// Kinds of actions that must be among those that were taken.
std::vector<Action::Kind> Expected(const Scenario& scenario);

}  // namespace vrambroker::model
