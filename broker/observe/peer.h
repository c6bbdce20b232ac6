// Who is at the other end of a Unix socket, by the kernel's word.
#ifndef VRAMBROKER_BROKER_OBSERVE_PEER_H_
#define VRAMBROKER_BROKER_OBSERVE_PEER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {

struct Peer {
  // In our pid namespace, at the time of connect(). 0: a process of another namespace.
  int32_t pid = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  // In clock ticks since boot. 0: not known (another namespace, or died meanwhile).
  uint64_t start_ticks = 0;
  // 0: pid names it here. Otherwise what tells a process of another namespace from all others of
  // this boot: the number of its pidfd's inode (Linux 6.9 and newer), or 1 where there is none.
  uint64_t foreign_id = 0;
  // Becomes readable at the peer's death; for ProcessWatch::WatchPidfd. None where the process was
  // gone already (`died`), or is of another namespace and the kernel knows no SO_PEERPIDFD.
  UniqueFd pidfd;
  // Whether the kernel gave the pidfd with the socket (Linux 6.5 and newer). If not, it was opened
  // by the pid: a peer that died and whose pid was taken within the time from its connect() to this
  // call would be mistaken for the one that took it.
  bool pidfd_of_socket = false;
  // The process that connected is known to have died. False says nothing: ask the pidfd.
  bool died = false;
};

// Reads the peer of a connected Unix socket. INVALID_ARGUMENT for any other descriptor;
// RESOURCE_EXHAUSTED where no descriptor is free. A descriptor handed on to another process still
// names the one that connected.
absl::StatusOr<Peer> ReadPeer(int socket);

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_PEER_H_
