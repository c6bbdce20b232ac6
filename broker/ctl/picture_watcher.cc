#include "broker/ctl/picture_watcher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/time/clock.h"

namespace vrambroker::ctl {
namespace {

constexpr std::chrono::seconds kBetweenTries(1);

// A broker that stops ends its streams with UNAVAILABLE; one that dies cuts them, which reads the
// same. Everything else is an answer.
bool MayComeBack(const grpc::Status& status) {
  return status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

}  // namespace

PictureWatcher::PictureWatcher(std::shared_ptr<grpc::Channel> channel, absl::Duration min_interval)
    : channel_(std::move(channel)),
      min_interval_(min_interval),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

PictureWatcher::~PictureWatcher() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  stopped_.notify_all();
  thread_.join();
  close(event_);
}

PictureWatcher::News PictureWatcher::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t count = 0;
  // Nothing to read is no fault: there was no news.
  if (read(event_, &count, sizeof(count)) < 0) count = 0;
  News taken = news_;
  news_.picture = nullptr;
  return taken;
}

void PictureWatcher::Tell(std::shared_ptr<const v1::Picture> picture, const grpc::Status& status,
                          bool over) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (picture != nullptr) {
    news_.picture = std::move(picture);
    news_.received = absl::Now();
  }
  news_.status = status;
  news_.over = over;
  const uint64_t one = 1;
  // It fails only where 2^64 - 2 pieces of news are waiting.
  if (write(event_, &one, sizeof(one)) < 0) news_.over = true;
}

grpc::Status PictureWatcher::WatchOnce() {
  grpc::ClientContext context;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return grpc::Status::CANCELLED;
    context_ = &context;
  }
  v1::WatchPictureRequest request;
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(min_interval_);
  request.mutable_min_interval()->set_seconds(nanoseconds / 1000000000);
  request.mutable_min_interval()->set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
  const auto admin = v1::BrokerAdmin::NewStub(channel_);
  const auto reader = admin->WatchPicture(&context, request);
  v1::Picture picture;
  while (reader->Read(&picture)) {
    Tell(std::make_shared<const v1::Picture>(std::move(picture)), grpc::Status::OK, false);
    picture.Clear();
  }
  grpc::Status status = reader->Finish();
  const std::lock_guard<std::mutex> lock(mutex_);
  context_ = nullptr;
  return status;
}

void PictureWatcher::Run() {
  while (true) {
    grpc::Status status = WatchOnce();
    std::unique_lock<std::mutex> lock(mutex_);
    if (stop_) return;
    lock.unlock();
    if (status.ok()) status = {grpc::StatusCode::UNAVAILABLE, "the broker has ended the stream"};
    Tell(nullptr, status, !MayComeBack(status));
    if (!MayComeBack(status)) return;
    lock.lock();
    if (stopped_.wait_for(lock, kBetweenTries, [this] { return stop_; })) return;
  }
}

}  // namespace vrambroker::ctl
