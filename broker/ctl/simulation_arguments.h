// What the commands that simulate read of their arguments alike. INVALID_ARGUMENT names the flag,
// the value given and what is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "broker/ctl/arguments.h"
#include "broker/sim/simulate.h"

namespace vrambroker::ctl {

// `status` with the flag before its message.
absl::Status InFlag(absl::string_view flag, const absl::Status& status);

// Files named by the words, then those that --random makes; at least one.
absl::Status TakeWorkloads(const Arguments& arguments, std::vector<sim::Workload>* workloads);
// --capacity, above 0, and with a unit where below 1 MiB; none where none is given.
absl::Status TakeCapacities(const Arguments& arguments, std::vector<int64_t>* capacities);
// Whether each may stand for the device of each workload: above what that keeps free.
absl::Status CheckCapacities(const std::vector<sim::Workload>& workloads,
                             const std::vector<int64_t>& capacities);
absl::Status TakeDeclared(const Arguments& arguments, sim::Declared* declared);
// --format, one of `allowed`; the first where none is given.
absl::Status TakeFormat(const Arguments& arguments, const std::vector<std::string>& allowed,
                        std::string* format);

}  // namespace vrambroker::ctl
