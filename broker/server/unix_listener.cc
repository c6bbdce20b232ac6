#include "broker/server/unix_listener.h"

#include <grp.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace vrambroker::server {
namespace {

constexpr int kBacklog = 128;
constexpr int kPauseMilliseconds = 100;

absl::Status PathError(const std::string& path, absl::string_view what, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("unix:", path, ": ", what, ": ", std::strerror(error)));
}

absl::Status RemoveStale(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : PathError(path, "cannot look at it", errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "unix:", path, ": there is a file that is no socket; remove it or give another path"));
  }
  return unlink(path.c_str()) == 0 ? absl::OkStatus()
                                   : PathError(path, "cannot remove the old socket", errno);
}

absl::Status SetOwner(const std::string& path, uint32_t mode, const std::string& group) {
  if (!group.empty()) {
    const struct group* found = getgrnam(group.c_str());
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("--socket-group: there is no group '", group, "'"));
    }
    if (chown(path.c_str(), static_cast<uid_t>(-1), found->gr_gid) != 0) {
      return PathError(path, absl::StrCat("cannot give it to group ", group), errno);
    }
  }
  if (chmod(path.c_str(), mode) != 0) return PathError(path, "cannot set its mode", errno);
  return absl::OkStatus();
}

absl::StatusOr<observe::UniqueFd> Listen(const std::string& path, uint32_t mode,
                                         const std::string& group) {
  observe::UniqueFd descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!descriptor.valid()) return PathError(path, "no socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Nobody but the owner connects before the mode is set.
  const mode_t before = umask(0177);
  const int bound =
      bind(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(before);
  if (bound != 0) return PathError(path, "cannot bind", error);
  absl::Status status = SetOwner(path, mode, group);
  if (status.ok() && listen(descriptor.get(), kBacklog) != 0) {
    status = PathError(path, "cannot listen", errno);
  }
  if (status.ok()) return descriptor;
  unlink(path.c_str());
  return status;
}

void LogTrouble(Log* log, const std::string& path, const std::string& error) {
  log->Write(
      LogLine{absl::Now(), "connection_refused", {{"address", "unix:" + path}, {"error", error}}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Open(const std::string& path,
                                                                 uint32_t mode,
                                                                 const std::string& group) {
  auto lock = observe::LockSocketPath(path);
  if (!lock.ok()) return lock.status();
  if (absl::Status status = RemoveStale(path); !status.ok()) return status;
  auto listening = Listen(path, mode, group);
  if (!listening.ok()) return listening.status();
  observe::UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return PathError(path, "no eventfd", errno);
  return std::unique_ptr<UnixListener>(
      new UnixListener(*std::move(lock), path, *std::move(listening), std::move(wake)));
}

UnixListener::UnixListener(observe::FileLock lock, std::string path, observe::UniqueFd socket,
                           observe::UniqueFd wake)
    : lock_(std::move(lock)),
      path_(std::move(path)),
      socket_(std::move(socket)),
      wake_(std::move(wake)) {
  struct stat there = {};
  if (lstat(path_.c_str(), &there) == 0) inode_ = there.st_ino;
}

UnixListener::~UnixListener() {
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void UnixListener::Start(grpc::Server* server, const UnixRoles* roles, PeerTable* peers, Log* log) {
  thread_ = std::thread([=, this] { Run(server, roles, peers, log); });
}

void UnixListener::Stop() {
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  if (!socket_.valid()) return;
  struct stat there = {};
  if (lstat(path_.c_str(), &there) == 0 && there.st_ino == inode_) unlink(path_.c_str());
  socket_ = observe::UniqueFd();
}

bool UnixListener::Wait(bool accepting, int milliseconds) const {
  pollfd queries[] = {{wake_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
  poll(queries, accepting ? 2 : 1, milliseconds);
  return (queries[0].revents & POLLIN) == 0;
}

void UnixListener::Run(grpc::Server* server, const UnixRoles* roles, PeerTable* peers, Log* log) {
  while (Wait(true, -1)) {
    observe::UniqueFd accepted(
        accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      LogTrouble(log, path_, std::strerror(errno));
      if (!Wait(false, kPauseMilliseconds)) return;  // out of descriptors: others close some
      continue;
    }
    absl::StatusOr<observe::Peer> peer = observe::ReadPeer(accepted.get());
    if (!peer.ok()) {
      LogTrouble(log, path_, std::string(peer.status().message()));
      continue;
    }
    const RoleSet given = roles->Of(accepted.get(), *peer);
    observe::UniqueFd moved(peers->Renumber(accepted.Release()));
    if (!moved.valid() || !peers->Put(moved.get(), *std::move(peer), given)) {
      LogTrouble(log, path_,
                 absl::StrCat("no room: ", peers->size(), " connections, at most ",
                              PeerTable::kMaxConnections, ", and descriptors by ulimit -n"));
      continue;
    }
    grpc::AddInsecureChannelFromFd(server, moved.Release());
  }
}

}  // namespace vrambroker::server
