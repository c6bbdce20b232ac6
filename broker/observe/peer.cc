#include "broker/observe/peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/observe/process_watch.h"

namespace vrambroker::observe {
namespace {

// Of the kernel's interface; the distribution's headers are older.
#ifdef SO_PEERPIDFD
constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kPeerPidfd = 77;
#endif

// The pidfd of the process that connected. On failure none, and errno is the kernel's answer.
UniqueFd PidfdOfSocket(int socket) {
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &size) != 0) return UniqueFd();
  return UniqueFd(pidfd);
}

}  // namespace

absl::StatusOr<Peer> ReadPeer(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.uid == static_cast<uid_t>(-1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "descriptor ", socket, " is no connected Unix socket: SO_PEERCRED gives no credentials"));
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;

  peer.pidfd = PidfdOfSocket(socket);
  peer.pidfd_of_socket = peer.pidfd.valid();
  if (!peer.pidfd.valid()) {
    const int error = errno;
    if (error == EMFILE || error == ENFILE) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no descriptor for the peer's process: ", std::strerror(error)));
    }
    // The kernel knows the option and has no process any more.
    peer.died = error == ESRCH || error == EINVAL;
    if (!peer.died && peer.pid > 0) {
      absl::StatusOr<UniqueFd> opened = OpenPidfd(peer.pid);
      peer.died = absl::IsNotFound(opened.status());
      if (!peer.died && !opened.ok()) return opened.status();
      if (opened.ok()) peer.pidfd = *std::move(opened);
    }
  }
  if (peer.pid == 0) {
    const auto unique = peer.pidfd.valid() ? UniqueIdOfPidfd(peer.pidfd.get())
                                           : absl::StatusOr<uint64_t>(absl::NotFoundError(""));
    peer.foreign_id = unique.ok() ? *unique : 1;
  }
  if (peer.pidfd.valid() && peer.pid > 0) {
    const absl::StatusOr<uint64_t> ticks = ProcessStartTime(peer.pid);
    peer.died = HasDied(peer.pidfd.get());
    // Read while the process still had its pid, if it has not died since.
    if (ticks.ok() && !peer.died) peer.start_ticks = *ticks;
  }
  return peer;
}

}  // namespace vrambroker::observe
