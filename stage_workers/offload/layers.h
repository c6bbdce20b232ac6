// From tensors to layers, and the order in which layers are to be kept.
#ifndef VRAMBROKER_STAGE_WORKERS_OFFLOAD_LAYERS_H_
#define VRAMBROKER_STAGE_WORKERS_OFFLOAD_LAYERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "stage_workers/card/card.h"
#include "stage_workers/offload/safetensors.h"

namespace vrambroker::offload {

// Layers of one component at most, as in the workload format.
inline constexpr int kMaxLayers = 4096;
// Tensors start at multiples of this on the device; what lies between is zero.
inline constexpr int64_t kDeviceAlignment = 64;

// Tensors that lie together in one device buffer.
struct TensorGroup {
  // Host memory and where each piece goes in the buffer. Tensors that follow each other in both are
  // one piece.
  std::vector<card::HostPiece> pieces;
  // Size on the device, alignment included.
  int64_t bytes = 0;
};

struct Layer {
  // "blocks" and 12 for tensors called blocks.12.SOMETHING.
  std::string list;
  int index = 0;
  TensorGroup tensors;
};

struct BlockList {
  std::string name;
  int count = 0;
};

// A weights file as layers. Execution order is file order: lists by where they begin in the file,
// indexes rising within each.
struct LayerMap {
  std::vector<BlockList> lists;
  std::vector<Layer> layers;
  // All tensors outside the lists.
  TensorGroup fixed;
  int64_t layer_bytes_total = 0;
  // 0 without layers.
  int64_t largest_layer_bytes = 0;
  // Keeps the memory alive that the pieces point into.
  std::shared_ptr<SafetensorsFile> file;
};

// Groups a file's tensors by name. The first part of a name that is a number is the index, what is
// before it the list ("language_model.layers.3.mlp.up.weight"). With `list_names` empty, prefixes
// whose indexes are exactly 0, 1, ... n-1, n at least 2, are block lists and the rest is fixed.
// Otherwise those names are the lists, executed in that order, and INVALID_ARGUMENT tells of one
// that is missing or lacks an index. INVALID_ARGUMENT for more than kMaxLayers layers.
absl::StatusOr<LayerMap> GroupLayers(std::shared_ptr<SafetensorsFile> file,
                                     absl::Span<const std::string> list_names);

// How the configured set is chosen.
enum class KeepPattern {
  // The first `count` layers in execution order.
  kLeading,
  // `count` layers spread evenly over the execution order.
  kStrided,
  // Of each block list its first round(ratio * length) layers, halves rounded up.
  kRatioPerList,
};

struct KeepSpec {
  KeepPattern pattern = KeepPattern::kLeading;
  // For kLeading and kStrided: 0 to the number of layers. -1: all.
  int count = -1;
  // For kRatioPerList: 0 to 1.
  double ratio = 1.0;
};

struct KeepOrder {
  // Every execution index once; the first k are the set of size k.
  std::vector<int> order;
  // How many of them, from the first on, the specification asks for.
  int configured = 0;
};

// The configured set first, the other layers after it, each part in execution order. With lists of
// 36, 27 and 3 and a ratio of 0.8 the first 53 are 29 + 22 + 2. INVALID_ARGUMENT for a count or
// ratio out of range.
absl::StatusOr<KeepOrder> MakeKeepOrder(absl::Span<const BlockList> lists, const KeepSpec& spec);

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_STAGE_WORKERS_OFFLOAD_LAYERS_H_
