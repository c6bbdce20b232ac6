#include "broker/server/decision_feed.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/calls.h"
#include "broker/server/convert_answers.h"

namespace vrambroker::server {

std::shared_ptr<DecisionStream> DecisionStream::Create() {
  std::shared_ptr<DecisionStream> stream(new DecisionStream());
  stream->self_ = stream;
  return stream;
}

void DecisionStream::Send(DecisionPtr decision) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (closing_) return;
  if (waiting_.size() >= kMaxWaiting) {
    CloseLocked(absl::ResourceExhaustedError(absl::StrCat(
        waiting_.size(), " decisions wait for this watcher to read, which is the bound: it is cut ",
        "off. Watch again with after_decision_id ", last_sent_, ", or read faster")));
  } else {
    waiting_.push_back(std::move(decision));
  }
  Proceed(std::move(lock));
}

void DecisionStream::Close(const absl::Status& status) {
  std::unique_lock<std::mutex> lock(mutex_);
  CloseLocked(status);
  Proceed(std::move(lock));
}

void DecisionStream::CloseLocked(const absl::Status& status) {
  if (closing_) return;
  closing_ = true;
  waiting_.clear();
  status_ = ToGrpc(status);
}

bool DecisionStream::done() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return closing_;
}

void DecisionStream::Proceed(std::unique_lock<std::mutex> lock) {
  if (writing_ != nullptr || finished_) return;
  if (closing_) {
    finished_ = true;
    const grpc::Status status = status_;
    lock.unlock();
    Finish(status);
  } else if (!waiting_.empty()) {
    writing_ = std::move(waiting_.front());
    waiting_.pop_front();
    last_sent_ = writing_->id();
    const v1::Decision* decision = writing_.get();
    lock.unlock();
    StartWrite(decision);
  }
}

void DecisionStream::OnWriteDone(bool ok) {
  std::unique_lock<std::mutex> lock(mutex_);
  writing_ = nullptr;
  if (!ok) CloseLocked(absl::CancelledError("the caller is gone"));
  Proceed(std::move(lock));
}

void DecisionStream::OnCancel() { Close(absl::CancelledError("the caller ended the stream")); }

void DecisionStream::OnDone() {
  const std::shared_ptr<DecisionStream> self = std::move(self_);
  std::lock_guard<std::mutex> lock(mutex_);
  closing_ = true;
}

void DecisionFeed::DropDoneLocked() {
  std::erase_if(watchers_, [](const Watcher& watcher) { return watcher.stream->done(); });
  count_ = watchers_.size();
}

absl::Status DecisionFeed::Add(const std::shared_ptr<DecisionStream>& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return absl::UnavailableError("the broker is stopping; watch again with backoff");
  DropDoneLocked();
  if (watchers_.size() >= kMaxWatchers) {
    return absl::ResourceExhaustedError(absl::StrCat(
        watchers_.size(), " watch the decisions, at most ", kMaxWatchers, "; use ListDecisions"));
  }
  watchers_.push_back({stream});
  count_ = watchers_.size();
  return absl::OkStatus();
}

void DecisionFeed::Begin(const std::shared_ptr<DecisionStream>& stream,
                         const std::vector<DecisionStream::DecisionPtr>& before) {
  for (const auto& decision : before) stream->Send(decision);
  std::lock_guard<std::mutex> lock(mutex_);
  for (Watcher& watcher : watchers_) watcher.begun |= watcher.stream == stream;
}

void DecisionFeed::Decided(const core::Decision& decision) {
  if (count_ == 0) return;
  auto message = std::make_shared<v1::Decision>();
  Write(decision, message.get());
  const DecisionStream::DecisionPtr sent = std::move(message);
  std::vector<std::shared_ptr<DecisionStream>> watching;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    DropDoneLocked();
    for (const Watcher& watcher : watchers_) {
      if (watcher.begun) watching.push_back(watcher.stream);
    }
  }
  for (const auto& stream : watching) stream->Send(sent);
}

void DecisionFeed::Close(const absl::Status& status) {
  std::vector<Watcher> watchers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    watchers.swap(watchers_);
    count_ = 0;
  }
  for (const Watcher& watcher : watchers) watcher.stream->Close(status);
}

}  // namespace vrambroker::server
