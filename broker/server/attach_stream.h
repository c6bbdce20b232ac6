// The stream of one session: directives to a worker, one write at a time.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "broker/core/events.h"
#include "broker/server/callers.h"
#include "broker/server/pending_directive.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::server {

// Somebody who hears of streams that ended without our doing.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void StreamEnded(core::ConnectionId connection) = 0;
};

// While a write is in flight, what is sent merges (PendingDirective). Thread-safe.
class AttachStream : public grpc::ServerWriteReactor<v1::Directive> {
 public:
  // Keeps itself alive until gRPC is done with it. `listener` outlives the server's streams.
  static std::shared_ptr<AttachStream> Create(StreamListener* listener);

  void Send(const core::SendDirective& directive);
  // Ends the stream with this status, after what was sent before.
  void Close(absl::Status status);

  // Set before it is used by others; then they do not change.
  core::ConnectionId id;
  std::string worker;
  core::Process process;
  std::string device_uuid;
  int components = 0;
  Caller caller;
  // Set by the welcome, in the order of decisions.
  core::SessionId session;

 private:
  explicit AttachStream(StreamListener* listener) : listener_(listener) {}
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  // Begins what is to be done next, if anything.
  void Proceed(std::unique_lock<std::mutex> lock);

  StreamListener* const listener_;
  std::mutex mutex_;
  PendingDirective pending_;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<absl::Status> closing_;
  v1::Directive outgoing_;  // belongs to gRPC while writing_
  std::shared_ptr<AttachStream> self_;
};

// Streams that are open. Thread-safe.
class StreamTable {
 public:
  // Past it an Attach is refused.
  static constexpr size_t kMaxStreams = 2048;

  // Numbers the stream and keeps it. RESOURCE_EXHAUSTED past the bound, UNAVAILABLE once closed.
  absl::Status Add(const std::shared_ptr<AttachStream>& stream);
  // Null: not there (any more).
  std::shared_ptr<AttachStream> Find(core::ConnectionId connection) const;
  std::shared_ptr<AttachStream> Take(core::ConnectionId connection);
  std::vector<std::shared_ptr<AttachStream>> Close();

 private:
  mutable std::mutex mutex_;
  uint64_t last_id_ = 0;
  bool closed_ = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<AttachStream>> streams_;
};

}  // namespace vrambroker::server
