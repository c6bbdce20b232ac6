// Reads a workload's JSON form (vrambroker/v1/workload.proto).
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "broker/sim/workload.h"

namespace vrambroker::ctl {

// Largest workload file that is read, in bytes.
inline constexpr size_t kMaxWorkloadFileBytes = size_t{64} << 20;

// INVALID_ARGUMENT for text that is no workload (unknown fields included) or out of a bound: names
// the field, the value given and what is allowed. Zeros that mean a default are replaced by it.
absl::StatusOr<sim::Workload> ParseWorkload(absl::string_view json);

// Reads a file, or a pipe to its end. NOT_FOUND for a file that cannot be read; the rest as
// ParseWorkload, naming the file.
absl::StatusOr<sim::Workload> LoadWorkload(const std::string& path);

}  // namespace vrambroker::ctl
