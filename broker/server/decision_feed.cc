#include "broker/server/decision_feed.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_answers.h"

namespace vrambroker::server {

std::shared_ptr<DecisionStream> DecisionStream::Create() {
  std::shared_ptr<DecisionStream> stream(new DecisionStream());
  stream->KeepAlive(stream);
  return stream;
}

void DecisionStream::Send(MessagePtr decision) {
  std::unique_lock<std::mutex> lock = Lock();
  if (closing_locked()) return;
  if (waiting_.size() >= kMaxWaiting) {
    CloseLocked(absl::ResourceExhaustedError(absl::StrCat(
        waiting_.size(), " decisions wait for this watcher to read, which is the bound: it is cut ",
        "off. Watch again with after_decision_id ", last_sent_, ", or read faster")));
  } else {
    waiting_.push_back(std::move(decision));
  }
  Proceed(std::move(lock));
}

DecisionStream::MessagePtr DecisionStream::TakeLocked() {
  if (waiting_.empty()) return nullptr;
  MessagePtr next = std::move(waiting_.front());
  waiting_.pop_front();
  last_sent_ = next->id();
  return next;
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
                         const std::vector<DecisionStream::MessagePtr>& before) {
  for (const auto& decision : before) stream->Send(decision);
  std::lock_guard<std::mutex> lock(mutex_);
  for (Watcher& watcher : watchers_) watcher.begun |= watcher.stream == stream;
}

void DecisionFeed::Decided(const core::Decision& decision) {
  if (count_ == 0) return;
  auto message = std::make_shared<v1::Decision>();
  Write(decision, message.get());
  const DecisionStream::MessagePtr sent = std::move(message);
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
