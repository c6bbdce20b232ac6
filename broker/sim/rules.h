// What may decide in a simulation: the broker, or a well-known rule in its place. A rule says what
// the others keep when a use begins; the use then takes the most whole leading layers that fit (all
// and no window, or some beside its window), and what it has stays when it ends.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "broker/core/layers.h"

namespace vrambroker::sim {

enum class Rule {
  kBroker,
  // Nobody keeps anything.
  kReleaseAll,
  // Whole sets go, least recently used first, until the rest is within the room.
  kLruWhole,
  // The same in layers, from the end of the keep order.
  kLruPartial,
  // Of the combinations of whole sets that make enough room, the one of the fewest bytes goes.
  kSmallestCombination,
  // In layers from the end of the keep order, the smallest set first.
  kSmallestFirstPartial,
};

// As --rule spells them: "broker", "release_all", "lru_whole", "lru_partial",
// "smallest_combination", "smallest_first_partial".
absl::string_view RuleName(Rule rule);
absl::StatusOr<Rule> ParseRule(absl::string_view name);
// All but the broker.
const std::vector<Rule>& OtherRules();

// A component without a use, by order in the workload.
struct Retained {
  const core::LayerTable* layers = nullptr;
  int held = 0;
  // Rises with each use.
  uint64_t used = 0;
};

// Layers that each keeps, so that together they are within `room` bytes. Requires a rule, not the
// broker. A combination is sought among 16 sets; where more hold anything, the largest go first
// until 16 are left.
std::vector<int> KeptBy(Rule rule, const std::vector<Retained>& retained, int64_t room);

}  // namespace vrambroker::sim
