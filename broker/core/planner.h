// The retention plan: of the uses that are known to come, how many layers of each component are
// resident while it runs and how many are kept until its next use, so that as little time as
// possible is lost to copies and every slot fits on the card.
//
// A component of weight bytes W that computes one pass in T seconds over a link of B bytes a second
// loses sigma = max(0, 1/B - T/W) seconds to each byte that is streamed in a pass. A byte that is
// resident during a use of n passes saves (n - 1) sigma; one that is kept from a use to the next
// saves sigma on that use's first pass. A use needs its streamed window unless all its layers are
// resident.
//
// A pure function; ties go to the earlier item, so that the same knowledge gives the same plan.
#pragma once

#include <vector>

#include "broker/core/layers.h"
#include "broker/core/units.h"

namespace vrambroker::core {

// Seconds lost to each streamed byte. `link_rate` in bytes a second, above 0; pass_seconds 0:
// nothing hides the copies.
double ExposedSecondsPerByte(double pass_seconds, Bytes weights, double link_rate);

struct PlanComponent {
  const LayerTable* layers = nullptr;
  double sigma = 0;
  // Layers held now without a use; 0 where none, or where a use runs.
  int held = 0;
  // Whether to keep by recency what no known use wants, where it costs nothing. Newer goes first.
  bool keep_by_recency = false;
  uint64_t last_used = 0;
};

struct PlanUse {
  int component = 0;
  // Slots that it covers; slots lie between the starts of uses. first <= last.
  int first_slot = 0;
  int last_slot = 0;
  int passes = 1;
  // Bytes beside layers and window.
  Bytes need;
  Bytes window;
  int min_resident = 0;
  int max_resident = 0;
  // At least 0: it runs already with that many layers, which are charged whatever the plan says.
  int granted = -1;
  // Whether all that fits may be resident: nothing is known of what comes after it.
  bool fill = false;
};

struct PlanProblem {
  // Bytes for layers, windows and needs in every slot.
  Bytes capacity;
  int slots = 0;
  std::vector<PlanComponent> components;
  // By first_slot. Uses of one component do not overlap.
  std::vector<PlanUse> uses;
};

struct Plan {
  // Of each use, layers resident while it runs.
  std::vector<int> resident;
  // Of each use, layers kept from its end to the component's next use. 0 for a last use.
  std::vector<int> kept;
  // Of each component that has no use now: layers to keep until its next use, at most held.
  std::vector<int> keep;
  // The same with what could be loaded ahead now, into room that nothing in the plan wants. At
  // least keep.
  std::vector<int> ahead;
  // Seconds saved against streaming everything.
  double saved_seconds = 0;
};

Plan MakePlan(const PlanProblem& problem);

}  // namespace vrambroker::core
