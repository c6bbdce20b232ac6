// What a worker decides by itself, where no broker does: pure arithmetic over figures passed in.
#ifndef VRAMBROKER_STAGE_WORKERS_WORKER_LOCAL_RULE_H_
#define VRAMBROKER_STAGE_WORKERS_WORKER_LOCAL_RULE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "stage_workers/offload/layers.h"

namespace vrambroker::worker {

enum class RetainMode {
  // Every use releases all layers.
  kNone,
  // Every use keeps its resident set.
  kAll,
  // A use keeps its resident set if enough is free on the card after it.
  kIfFree,
};

struct RetainRule {
  RetainMode mode = RetainMode::kNone;
  // For kIfFree: bytes that must be free on the card while the set is held. At least 0.
  int64_t free_bytes = 0;
};

// "none", "all" or "if-free:4GiB". INVALID_ARGUMENT for anything else.
absl::StatusOr<RetainRule> ParseRetain(const std::string& text);

// How many of `resident` layers stay after a use. `free_bytes` is what is free on the card when
// window and activation have gone and the layers are still held.
int LayersToKeep(const RetainRule& rule, int resident, int64_t free_bytes);

// "53" as a count of leading layers, "0.8" (with a point) as a ratio of each block list, "all".
// INVALID_ARGUMENT for anything else; whether a count fits the layers is not known here.
absl::StatusOr<offload::KeepSpec> ParseResident(const std::string& text);

// What a use of some number of layers would take on the card.
struct FitQuestion {
  // Most layers wanted, at least 0.
  int configured = 0;
  // Bytes of the first k layers, and of the window beside k resident ones: called with 0 to
  // `configured`; the first rises, the second does not.
  std::function<int64_t(int)> prefix_bytes;
  std::function<int64_t(int)> window_bytes;
  int64_t activation_bytes = 0;
  // Bytes that the layers may take: free on the card, cached in the pool, or held by these layers.
  int64_t available_bytes = 0;
};

// The largest number of layers whose bytes, window and activation are available; 0 where nothing
// fits (a use that streams everything is then tried all the same).
int LayersThatFit(const FitQuestion& question);

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_STAGE_WORKERS_WORKER_LOCAL_RULE_H_
