// The arithmetic of a layer, the same on every card: sampled lines of weights mixed into lanes.
#ifndef VRAMBROKER_STAGE_WORKERS_CARD_COMPUTE_H_
#define VRAMBROKER_STAGE_WORKERS_CARD_COMPUTE_H_

#include <cstdint>

#include "stage_workers/card/card.h"

namespace vrambroker::card {

// One line of kLineBytes at every multiple of kSampleStride enters a layer's result, all its bytes.
// A last line that the buffer cuts short is filled up with zeros.
inline constexpr int64_t kSampleStride = 16 << 10;
inline constexpr int64_t kLineBytes = 64;

// How many lines of a buffer of `bytes` are sampled.
constexpr int64_t SampledLines(int64_t bytes) {
  return (bytes + kSampleStride - 1) / kSampleStride;
}

// Mixes the `index`-th sampled line into the lanes. `line` holds kLineBytes bytes.
void MixLine(const void* line, int64_t index, Activations lanes);
// Ends a layer: spreads every lane over the others.
void FinishLayer(Activations lanes);

// Whether ComputeLayer takes such activations: a multiple of kLaneBlock words, not none.
absl::Status CheckActivations(Activations lanes);

// Sleeps, then spins for the last stretch, until `deadline` in nanoseconds of the monotonic clock.
void WaitUntilNanos(int64_t deadline);
int64_t MonotonicNanos();

}  // namespace vrambroker::card

#endif  // VRAMBROKER_STAGE_WORKERS_CARD_COMPUTE_H_
