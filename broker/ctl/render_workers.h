// Worker processes and declared runs as text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::ctl {

// A session, and what its components hold.
struct WorkerRow {
  v1::SessionPicture session;
  // Devices on which it has components, in the picture's order; none: a driver, or no components.
  std::vector<std::string> devices;
  int components = 0;
  int running_uses = 0;
  // Bytes of layers on the device; and what it is charged with, without its pool.
  int64_t held_bytes = 0;
  int64_t charge_bytes = 0;
};

// In the picture's order.
std::vector<WorkerRow> WorkersOf(const v1::Picture& picture);
std::string WorkersTable(const std::vector<WorkerRow>& workers);
// {"workers": [...]}, in lines; bytes as numbers.
std::string WorkersJson(const std::vector<WorkerRow>& workers);

// A table of runs, with a line above that counts them.
std::string RenderRuns(const v1::ListRunsResponse& runs);

}  // namespace vrambroker::ctl
