#include "broker/observe/host_and_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace vrambroker::observe {
namespace {

bool IsAddress(int family, const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(family, host.c_str(), address) == 1;
}

}  // namespace

std::optional<HostText> SplitHostAndPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  HostText split;
  const absl::string_view port = text.substr(colon + 1);
  if (!std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port, &split.port) || split.port > 65535) {
    return std::nullopt;
  }
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || host.find_first_of("[]/ ") != absl::string_view::npos ||
      absl::StrContains(host, ':') != bracketed) {
    return std::nullopt;
  }
  split.host = std::string(host);
  return split;
}

bool IsLoopbackHost(absl::string_view host) {
  const std::string text(host);
  return absl::EqualsIgnoreCase(host, "localhost") || host == "::1" ||
         (absl::StartsWith(host, "127.") && IsAddress(AF_INET, text));
}

std::optional<HostAndPort> ParseHostAndPort(absl::string_view text) {
  const std::optional<HostText> split = SplitHostAndPort(text);
  if (!split.has_value()) return std::nullopt;
  HostAndPort parsed;
  parsed.host = split->host == "localhost" ? "127.0.0.1" : split->host;
  parsed.port = split->port;
  parsed.ipv6 = absl::StrContains(parsed.host, ':');
  if (!IsAddress(parsed.ipv6 ? AF_INET6 : AF_INET, parsed.host)) return std::nullopt;
  return parsed;
}

absl::Status CheckHttpAddress(absl::string_view address) {
  if (ParseHostAndPort(address).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", address,
                   "': HOST:PORT is allowed, the host an IPv4 address, an IPv6 address in brackets "
                   "or localhost, the port from 0 (any that is free) to 65535"));
}

bool IsLoopback(const HostAndPort& at) { return IsLoopbackHost(at.host); }

std::string WithPort(const HostAndPort& at, int port) {
  return absl::StrCat(at.ipv6 ? "[" : "", at.host, at.ipv6 ? "]:" : ":", port);
}

SocketAddress ToSocketAddress(const HostAndPort& at) {
  SocketAddress address;
  if (at.ipv6) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(at.port));
    inet_pton(AF_INET6, at.host.c_str(), &six.sin6_addr);
    std::memcpy(&address.storage, &six, sizeof(six));
    address.size = sizeof(six);
  } else {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(at.port));
    inet_pton(AF_INET, at.host.c_str(), &four.sin_addr);
    std::memcpy(&address.storage, &four, sizeof(four));
    address.size = sizeof(four);
  }
  return address;
}

}  // namespace vrambroker::observe
