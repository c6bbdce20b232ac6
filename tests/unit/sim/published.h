// The published workloads and what is known of them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "broker/ctl/workload_file.h"
#include "broker/sim/simulate.h"
#include "tests/published_bounds.h"

namespace vrambroker::sim {

inline Workload Published(const std::string& name) {
  absl::StatusOr<Workload> workload =
      ctl::LoadWorkload(std::string(WORKLOAD_DIR) + "/" + name + ".json");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return workload.ok() ? *std::move(workload) : Workload();
}

inline Workload OnCard(Workload workload, int64_t capacity_bytes) {
  workload.device.capacity_bytes = capacity_bytes;
  return workload;
}

}  // namespace vrambroker::sim
