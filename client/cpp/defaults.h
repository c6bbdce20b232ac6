// Where a broker of this machine is found when nobody says otherwise.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace vrambroker::client {

// The directory of the default socket and of the device locks, below `system` (/run) or the user's
// own ($XDG_RUNTIME_DIR; empty: /run/user/UID): vram-broker in the first of them that has a
// broker's socket in it; where neither has, the one that a broker of this user would take: that of
// the system if it is writable, or is not there and can be made.
std::string RunTimeDir(const std::string& system, const std::string& xdg_runtime_dir);

// Whether a broker lives for the device: whether the lock that it holds as long as it lives,
// DIRECTORY/device-UUID.lock, is taken. False where there is no such file. Takes no lock itself.
absl::StatusOr<bool> BrokerLives(const std::string& lock_dir, const std::string& device_uuid);

// What an environment variable says of the place of this process, as far as a broker takes it: the
// printable ASCII characters of it, 128 at most. Empty: it is not set.
std::string PlaceFrom(const char* variable);

// Field 22 of /proc/self/stat: when this process started, in clock ticks since boot. 0: not known.
uint64_t OwnStartTimeTicks();

}  // namespace vrambroker::client
