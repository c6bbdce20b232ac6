// Workloads made from a number, for tests that need thousands.
#pragma once

#include <cstdint>

#include "broker/sim/workload.h"

namespace vrambroker::sim {

// How the runs come: the remainder of the number by 4.
enum class Arrivals {
  kSequential,   // all wait from the start, one goes after the other
  kPoisson,      // at random, with gaps and bursts, one after the other
  kOverlapping,  // at random, several at once
  kBusyModel,    // overlapping, beside a language model that is nearly always in use
};

// The same number gives the same workload everywhere. Two to six components of 40 MB to 30 GiB,
// some with unequal layers, fixed bytes or compute that hides their copies; one to three pipelines
// that share some of them; cards from hardly enough for the largest need to enough for all, now and
// then with a use that cannot fit; 3 to 10 runs, and up to 24 more of the language model.
Workload RandomWorkload(uint64_t seed);

}  // namespace vrambroker::sim
