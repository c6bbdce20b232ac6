// Where a broker of this machine is found when nobody says otherwise.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace vrambroker::client {

// Whether a broker lives for the device: whether the lock that it holds as long as it lives,
// DIRECTORY/device-UUID.lock, is taken. False where there is no such file. Takes no lock itself.
absl::StatusOr<bool> BrokerLives(const std::string& lock_dir, const std::string& device_uuid);

// Field 22 of /proc/self/stat: when this process started, in clock ticks since boot. 0: not known.
uint64_t OwnStartTimeTicks();

}  // namespace vrambroker::client
