// A stream of messages to one caller: one write in flight, and what waits for it as the stream has
// it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "broker/server/calls.h"

namespace vrambroker::server {

// Thread-safe; nothing blocks. Lives until gRPC is done with it, and as long as somebody else holds
// it.
template <typename Message>
class MessageStream : public grpc::ServerWriteReactor<Message> {
 public:
  using MessagePtr = std::shared_ptr<const Message>;

 protected:
  void KeepAlive(std::shared_ptr<MessageStream> self) { self_ = std::move(self); }

  // With the lock: what is to be written next, taken out, or null; and nothing waits any more.
  virtual MessagePtr TakeLocked() = 0;
  virtual void DropLocked() = 0;

  std::unique_lock<std::mutex> Lock() const { return std::unique_lock<std::mutex>(mutex_); }
  // What waits is not sent any more. The first status counts.
  void CloseLocked(const absl::Status& status) {
    if (closing_) return;
    closing_ = true;
    DropLocked();
    status_ = ToGrpc(status);
  }
  bool closing_locked() const { return closing_; }

  void CloseStream(const absl::Status& status) {
    std::unique_lock<std::mutex> lock = Lock();
    CloseLocked(status);
    Proceed(std::move(lock));
  }
  bool closed() const {
    const std::unique_lock<std::mutex> lock = Lock();
    return closing_;
  }

  void Proceed(std::unique_lock<std::mutex> lock) {
    if (writing_ != nullptr || finished_) return;
    if (closing_) {
      finished_ = true;
      const grpc::Status status = status_;
      lock.unlock();
      this->Finish(status);
      return;
    }
    writing_ = TakeLocked();
    if (writing_ == nullptr) return;
    const Message* message = writing_.get();
    lock.unlock();
    this->StartWrite(message);
  }

 private:
  void OnWriteDone(bool ok) override {
    std::unique_lock<std::mutex> lock = Lock();
    writing_ = nullptr;
    if (!ok) CloseLocked(absl::CancelledError("the caller is gone"));
    Proceed(std::move(lock));
  }
  void OnCancel() override { CloseStream(absl::CancelledError("the caller ended the stream")); }
  void OnDone() override {
    const std::shared_ptr<MessageStream> self = std::move(self_);
    const std::unique_lock<std::mutex> lock = Lock();
    closing_ = true;
  }

  mutable std::mutex mutex_;
  MessagePtr writing_;
  bool finished_ = false;
  bool closing_ = false;
  grpc::Status status_;
  std::shared_ptr<MessageStream> self_;
};

}  // namespace vrambroker::server
