// What who connects to a Unix socket may do. Whether he may connect at all, the socket's mode and
// group say.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "broker/observe/peer.h"
#include "broker/server/roles.h"

namespace vrambroker::server {

class UnixRoles {
 public:
  // Everybody has all roles.
  UnixRoles() = default;
  // Where a group is given, only root, the user of this process and the members of that group have
  // the role admin. INVALID_ARGUMENT where there is no such group.
  static absl::StatusOr<UnixRoles> Create(const std::string& admin_group);

  // By the kernel's word of the connected socket: the groups are those that the process had when it
  // connected.
  RoleSet Of(int socket, const observe::Peer& peer) const;

 private:
  std::optional<gid_t> admin_group_;
};

}  // namespace vrambroker::server
