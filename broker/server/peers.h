// Who is at the other end of a connection, by the kernel's word.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "broker/observe/peer.h"
#include "broker/server/roles.h"

namespace vrambroker::server {

// Connections that we accepted ourselves and gave to gRPC, by descriptor number. A number may be
// used again after its connection was closed: numbers are handed out in a circle, so that a late
// look at an old connection finds no newer one. Thread-safe.
class PeerTable {
 public:
  using PeerPtr = std::shared_ptr<const observe::Peer>;

  // Of a connection. Without a peer: not one of ours, or no longer.
  struct Known {
    PeerPtr peer;
    RoleSet roles;
  };

  // Connections at a time; past it the next is refused.
  static constexpr size_t kMaxConnections = 2048;

  // Moves the descriptor to the next number of the circle. Below 0, errno set: no number is free;
  // the descriptor is closed.
  int Renumber(int descriptor);
  // False: too many, though those that gRPC has closed were forgotten first.
  bool Put(int descriptor, observe::Peer peer, RoleSet roles);
  // `grpc_peer` is the peer() of a context, "fd:N".
  Known Find(const std::string& grpc_peer) const;
  size_t size() const;

 private:
  struct Entry {
    Known known;
    uint64_t inode = 0;  // of the socket: tells a number that is used again
  };

  void ForgetClosed();

  mutable std::mutex mutex_;
  absl::flat_hash_map<int, Entry> entries_;
  size_t forget_at_ = 64;
  int next_number_ = 0;
};

}  // namespace vrambroker::server
