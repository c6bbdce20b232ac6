// Decisions for those who watch them, each one, as they fall.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "broker/core/effects.h"
#include "broker/server/message_stream.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::server {

// The stream of one watcher.
class DecisionStream : public MessageStream<v1::Decision> {
 public:
  // Decisions that wait for a watcher to read; past it it is cut off with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWaiting = 8192;

  static std::shared_ptr<DecisionStream> Create();
  void Send(MessagePtr decision);
  void Close(const absl::Status& status) { CloseStream(status); }
  bool done() const { return closed(); }

 private:
  DecisionStream() = default;
  MessagePtr TakeLocked() override;
  void DropLocked() override { waiting_.clear(); }

  std::deque<MessagePtr> waiting_;
  uint64_t last_sent_ = 0;
};

// Thread-safe. A decision waits for nobody, and costs a look at a number where nobody watches.
class DecisionFeed {
 public:
  // Past it a watcher is refused.
  static constexpr size_t kMaxWatchers = 64;

  // From Begin on it is sent what is decided. RESOURCE_EXHAUSTED past the bound, UNAVAILABLE once
  // closed.
  absl::Status Add(const std::shared_ptr<DecisionStream>& stream);
  // In the order of decisions: `before` and then all that follow.
  void Begin(const std::shared_ptr<DecisionStream>& stream,
             const std::vector<DecisionStream::MessagePtr>& before);
  void Decided(const core::Decision& decision);
  void Close(const absl::Status& status);

 private:
  struct Watcher {
    std::shared_ptr<DecisionStream> stream;
    bool begun = false;
  };

  void DropDoneLocked();

  std::atomic<size_t> count_ = 0;  // of watchers_
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<Watcher> watchers_;
};

}  // namespace vrambroker::server
