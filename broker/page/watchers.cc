#include "broker/page/watchers.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::page {

absl::StatusOr<std::shared_ptr<Watchers::Watch>> Watchers::Add(absl::Duration patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  // One who has left is noticed within moments; until then its place is not free.
  changed_.wait_for(lock, absl::ToChronoMilliseconds(patience),
                    [this] { return closed_ || count_ < bound_; });
  if (closed_) return absl::UnavailableError("the broker is stopping");
  if (count_ >= bound_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(count_, " watch this page, at most ", bound_,
                     " may; close one of them, or ask /api/picture now and then"));
  }
  if (count_ == 0) {
    // What was there when the last one left says nothing about now.
    newest_ = nullptr;
    if (absl::Status status = source_.begin(shared_from_this()); !status.ok()) return status;
  } else {
    source_.renew();
  }
  ++count_;
  return std::make_shared<Watch>(shared_from_this(), number_);
}

void Watchers::Remove() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (--count_ == 0) source_.end();
  changed_.notify_all();
}

void Watchers::Publish(FramePtr frame) {
  std::lock_guard<std::mutex> lock(mutex_);
  newest_ = std::move(frame);
  ++number_;
  changed_.notify_all();
}

FramePtr Watchers::Next(uint64_t* seen, absl::Duration patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoMilliseconds(patience),
                    [&] { return closed_ || (newest_ != nullptr && *seen != number_); });
  if (closed_ || newest_ == nullptr || *seen == number_) return nullptr;
  *seen = number_;
  return newest_;
}

void Watchers::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool Watchers::closed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return closed_;
}

size_t Watchers::count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return count_;
}

}  // namespace vrambroker::page
