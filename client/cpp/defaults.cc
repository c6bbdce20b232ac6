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

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
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

std::string RunTimeDir(const std::string& system, const std::string& xdg_runtime_dir) {
  std::string of_system = absl::StrCat(system, "/vram-broker");
  std::string of_user =
      absl::StrCat(xdg_runtime_dir.empty() ? absl::StrCat("/run/user/", getuid()) : xdg_runtime_dir,
                   "/vram-broker");
  for (const std::string& dir : {of_system, of_user}) {
    if (access(absl::StrCat(dir, "/broker.sock").c_str(), F_OK) == 0) return dir;
  }
  if (access(of_system.c_str(), W_OK) == 0) return of_system;
  if (errno == ENOENT && access(system.c_str(), W_OK) == 0) return of_system;
  return of_user;
}

std::string DefaultLockDir() { return RunTimeDir("/run", Environment("XDG_RUNTIME_DIR")); }

std::string DefaultAddress() {
  const std::string given = Environment("VRAM_BROKER_ADDRESS");
  return given.empty() ? absl::StrCat("unix:", DefaultLockDir(), "/broker.sock") : given;
}

std::string PlaceFrom(const char* variable) {
  constexpr size_t kMost = 128;
  std::string place;
  for (char c : Environment(variable)) {
    if (c > ' ' && c <= '~' && place.size() < kMost) place += c;
  }
  return place;
}

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
