// Writes safetensors files whose layers have the sizes of a workload's components, at a scale.
#ifndef VRAMBROKER_STAGE_WORKERS_OFFLOAD_WEIGHTS_WRITER_H_
#define VRAMBROKER_STAGE_WORKERS_OFFLOAD_WEIGHTS_WRITER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stage_workers/offload/layers.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::offload {

struct WeightsPlan {
  std::string component;
  // Lists in execution order, and the bytes of each layer through all of them.
  std::vector<BlockList> lists;
  std::vector<int64_t> layer_bytes;
  int64_t fixed_bytes = 0;
  int64_t bytes_scale = 1;
  // Fingerprint of all the above; written to the file's metadata as "vram.digest".
  std::string digest;

  int64_t data_bytes() const;
};

// Bytes at a scale: divided, rounded to the nearest multiple of 64, at least 64 (0 stays 0).
int64_t ScaleBytes(int64_t bytes, int64_t scale);

// What a component's file holds. `list_counts` are the lengths of its block lists and add up to its
// layers; empty: one list for each layer group. `scale` is 1 to 1,048,576.
absl::StatusOr<WeightsPlan> PlanWeights(const v1::WorkloadComponent& component,
                                        const std::vector<int>& list_counts, int64_t scale);

// DIRECTORY/COMPONENT.safetensors
std::string WeightsPath(const std::string& directory, const std::string& component);

// Whether the file is there, of the right size, and was written for just this plan.
bool WeightsAreCurrent(const std::string& path, const WeightsPlan& plan);

// Writes the file anew (under another name first, then renamed). Contents depend on the component's
// name, the tensor's name and its size only. `progress` hears of the data bytes written so far.
// FAILED_PRECONDITION where a file is there that was not generated: it is left as it is.
absl::Status WriteWeights(const std::string& path, const WeightsPlan& plan,
                          const std::function<void(int64_t)>& progress);

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_STAGE_WORKERS_OFFLOAD_WEIGHTS_WRITER_H_
