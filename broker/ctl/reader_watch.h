// Who reads what is printed to standard output: programs that print for long end with their reader.
#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <thread>

namespace vrambroker::ctl {

// What a poll without events says of a descriptor that is written to: nobody will read it any more.
inline bool ReaderLeft(const pollfd& polled) {
  return (polled.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

// Ends this process as a write to a pipe without a reader does, silently by SIGPIPE. Returns where
// that signal is ignored.
void EndWithReader();

// Looks, on a thread of its own, whether somebody reads a descriptor.
class ReaderWatch {
 public:
  // `on_left` is called once, on that thread, where the reader leaves.
  ReaderWatch(int descriptor, std::function<void()> on_left);
  ~ReaderWatch();
  ReaderWatch(const ReaderWatch&) = delete;
  ReaderWatch& operator=(const ReaderWatch&) = delete;

  bool left() const { return left_; }

 private:
  void Run();

  const int descriptor_;
  const std::function<void()> on_left_;
  const int stop_;  // an eventfd
  std::atomic<bool> left_ = false;
  std::thread thread_;
};

}  // namespace vrambroker::ctl
