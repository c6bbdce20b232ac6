#include "broker/server/picture_feed.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {

std::shared_ptr<PictureStream> PictureStream::Create(absl::Duration min_interval) {
  std::shared_ptr<PictureStream> stream(new PictureStream(min_interval));
  stream->KeepAlive(stream);
  return stream;
}

void PictureStream::Send(PicturePtr picture) {
  std::unique_lock<std::mutex> lock = Lock();
  next_ = std::move(picture);
  Proceed(std::move(lock));
}

PictureFeed::PictureFeed(const Clock& clock, Alarms* alarms, std::function<void()> want_picture)
    : clock_(clock), alarms_(alarms), want_picture_(std::move(want_picture)) {
  alarm_ = alarms_->Add([this] { Ring(); });
}

absl::Status PictureFeed::Add(std::shared_ptr<PictureWatcher> watcher) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return absl::UnavailableError("the broker is stopping; watch again with backoff");
  std::erase_if(watchers_, [](const Entry& entry) { return entry.watcher->done(); });
  if (watchers_.size() >= kMaxWatchers) {
    return absl::ResourceExhaustedError(absl::StrCat(
        watchers_.size(), " watch the picture, at most ", kMaxWatchers, "; use GetPicture"));
  }
  watchers_.push_back({std::move(watcher), clock_.Now(), true});
  SetAlarmLocked();
  return absl::OkStatus();
}

void PictureFeed::Changed() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (watchers_.empty()) return;
  for (Entry& entry : watchers_) entry.stale = true;
  SetAlarmLocked();
}

void PictureFeed::SetAlarmLocked() {
  absl::Time next = absl::InfiniteFuture();
  for (const Entry& entry : watchers_) {
    if (entry.stale) next = std::min(next, entry.due);
  }
  if (next != absl::InfiniteFuture()) alarms_->SetNoLaterThan(alarm_, next);
}

void PictureFeed::Ring() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(watchers_, [](const Entry& entry) { return entry.watcher->done(); });
    if (watchers_.empty()) return;
  }
  want_picture_();
}

void PictureFeed::Deliver(const PictureWatcher::PicturePtr& picture) {
  const absl::Time now = clock_.Now();
  std::vector<std::shared_ptr<PictureWatcher>> due;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Entry& entry : watchers_) {
      if (!entry.stale || entry.due > now) continue;
      entry.stale = false;
      entry.due = now + entry.watcher->min_interval();
      due.push_back(entry.watcher);
    }
    SetAlarmLocked();
  }
  for (const auto& watcher : due) watcher->Send(picture);
}

void PictureFeed::Close(const absl::Status& status) {
  std::vector<Entry> watchers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    watchers.swap(watchers_);
  }
  for (const Entry& entry : watchers) entry.watcher->Close(status);
}

}  // namespace vrambroker::server
