#include "broker/page/stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/time/clock.h"

namespace vrambroker::page {
namespace {

// Waits until the socket is ready; false: it was not by then.
bool WaitUntil(int fd, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool IsAgain() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

BoundedStream::BoundedStream(int fd, const StreamLimits& limits)
    : fd_(fd), limits_(limits), read_until_(absl::Now() + limits.request_time) {}

bool BoundedStream::Fill() {
  while (fault_ == Fault::kNone) {
    if (total_ >= limits_.request_bytes) {
      fault_ = Fault::kTooLong;
      break;
    }
    const size_t most = std::min(sizeof(buffer_), limits_.request_bytes - total_);
    const ssize_t got = recv(fd_, buffer_, most, MSG_DONTWAIT);
    if (got > 0) {
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      total_ += end_;
      return true;
    }
    if (got == 0 || !IsAgain()) {
      fault_ = Fault::kEnded;
    } else if (!WaitUntil(fd_, POLLIN, read_until_)) {
      fault_ = Fault::kTooLate;
    }
  }
  return false;
}

bool BoundedStream::ReaderLeft() const {
  pollfd one{fd_, POLLRDHUP, 0};
  return broken_ || (poll(&one, 1, 0) > 0 && one.revents != 0);
}

ssize_t BoundedStream::read(char* to, size_t size) {
  if (begin_ == end_ && !Fill()) return fault_ == Fault::kEnded ? 0 : -1;
  const size_t count = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_ + begin_, count);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t BoundedStream::write(const char* from, size_t size) {
  const absl::Time deadline = absl::Now() + limits_.write_time;
  size_t done = 0;
  while (done < size && !broken_) {
    const ssize_t sent = send(fd_, from + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      done += static_cast<size_t>(sent);
      wrote_ = true;
    } else if (!IsAgain() || !WaitUntil(fd_, POLLOUT, deadline)) {
      broken_ = true;
    }
  }
  return broken_ ? -1 : static_cast<ssize_t>(done);
}

// Nobody asks for these: requests are not told apart by where they come from.
void BoundedStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void BoundedStream::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

}  // namespace vrambroker::page
