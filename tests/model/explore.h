// All states that a scenario can come to, breadth first: what is wrong is found by one of the
// shortest ways to it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/model/actions.h"

namespace vrambroker::model {

struct Exploration {
  // What is wrong, and the way to it, for people and (as numbers of the actions that are enabled)
  // to be played again. Empty: nothing was found.
  std::string failure;
  // Every state that there is was seen.
  bool complete = false;
  int64_t states = 0;
  int64_t steps = 0;
  int64_t longest = 0;   // of the shortest ways to states
  int64_t settled = 0;   // states from which all was seen to come to rest
  int64_t compared = 0;  // times that a state was reached again and seen to go on the same
  std::array<int64_t, kActionKinds> taken{};
};

// Where the scenario starts. Requires that all goes well until there.
State Begin(const Scenario& scenario);

// At most `most_states`.
Exploration Explore(const Scenario& scenario, int64_t most_states);

// Plays a way again, given as in a failure: the story, with what is wrong at its end.
std::string Replay(const Scenario& scenario, const std::vector<int>& way);

}  // namespace vrambroker::model
