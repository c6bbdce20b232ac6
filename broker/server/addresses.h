// Where a broker listens.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vrambroker::server {

struct Address {
  // A Unix socket's path; empty: TCP.
  std::string path;
  // Without brackets.
  std::string host;
  // 0: any free port.
  int port = 0;

  bool is_unix() const { return !path.empty(); }
};

// "unix:PATH" (or "unix:///PATH") with a path of at most 107 bytes, or HOST:PORT, an IPv6 host in
// brackets: INVALID_ARGUMENT for anything else.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// TCP that does not leave the machine: localhost, 127.x.x.x, ::1.
bool IsLoopback(const Address& address);

// As ParseAddress takes it, and a gRPC client.
std::string ToString(const Address& address);

// vram-broker below `system` (/run) where that is writable, or is not there and can be made; else
// below `xdg_runtime_dir`, else (empty) /run/user/<uid>. Clients that are told nothing look for a
// socket in the same places.
std::string RunDir(const std::string& system, const std::string& xdg_runtime_dir);
// For /run and $XDG_RUNTIME_DIR.
std::string DefaultRunDir();

}  // namespace vrambroker::server
