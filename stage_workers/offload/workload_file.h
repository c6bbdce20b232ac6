// Reads a workload's JSON form (workload.proto) and checks every bound that it documents.
#ifndef VRAMBROKER_STAGE_WORKERS_OFFLOAD_WORKLOAD_FILE_H_
#define VRAMBROKER_STAGE_WORKERS_OFFLOAD_WORKLOAD_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::offload {

// Largest workload file that is read, in bytes.
inline constexpr int64_t kMaxWorkloadFileBytes = 64 << 20;

// INVALID_ARGUMENT naming the field ("components[2].layer_groups[0].count"), the value given and
// what is allowed. Zeros that mean a default are left as they are.
absl::Status CheckWorkload(const v1::Workload& workload);

// NOT_FOUND for a file that cannot be read; INVALID_ARGUMENT, naming the file, for one that is no
// workload (unknown fields included).
absl::StatusOr<v1::Workload> LoadWorkload(const std::string& path);

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_STAGE_WORKERS_OFFLOAD_WORKLOAD_FILE_H_
