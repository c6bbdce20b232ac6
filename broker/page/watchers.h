// Who watches the picture, and the newest picture for them.
#ifndef VRAMBROKER_BROKER_PAGE_WATCHERS_H_
#define VRAMBROKER_BROKER_PAGE_WATCHERS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace vrambroker::page {

// A picture as text, which the first who wants it makes, for all. Thread-safe.
class Frame {
 public:
  explicit Frame(std::function<std::string()> make) : make_(std::move(make)) {}

  const std::string& text() const {
    std::call_once(once_, [this] { text_ = make_(); });
    return text_;
  }

 private:
  const std::function<std::string()> make_;
  mutable std::once_flag once_;
  mutable std::string text_;
};
using FramePtr = std::shared_ptr<const Frame>;

// Each watcher has a thread of its own that waits here. A slow one misses frames, never the newest,
// and holds nobody up. Thread-safe.
class Watchers : public std::enable_shared_from_this<Watchers> {
 public:
  struct Source {
    // Frames are to be published here from now on, soon the first. Where it fails nobody watches.
    std::function<absl::Status(const std::shared_ptr<Watchers>&)> begin;
    // Somebody has come who has seen none: a frame of now is to be published soon, whether or not
    // anything has changed since the last.
    std::function<void()> renew;
    // No more. None of them calls back.
    std::function<void()> end;
  };

  static std::shared_ptr<Watchers> Create(size_t bound, Source source) {
    return std::shared_ptr<Watchers>(new Watchers(bound, std::move(source)));
  }

  class Watch {
   public:
    // What was published before is not for it.
    Watch(std::shared_ptr<Watchers> watchers, uint64_t seen)
        : watchers_(std::move(watchers)), seen_(seen) {}
    ~Watch() { watchers_->Remove(); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // The newest frame, once. Null: none has come in this time, or it is closed.
    FramePtr Next(absl::Duration patience) { return watchers_->Next(&seen_, patience); }
    bool closed() const { return watchers_->closed(); }

   private:
    const std::shared_ptr<Watchers> watchers_;
    uint64_t seen_;
  };

  // RESOURCE_EXHAUSTED where nobody leaves for `patience` past the bound, UNAVAILABLE once closed,
  // or why the source did not begin.
  absl::StatusOr<std::shared_ptr<Watch>> Add(absl::Duration patience);
  void Publish(FramePtr frame);
  void Close();
  bool closed() const;
  size_t count() const;

 private:
  Watchers(size_t bound, Source source) : bound_(bound), source_(std::move(source)) {}

  void Remove();
  FramePtr Next(uint64_t* seen, absl::Duration patience);

  const size_t bound_;
  const Source source_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  size_t count_ = 0;
  FramePtr newest_;
  // Of the newest frame, from 1.
  uint64_t number_ = 0;
};

}  // namespace vrambroker::page

#endif  // VRAMBROKER_BROKER_PAGE_WATCHERS_H_
