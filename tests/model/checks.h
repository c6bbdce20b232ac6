// What must hold in every state, and where all has come to rest.
#pragma once

#include <string>

#include "tests/model/state.h"

namespace vrambroker::model {

// What is wrong with a state: what workers truly have is beyond what they are charged or beyond the
// card, or a use may run that is not charged. Empty: nothing.
std::string WrongIn(const Scenario& scenario, const State& state);

// What keeps a state from being at rest: every use is over, every worker attached and charged
// exactly what it has, nobody waits. Empty: nothing.
std::string Unsettled(const Scenario& scenario, const State& state);

}  // namespace vrambroker::model
