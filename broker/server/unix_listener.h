// A Unix socket whose connections we accept ourselves, to know who is calling, and give to gRPC.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "broker/observe/device_lock.h"
#include "broker/observe/unique_fd.h"
#include "broker/server/log.h"
#include "broker/server/peers.h"
#include "broker/server/unix_roles.h"

namespace vrambroker::server {

class UnixListener {
 public:
  // Takes the path's lock, replaces a socket file that a dead owner left, and listens: connections
  // wait in the kernel until Start(). ALREADY_EXISTS, naming the holder, where another broker has
  // the path; FAILED_PRECONDITION, naming the path, where it is something else than a socket or
  // cannot be made; INVALID_ARGUMENT for a group that does not exist.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Open(const std::string& path, uint32_t mode,
                                                            const std::string& group);
  // Closes without removing the file, unless Stop() came before.
  ~UnixListener();

  // Accepts from here on. All outlive the listener. `roles` says what who connects may do.
  void Start(grpc::Server* server, const UnixRoles* roles, PeerTable* peers, Log* log);
  // Accepts nothing more and removes the file. Connections that were accepted live on.
  void Stop();

  const std::string& path() const { return path_; }

 private:
  UnixListener(observe::FileLock lock, std::string path, observe::UniqueFd socket,
               observe::UniqueFd wake);
  void Run(grpc::Server* server, const UnixRoles* roles, PeerTable* peers, Log* log);
  // Waits for a connection, or `milliseconds` (below 0: for ever) where `accepting` is false.
  // False: stop.
  bool Wait(bool accepting, int milliseconds) const;

  observe::FileLock lock_;
  const std::string path_;
  observe::UniqueFd socket_;
  ino_t inode_ = 0;  // of the socket's file: another's may lie there by now
  observe::UniqueFd wake_;
  std::thread thread_;
};

}  // namespace vrambroker::server
