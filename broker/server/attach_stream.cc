#include "broker/server/attach_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/calls.h"

namespace vrambroker::server {

std::shared_ptr<AttachStream> AttachStream::Create(StreamListener* listener) {
  std::shared_ptr<AttachStream> stream(new AttachStream(listener));
  stream->self_ = stream;
  return stream;
}

void AttachStream::Send(const core::SendDirective& directive) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (finished_ || closing_.has_value()) return;
  pending_.Add(directive);
  Proceed(std::move(lock));
}

void AttachStream::Close(absl::Status status) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (finished_ || closing_.has_value()) return;
  closing_ = std::move(status);
  Proceed(std::move(lock));
}

void AttachStream::Proceed(std::unique_lock<std::mutex> lock) {
  if (writing_ || finished_) return;
  if (!pending_.empty()) {
    writing_ = true;
    pending_.Take(&outgoing_);
    lock.unlock();
    StartWrite(&outgoing_);
  } else if (closing_.has_value()) {
    finished_ = true;
    const grpc::Status status = ToGrpc(*closing_);
    lock.unlock();
    Finish(status);
  }
}

void AttachStream::OnWriteDone(bool ok) {
  std::unique_lock<std::mutex> lock(mutex_);
  writing_ = false;
  if (!ok) {
    pending_ = PendingDirective();  // nobody reads it any more
    if (!closing_.has_value()) closing_ = absl::CancelledError("the stream was broken");
  }
  Proceed(std::move(lock));
}

void AttachStream::OnCancel() {
  listener_->StreamEnded(id);
  Close(absl::CancelledError("the caller ended the stream"));
}

void AttachStream::OnDone() {
  listener_->StreamEnded(id);
  // The last reference may go here, and this object with it.
  const std::shared_ptr<AttachStream> self = std::move(self_);
}

absl::Status StreamTable::Add(const std::shared_ptr<AttachStream>& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return absl::UnavailableError("the broker is stopping; attach again with backoff");
  if (streams_.size() >= kMaxStreams) {
    return absl::ResourceExhaustedError(absl::StrCat(
        streams_.size(), " sessions are open, at most ", kMaxStreams, "; close one first"));
  }
  stream->id = core::ConnectionId(++last_id_);
  streams_.emplace(last_id_, stream);
  return absl::OkStatus();
}

std::shared_ptr<AttachStream> StreamTable::Find(core::ConnectionId connection) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(connection.value());
  return found == streams_.end() ? nullptr : found->second;
}

std::shared_ptr<AttachStream> StreamTable::Take(core::ConnectionId connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(connection.value());
  if (found == streams_.end()) return nullptr;
  std::shared_ptr<AttachStream> taken = std::move(found->second);
  streams_.erase(found);
  return taken;
}

std::vector<std::shared_ptr<AttachStream>> StreamTable::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  std::vector<std::shared_ptr<AttachStream>> all;
  for (auto& [id, stream] : streams_) all.push_back(std::move(stream));
  streams_.clear();
  return all;
}

}  // namespace vrambroker::server
