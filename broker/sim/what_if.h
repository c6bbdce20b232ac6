// What a card of some size would mean for a workload, found by simulation with the broker's core.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/sim/simulate.h"

namespace vrambroker::sim {

// The use that needs most beside reserve and fixed bytes, of pipelines that any run takes.
struct LargestNeed {
  int pipeline = 0;
  int stage = 0;
  int component = 0;
  int64_t activation_bytes = 0;
  // Its streamed window, or all its layers where these are less.
  int64_t layer_bytes = 0;
  int64_t bytes() const { return activation_bytes + layer_bytes; }
};
LargestNeed FindLargestNeed(const Workload& workload);
// All components' fixed bytes.
int64_t FixedBytes(const Workload& workload);
// The least card that every use fits on.
int64_t LeastCapacity(const Workload& workload);

// The least size of at least `bytes` that tables show without rounding: whole hundredths of a GiB,
// below one GiB whole tenths of a MiB, below one MiB of a KiB, below one KiB bytes. So what is
// shown of it, read again, is enough.
int64_t RoundUpAsShown(int64_t bytes);

// Layers that differ from one use to the next: the least, the one in the middle, the most.
struct LayerRange {
  int least = 0;
  int middle = 0;
  int most = 0;
};

struct ComponentPlan {
  int uses = 0;
  LayerRange resident;  // while it is used
  // After a use that another one follows. Empty: no use is followed by another.
  std::optional<LayerRange> kept;
};

struct WhatIf {
  bool fits = false;
  // The rest only where it fits.
  Result result;
  std::vector<ComponentPlan> components;  // as in the workload
  // Lost to loading on a card that holds everything at once: the first load of each component.
  double stall_at_best = 0;
  // The least card found on which requests lose no more than that, by a millisecond each, to 16
  // MiB and as RoundUpAsShown gives it. Where what is lost does not only fall as cards grow, a
  // smaller one may do as well.
  int64_t capacity_at_best = 0;
};

// `options`: declared and load_ahead count, the broker decides.
absl::StatusOr<WhatIf> AskWhatIf(const Workload& workload, Options options);

}  // namespace vrambroker::sim
