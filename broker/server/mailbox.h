// One item at a time, in order, by whichever thread comes first: no hand-over to another thread
// where nobody else is at work.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace vrambroker::server {

// Items that are posted are handled one after another, in the order of their posting. A thread that
// posts while nobody handles takes that over, for its item and those that others post meanwhile.
// Thread-safe.
template <typename Item>
class Mailbox {
 public:
  // Handles one item. Never runs twice at a time. It may post, which is handled after it; it does
  // not block.
  using Handler = std::function<void(Item)>;

  // At most `bound` items wait (one more is at hand); TryPost past it is refused.
  Mailbox(size_t bound, Handler handler) : bound_(bound), handler_(std::move(handler)) {}
  ~Mailbox() { Close(); }

  enum class Posted { kYes, kFull, kClosed };

  // For items that callers can make without limit.
  Posted TryPost(Item item) { return Put(std::move(item), bound_); }
  // For items whose number something else bounds: open calls, streams, devices. False: closed.
  bool Post(Item item) { return Put(std::move(item), static_cast<size_t>(-1)) == Posted::kYes; }

  // Takes nothing more, drops what waits, and returns when nobody handles. Not to be called by the
  // handler.
  void Close() {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    waiting_.clear();
    idle_.wait(lock, [this] { return !busy_; });
  }

  size_t bound() const { return bound_; }
  // Items that wait; one more may be at hand.
  size_t waiting() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.size();
  }

 private:
  Posted Put(Item item, size_t bound) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (closed_) return Posted::kClosed;
    if (busy_) {
      if (waiting_.size() >= bound) return Posted::kFull;
      waiting_.push_back(std::move(item));
      return Posted::kYes;
    }
    busy_ = true;
    lock.unlock();
    handler_(std::move(item));
    lock.lock();
    while (!waiting_.empty()) {
      Item next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      handler_(std::move(next));
      lock.lock();
    }
    busy_ = false;
    if (closed_) idle_.notify_all();
    return Posted::kYes;
  }

  const size_t bound_;
  const Handler handler_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  bool busy_ = false;
  bool closed_ = false;
  std::deque<Item> waiting_;
};

}  // namespace vrambroker::server
