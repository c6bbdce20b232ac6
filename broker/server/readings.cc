#include "broker/server/readings.h"

#include <algorithm>

namespace vrambroker::server {

// A probe whose readings the core knows of before they begin.
class Readings::AnnouncedProbe : public observe::DriverProbe {
 public:
  AnnouncedProbe(Readings* readings, std::unique_ptr<observe::DriverProbe> probe)
      : readings_(readings), probe_(std::move(probe)) {}
  const std::string& Uuid() const override { return probe_->Uuid(); }
  absl::StatusOr<observe::DriverReading> Read() override {
    if (!readings_->Announce(Uuid())) return absl::CancelledError("readings are being stopped");
    return probe_->Read();
  }

 private:
  Readings* const readings_;
  const std::unique_ptr<observe::DriverProbe> probe_;
};

Readings::Readings(const Clock& clock, Alarms* alarms, Post post)
    : clock_(clock), alarms_(alarms), post_(std::move(post)) {
  alarm_ = alarms_->Add([this] { RequestWanted(); });
}

Readings::~Readings() { Stop(); }

absl::Status Readings::Start(std::vector<Source> sources, absl::Duration interval) {
  std::vector<std::unique_ptr<observe::DriverProbe>> probes;
  for (Source& source : sources) {
    outside_share_[source.probe->Uuid()] = source.outside_share;
    probes.push_back(std::make_unique<AnnouncedProbe>(this, std::move(source.probe)));
  }
  const auto deliver = [this](const std::string& uuid,
                              const absl::StatusOr<observe::DriverReading>& reading) {
    Deliver(uuid, reading);
  };
  auto thread = observe::ProbeThread::Start(std::move(probes), deliver, {interval});
  if (!thread.ok()) return thread.status();
  std::lock_guard<std::mutex> lock(mutex_);
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

void Readings::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_ != nullptr) thread_->Stop();
}

bool Readings::Announce(const std::string& uuid) {
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return false;
    number = ++announced_;
    last_[uuid] = clock_.Now();
  }
  post_(core::ReadingBeganEvent{uuid, number});
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || begun_ >= number; });
  return !stopping_;
}

void Readings::Began(const core::ReadingBeganEvent& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  begun_ = std::max(begun_, event.reading);
  changed_.notify_all();
}

void Readings::Deliver(const std::string& uuid,
                       const absl::StatusOr<observe::DriverReading>& reading) {
  core::ReadingEvent event;
  event.device_uuid = uuid;
  event.status = reading.status();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    event.reading = announced_;  // one thread reads: this is the newest that was announced
  }
  if (reading.ok()) {
    const int64_t outside = outside_share_[uuid];
    event.total_used = core::Bytes(std::max<int64_t>(0, reading->total_used_bytes - outside));
    event.by_process_known = reading->by_process && outside == 0;
    for (const observe::ProcessUsage& usage : reading->processes) {
      if (event.by_process_known) event.by_process.emplace_back(usage.pid, usage.bytes);
    }
    event.unlisted = core::Bytes(reading->unlisted_bytes);
  }
  post_(std::move(event));
}

void Readings::Want(const std::string& uuid) {
  absl::Time due;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    wanted_.insert(uuid);
    const auto last = last_.find(uuid);
    due = last == last_.end() ? absl::InfinitePast() : last->second + kMinGap;
  }
  alarms_->SetNoLaterThan(alarm_, due);
}

void Readings::RequestWanted() {
  const absl::Time now = clock_.Now();
  absl::Time next = absl::InfiniteFuture();
  std::vector<std::string> due;
  observe::ProbeThread* thread;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    thread = thread_.get();
    if (stopping_ || thread == nullptr) return;
    for (const std::string& uuid : wanted_) {
      const auto last = last_.find(uuid);
      const absl::Time may_begin =
          last == last_.end() ? absl::InfinitePast() : last->second + kMinGap;
      if (may_begin <= now) {
        due.push_back(uuid);
      } else {
        next = std::min(next, may_begin);
      }
    }
    for (const std::string& uuid : due) wanted_.erase(uuid);
  }
  for (const std::string& uuid : due) (void)thread->RequestReading(uuid);
  if (next != absl::InfiniteFuture()) alarms_->SetNoLaterThan(alarm_, next);
}

}  // namespace vrambroker::server
