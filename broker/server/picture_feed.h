// The memory picture for those who watch it: now, and after each change, as fast as each of them
// reads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "broker/server/alarms.h"
#include "broker/server/clock.h"
#include "broker/server/message_stream.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::server {

// Somebody who watches the picture. Thread-safe; nothing blocks.
class PictureWatcher {
 public:
  using PicturePtr = std::shared_ptr<const v1::Picture>;

  virtual ~PictureWatcher() = default;
  virtual void Send(PicturePtr picture) = 0;
  // No picture comes any more.
  virtual void Close(const absl::Status& status) = 0;
  // It wants no more, and is forgotten.
  virtual bool done() const = 0;
  // From one picture to the next, at least.
  virtual absl::Duration min_interval() const = 0;
};

// The stream of one watcher. While it is being written to, only the newest picture waits for it: a
// slow reader misses pictures, costs two at most, and holds nobody up.
class PictureStream : public MessageStream<v1::Picture>, public PictureWatcher {
 public:
  static std::shared_ptr<PictureStream> Create(absl::Duration min_interval);
  void Send(PicturePtr picture) override;
  void Close(const absl::Status& status) override { CloseStream(status); }
  bool done() const override { return closed(); }
  absl::Duration min_interval() const override { return min_interval_; }

 private:
  explicit PictureStream(absl::Duration interval) : min_interval_(interval) {}
  MessagePtr TakeLocked() override { return std::exchange(next_, nullptr); }
  void DropLocked() override { next_ = nullptr; }

  const absl::Duration min_interval_;
  MessagePtr next_;
};

// Thread-safe. Without watchers a change costs one look at a number.
class PictureFeed {
 public:
  // Past it a watcher is refused.
  static constexpr size_t kMaxWatchers = 64;
  static constexpr absl::Duration kMinInterval = absl::Milliseconds(50);

  // `want_picture` asks for one call of Deliver, later, on any thread. `alarms` is not started yet,
  // and outlives this, as does the clock.
  PictureFeed(const Clock& clock, Alarms* alarms, std::function<void()> want_picture);

  // RESOURCE_EXHAUSTED past the bound, UNAVAILABLE once closed.
  absl::Status Add(std::shared_ptr<PictureWatcher> watcher);
  // The picture may differ from the last one.
  void Changed();
  void Deliver(const PictureWatcher::PicturePtr& picture);
  void Close(const absl::Status& status);

 private:
  struct Entry {
    std::shared_ptr<PictureWatcher> watcher;
    absl::Time due;
    bool stale = true;
  };

  void SetAlarmLocked();
  void Ring();

  const Clock& clock_;
  Alarms* const alarms_;
  const std::function<void()> want_picture_;
  size_t alarm_ = 0;
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<Entry> watchers_;
};

}  // namespace vrambroker::server
