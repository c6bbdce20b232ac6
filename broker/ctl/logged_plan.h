// A plan of a decision log, made again. Pure.
#pragma once

#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "broker/core/planner.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::ctl {

// Bounds of a logged problem; the broker's own are smaller, or the same.
inline constexpr int kMostPlanComponents = 4096;
inline constexpr int kMostPlanUses = 1024;
inline constexpr int kMostPlanSlots = 2048;

// What the planner was given. `problem` points to `layers`: moved, not copied.
struct LoggedProblem {
  LoggedProblem() = default;
  LoggedProblem(LoggedProblem&&) = default;
  LoggedProblem& operator=(LoggedProblem&&) = default;

  std::deque<core::LayerTable> layers;
  core::PlanProblem problem;
};

// INVALID_ARGUMENT names the field, the value given and what is allowed.
absl::StatusOr<LoggedProblem> ReadProblem(const v1::LoggedPlan& plan);

// The first thing in which what was given differs from what is given now, with both values and the
// component; empty where nothing does. Everything is compared exactly.
std::string Difference(const v1::LoggedPlan& logged, const core::Plan& made);

}  // namespace vrambroker::ctl
