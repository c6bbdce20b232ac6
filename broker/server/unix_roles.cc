#include "broker/server/unix_roles.h"

#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {
namespace {

// Of the process that connected, beside its first one. Empty where the kernel does not say.
std::vector<gid_t> FurtherGroups(int socket) {
  std::vector<gid_t> groups(64);
  while (true) {
    socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int rc = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
    if (rc != 0 && (errno != ERANGE || size <= groups.size() * sizeof(gid_t))) return {};
    groups.resize(size / sizeof(gid_t));
    if (rc == 0) return groups;
  }
}

}  // namespace

absl::StatusOr<UnixRoles> UnixRoles::Create(const std::string& admin_group) {
  UnixRoles roles;
  if (admin_group.empty()) return roles;
  const struct group* found = getgrnam(admin_group.c_str());
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--admin-group: there is no group '", admin_group, "'"));
  }
  roles.admin_group_ = found->gr_gid;
  return roles;
}

RoleSet UnixRoles::Of(int socket, const observe::Peer& peer) const {
  RoleSet roles = RoleSet::All();
  if (!admin_group_.has_value() || peer.uid == 0 || peer.uid == geteuid() ||
      peer.gid == *admin_group_) {
    return roles;
  }
  const std::vector<gid_t> groups = FurtherGroups(socket);
  if (std::find(groups.begin(), groups.end(), *admin_group_) == groups.end()) {
    roles.Remove(Role::kAdmin);
  }
  return roles;
}

}  // namespace vrambroker::server
