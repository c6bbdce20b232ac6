// What --device and --emulated-device take.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "broker/server/options.h"

namespace vrambroker::server {

// "UUID" or "UUID=SIZE". INVALID_ARGUMENT says what is allowed.
absl::Status AddDevice(const std::string& text, std::vector<DeviceOption>* out);
// "NAME=SIZE[,rate=BYTES_A_SECOND][,lag=DURATION]". INVALID_ARGUMENT likewise.
absl::Status AddEmulatedDevice(const std::string& text, std::vector<EmulatedDeviceOption>* out);

}  // namespace vrambroker::server
