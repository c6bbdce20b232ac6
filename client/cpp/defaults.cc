#include "client/cpp/defaults.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/broker_client.h"

namespace vrambroker::client {
namespace {

// /run/vram-broker where it is there and open to this user, or could be made; else below
// $XDG_RUNTIME_DIR, else /run/user/UID/vram-broker: the broker's own order.
std::string RunTimeDir() {
  constexpr char kSystem[] = "/run/vram-broker";
  if (access(kSystem, X_OK) == 0 || access("/run", W_OK) == 0) return kSystem;
  if (const char* user = std::getenv("XDG_RUNTIME_DIR"); user != nullptr && *user != 0) {
    return absl::StrCat(user, "/vram-broker");
  }
  return absl::StrCat("/run/user/", getuid(), "/vram-broker");
}

std::string LockFile(const std::string& dir, const std::string& uuid) {
  std::string name;
  for (char c : uuid) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    if (plain) {
      name += c;
    } else {
      absl::StrAppendFormat(&name, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return absl::StrCat(dir, "/device-", name, ".lock");
}

}  // namespace

std::string DefaultAddress() {
  if (const char* address = std::getenv("VRAM_BROKER_ADDRESS");
      address != nullptr && *address != 0) {
    return address;
  }
  return absl::StrCat("unix:", RunTimeDir(), "/broker.sock");
}

std::string DefaultLockDir() { return RunTimeDir(); }

absl::StatusOr<bool> BrokerLives(const std::string& lock_dir, const std::string& device_uuid) {
  const std::string path = LockFile(lock_dir, device_uuid);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return false;
    return absl::PermissionDeniedError(
        absl::StrCat("cannot look at the device's lock ", path, ": ", std::strerror(errno)));
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const int asked = fcntl(fd, F_OFD_GETLK, &lock);
  const int error = errno;
  close(fd);
  if (asked != 0) {
    return absl::InternalError(
        absl::StrCat("cannot ask about the device's lock ", path, ": ", std::strerror(error)));
  }
  return lock.l_type != F_UNLCK;
}

uint64_t OwnStartTimeTicks() {
  std::ifstream in("/proc/self/stat");
  std::stringstream text;
  text << in.rdbuf();
  const std::string line = text.str();
  const size_t after_name = line.rfind(')');
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(line.substr(after_name + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

}  // namespace vrambroker::client
