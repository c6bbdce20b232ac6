// What a line of a decision log may say. Pure.
#pragma once

#include "absl/status/status.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::ctl {

// Seconds that anything took, or that lie between two lines of a file: some 31 years.
inline constexpr double kMostLoggedSeconds = 1e9;

// INVALID_ARGUMENT names the field, the value given and what is allowed: times and rates that are
// no numbers, infinite or absurd, sizes and layers that no broker admits. Plans are not looked at:
// ReadProblem checks them.
absl::Status CheckLoggedLine(const v1::DecisionLogLine& line);

// Of a line with a time.
double SecondsOf(const v1::DecisionLogLine& line);

}  // namespace vrambroker::ctl
