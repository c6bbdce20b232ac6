#include "broker/server/peers.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace vrambroker::server {
namespace {

// Numbers below are left to everything else.
constexpr int kFirstNumber = 128;

// 0: not open.
uint64_t InodeOf(int descriptor) {
  struct stat info;
  return fstat(descriptor, &info) == 0 ? info.st_ino : 0;
}

int PastLastNumber() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 65536) return 65536;
  return static_cast<int>(limit.rlim_cur);
}

}  // namespace

int PeerTable::Renumber(int descriptor) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int past_last = PastLastNumber();
  if (next_number_ < kFirstNumber || next_number_ >= past_last) next_number_ = kFirstNumber;
  int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, next_number_);
  if (moved < 0) moved = fcntl(descriptor, F_DUPFD_CLOEXEC, std::min(kFirstNumber, past_last / 2));
  const int error = errno;
  close(descriptor);
  if (moved < 0) {
    errno = error;
    return -1;
  }
  next_number_ = moved + 1;
  return moved;
}

bool PeerTable::Put(int descriptor, observe::Peer peer, RoleSet roles) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.erase(descriptor);
  if (entries_.size() >= forget_at_) {
    ForgetClosed();
    forget_at_ = std::max<size_t>(64, 2 * entries_.size());
  }
  if (entries_.size() >= kMaxConnections) ForgetClosed();
  if (entries_.size() >= kMaxConnections) return false;
  entries_[descriptor] = {{std::make_shared<const observe::Peer>(std::move(peer)), roles},
                          InodeOf(descriptor)};
  return true;
}

PeerTable::Known PeerTable::Find(const std::string& grpc_peer) const {
  absl::string_view text(grpc_peer);
  int descriptor = -1;
  if (!absl::ConsumePrefix(&text, "fd:") || !absl::SimpleAtoi(text, &descriptor)) return {};
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(descriptor);
  return found == entries_.end() ? Known() : found->second.known;
}

size_t PeerTable::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

void PeerTable::ForgetClosed() {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (InodeOf(here->first) != here->second.inode) entries_.erase(here);
  }
}

}  // namespace vrambroker::server
