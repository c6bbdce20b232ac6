// A file descriptor with one owner.
#ifndef VRAMBROKER_BROKER_OBSERVE_UNIQUE_FD_H_
#define VRAMBROKER_BROKER_OBSERVE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace vrambroker::observe {

// Closes its descriptor when it goes. Movable only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  // Below 0: none.
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Hands the descriptor to the caller, who closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_UNIQUE_FD_H_
