// Hosts and ports, as people write them and as the kernel takes them.
#ifndef VRAMBROKER_BROKER_OBSERVE_HOST_AND_PORT_H_
#define VRAMBROKER_BROKER_OBSERVE_HOST_AND_PORT_H_

#include <sys/socket.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace vrambroker::observe {

// HOST:PORT as somebody wrote it: the host a name or an address, one of IPv6 in brackets.
struct HostText {
  // Without brackets; not empty.
  std::string host;
  // 0 to 65535.
  int port = 0;
};
// Absent: it is something else. Whether a name leads anywhere is not asked.
std::optional<HostText> SplitHostAndPort(absl::string_view text);

// Of a host without brackets: localhost, 127.x.x.x, ::1.
bool IsLoopbackHost(absl::string_view host);

struct HostAndPort {
  // As an address, without brackets.
  std::string host;
  // 0: any that is free.
  int port = 0;
  bool ipv6 = false;
};

// HOST:PORT, the host an IPv4 address, an IPv6 address in brackets, or localhost (127.0.0.1).
// Absent: it is something else.
std::optional<HostAndPort> ParseHostAndPort(absl::string_view text);

// INVALID_ARGUMENT, with what is allowed, unless ParseHostAndPort takes it.
absl::Status CheckHttpAddress(absl::string_view address);

// 127.x.x.x and ::1: nobody reaches it from elsewhere.
bool IsLoopback(const HostAndPort& at);

// HOST:PORT with another port, an IPv6 address in brackets.
std::string WithPort(const HostAndPort& at, int port);

// As the kernel takes it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
SocketAddress ToSocketAddress(const HostAndPort& at);

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_HOST_AND_PORT_H_
