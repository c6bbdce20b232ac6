// Flags of both commands of vram-pipeline.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_SHARED_FLAGS_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_SHARED_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/status/status.h"

ABSL_DECLARE_FLAG(int64_t, bytes_scale);
ABSL_DECLARE_FLAG(double, time_scale);
ABSL_DECLARE_FLAG(std::string, work_dir);
ABSL_DECLARE_FLAG(std::string, bin_dir);

namespace vrambroker::pipeline {

// INVALID_ARGUMENT where --bytes-scale or --time-scale is out of range.
absl::Status CheckScales();
// --bin-dir, or where this program lies.
std::string BinFolder();

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_SHARED_FLAGS_H_
