#include "broker/server/addresses.h"

#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace vrambroker::server {
namespace {

constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status BadAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no address: ", why));
}

// Four numbers of 0 to 255 that begin with 127.
bool IsIpv4Loopback(const std::string& host) {
  const std::vector<std::string> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (const std::string& part : parts) {
    int number = -1;
    if (!absl::SimpleAtoi(part, &number) || number < 0 || number > 255) return false;
  }
  return true;
}

}  // namespace

bool IsLoopback(const Address& address) {
  return !address.is_unix() &&
         (address.host == "localhost" || address.host == "::1" || IsIpv4Loopback(address.host));
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
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return BadAddress(text, "unix:PATH, or HOST:PORT with a port of 0 to 65535 is allowed");
  }
  absl::string_view host = rest.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || host.find_first_of("[]/ ") != absl::string_view::npos ||
      absl::StrContains(host, ':') != bracketed) {
    return BadAddress(text,
                      "before the port a host is needed: a name, an IPv4 address such as 0.0.0.0, "
                      "or an IPv6 address in brackets such as [::]");
  }
  address.host = std::string(host);
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
