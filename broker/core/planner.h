// The retention plan: of the uses that are known to come, how many layers of each component are
// resident while it runs, how many are kept until its next use and how many are loaded ahead of it,
// so that as little time as possible is lost to copies and every slot fits on the card and on the
// link.
//
// A component of weight bytes W that computes one pass in T seconds over a link of B bytes a second
// loses sigma = max(0, 1/B - T/W) seconds to each byte that is streamed in a pass. A byte that is
// resident during a use of n passes saves (n - 1) sigma; one that is there when the use begins,
// because it was kept or loaded ahead, saves sigma on the first pass. A use needs its streamed
// window unless all its layers are resident. Each byte that a use streams takes
// min(1, B T / W) bytes of the link from those that could be loaded ahead meanwhile.
//
// A pure function, bounded in steps and not in time; ties go to the earlier item: the same
// knowledge gives the same plan.
#pragma once

#include <vector>

#include "broker/core/layers.h"
#include "broker/core/units.h"

namespace vrambroker::core {

// Seconds lost to each streamed byte. `link_rate` in bytes a second, above 0; pass_seconds 0:
// nothing hides the copies.
double ExposedSecondsPerByte(double pass_seconds, Bytes weights, double link_rate);

// Of the link's bytes while a use streams one byte, those that nobody else can have: from 0 (the
// use waits for the copy, no time passes that could be used) to 1 (compute hides the copy).
double LinkShare(double pass_seconds, Bytes weights, double link_rate);

struct PlanComponent {
  const LayerTable* layers = nullptr;
  // ExposedSecondsPerByte and LinkShare of the component.
  double sigma = 0;
  double link_share = 0;
  // Layers held now without a use; 0 where none, or where a use runs.
  int held = 0;
  // Whether to keep what no known use wants, where it costs nothing: the highest rank first.
  bool keep_by_recency = false;
  double keep_rank = 0;
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
  // Above 0, at most 1. Below one half it claims neither window nor need nor fewest layers, and
  // only gives a discounted value to what is there for it.
  double probability = 1;
  // Whether all that fits may be resident: nothing is known of what comes after it.
  bool fill = false;

  bool certain() const { return probability >= 0.5; }
};

struct PlanProblem {
  // Bytes for layers, windows and needs in every slot.
  Bytes capacity;
  int slots = 0;
  // Bytes that the link can carry in each slot if no use streams. Empty: nothing is loaded ahead.
  std::vector<double> link;
  std::vector<PlanComponent> components;
  // By first_slot. Uses of one component do not overlap.
  std::vector<PlanUse> uses;
};

struct Plan {
  // Of each use, layers resident while it runs.
  std::vector<int> resident;
  // Of each use, layers kept from its end to the component's next use. 0 for a last use.
  std::vector<int> kept;
  // Of each use, layers loaded ahead of it, after those that were kept, and in how many bytes of
  // each of the slots before it, the latest first (at most kLoadReach).
  std::vector<int> loaded;
  std::vector<std::vector<int64_t>> loads;
  // Of each component that has no use now: layers to keep until its next use, at most held.
  std::vector<int> keep;
  // The same with what is to be loaded ahead in the first slot. At least keep.
  std::vector<int> ahead;
  // Bytes that the uses of the first slot leave of the link, before anything is loaded ahead.
  double link_left = 0;
  // Seconds saved against streaming everything; of uses that may not come, times their probability.
  double saved_seconds = 0;
};

// Slots before a use in which its layers may be loaded ahead.
constexpr int kLoadReach = 12;

Plan MakePlan(const PlanProblem& problem);

}  // namespace vrambroker::core
