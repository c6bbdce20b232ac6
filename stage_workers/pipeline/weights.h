// Weights files of a workload, made where they are missing.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_WEIGHTS_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::pipeline {

// Lengths of a component's block lists, by its name; absent: one list for each of its layer groups.
using BlockLists = std::map<std::string, std::vector<int>>;

// Makes the folder and in it a file for each component that lacks one written for just this plan.
// Processes that do so at the same time wait for each other. `progress` hears of the component, the
// bytes written and the bytes to write in all; it is not called where nothing is to do.
absl::Status EnsureWeights(
    const v1::Workload& workload, const BlockLists& lists, int64_t bytes_scale,
    const std::string& folder,
    const std::function<void(const std::string&, int64_t, int64_t)>& progress);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_WEIGHTS_H_
