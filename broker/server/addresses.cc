#include "broker/server/addresses.h"

#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "broker/observe/host_and_port.h"

namespace vrambroker::server {
namespace {

constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status BadAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no address: ", why));
}

}  // namespace

bool IsLoopback(const Address& address) {
  return !address.is_unix() && observe::IsLoopbackHost(address.host);
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  Address address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (absl::StartsWith(rest, "///")) rest.remove_prefix(2);
    if (rest.empty() || rest.size() > kMaxPath) {
      return BadAddress(text, absl::StrCat("unix:PATH with a path of 1 to ", kMaxPath,
                                           " bytes is allowed, this one has ", rest.size()));
    }
    address.path = std::string(rest);
    return address;
  }
  const std::optional<observe::HostText> split = observe::SplitHostAndPort(rest);
  if (!split.has_value()) {
    return BadAddress(
        text,
        "unix:PATH, or HOST:PORT is allowed, with a port of 0 to 65535 and a name, an "
        "IPv4 address such as 0.0.0.0, or an IPv6 address in brackets such as [::]");
  }
  address.host = split->host;
  address.port = split->port;
  return address;
}

std::string ToString(const Address& address) {
  if (address.is_unix()) return absl::StrCat("unix:", address.path);
  if (absl::StrContains(address.host, ':'))
    return absl::StrCat("[", address.host, "]:", address.port);
  return absl::StrCat(address.host, ":", address.port);
}

std::string RunDir(const std::string& system, const std::string& xdg_runtime_dir) {
  std::string of_system = absl::StrCat(system, "/vram-broker");
  if (access(of_system.c_str(), W_OK) == 0) return of_system;
  if (errno == ENOENT && access(system.c_str(), W_OK) == 0) return of_system;
  if (!xdg_runtime_dir.empty()) return absl::StrCat(xdg_runtime_dir, "/vram-broker");
  return absl::StrCat("/run/user/", getuid(), "/vram-broker");
}

std::string DefaultRunDir() {
  const char* user_dir = std::getenv("XDG_RUNTIME_DIR");
  return RunDir("/run", user_dir == nullptr ? "" : user_dir);
}

}  // namespace vrambroker::server
