#include "stage_workers/card/copy_stream.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "stage_workers/card/compute.h"

namespace vrambroker::card {
namespace {

// What is reserved of the link at a time.
constexpr int64_t kChunkBytes = 256 << 10;
// What is mapped at a time.
constexpr int64_t kMapBytes = 2 << 20;
// The copying thread may be so far ahead of the link before it sleeps, and wakes when half of it is
// used up: so the link is never idle for a late wake-up, and other processes wait no longer than
// that.
constexpr int64_t kAheadNanos = 1'000'000;

void SleepUntilNanos(int64_t deadline) {
  const timespec at = {static_cast<time_t>(deadline / 1'000'000'000), deadline % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

}  // namespace

absl::Status CopyJob::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return moved_; });
  const int64_t ready_at = ready_at_;
  absl::Status status = status_;
  lock.unlock();
  WaitUntilNanos(ready_at);
  return status;
}

bool CopyJob::Done() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return moved_ && MonotonicNanos() >= ready_at_;
}

absl::Duration CopyJob::Took() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!moved_ || !status_.ok() || pace > 0) return absl::ZeroDuration();
  return absl::Nanoseconds(std::max<int64_t>(ready_at_ - began_at_, 0));
}

void CopyJob::Hurry() {
  std::lock_guard<std::mutex> lock(mutex_);
  hurried_ = true;
  changed_.notify_all();
}

void CopyJob::Finish(absl::Status status, int64_t began_at, int64_t ready_at) {
  std::lock_guard<std::mutex> lock(mutex_);
  status_ = std::move(status);
  began_at_ = began_at;
  ready_at_ = ready_at;
  moved_ = true;
  changed_.notify_all();
}

bool CopyJob::SleepPaced(int64_t deadline) {
  const std::chrono::steady_clock::time_point at{std::chrono::nanoseconds(deadline)};
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, at, [this] { return hurried_; });
  return !hurried_;
}

CopyStream::CopyStream(EmulatedMemory* memory) : memory_(memory), thread_([this] { Run(); }) {}

CopyStream::~CopyStream() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    for (Entry& entry : queue_) entry.job->Hurry();
  }
  queued_.notify_all();
  thread_.join();
}

absl::Status CopyStream::Queue(std::shared_ptr<CopyJob> job, absl::Status fault) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.size() >= kMaxQueued) {
      return absl::ResourceExhaustedError(
          absl::StrCat("copy stream: ", kMaxQueued, " copies are queued already: wait for some"));
    }
    queue_.push_back({std::move(job), std::move(fault)});
  }
  queued_.notify_one();
  return absl::OkStatus();
}

void CopyStream::Run() {
  // Sleeps end on time rather than within the usual 50 us.
  prctl(PR_SET_TIMERSLACK, 1);
  while (true) {
    Entry entry;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      queued_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    if (entry.fault.ok()) {
      Copy(*entry.job);
    } else {
      entry.job->Finish(std::move(entry.fault), 0, 0);
    }
  }
}

void CopyStream::Copy(CopyJob& job) {
  const int64_t start = MonotonicNanos();
  bool paced = job.pace > 0;
  int64_t done = 0;
  int64_t ready_at = start;
  const auto pace_time = [&] { return start + static_cast<int64_t>(done / job.pace * 1e9); };
  for (const HostPiece& piece : job.pieces) {
    for (int64_t offset = 0; offset < piece.bytes; offset += kChunkBytes) {
      const int64_t at = piece.device_offset + offset;
      if (job.direction == Direction::kToDevice && offset % kMapBytes == 0) {
        MapStretch(job.allocation->pages, at, at + std::min(kMapBytes, piece.bytes - offset));
      }
      const int64_t bytes = std::min(kChunkBytes, piece.bytes - offset);
      if (paced) paced = job.SleepPaced(pace_time());
      ready_at = memory_->ReserveLink(job.direction, bytes);
      Move(job, piece, offset, bytes);
      done += bytes;
      if (ready_at - MonotonicNanos() > kAheadNanos) SleepUntilNanos(ready_at - kAheadNanos / 2);
    }
  }
  if (paced && job.SleepPaced(pace_time())) ready_at = std::max(ready_at, pace_time());
  // The thread begins a copy a little before the link is through with the one before.
  job.Finish(absl::OkStatus(), std::max(start, last_ready_at_), ready_at);
  last_ready_at_ = ready_at;
}

// Maps the pages of a stretch that is to be written to, those that follow each other together.
void CopyStream::MapStretch(const std::vector<uint32_t>& pages, int64_t begin, int64_t end) {
  const size_t last = (end - 1) / kPageBytes;
  for (size_t i = begin / kPageBytes; i <= last;) {
    size_t next = i + 1;
    while (next <= last && pages[next] == pages[next - 1] + 1) ++next;
    memory_->MapPages(pages[i], static_cast<uint32_t>(next - i));
    i = next;
  }
}

// Moves a stretch of a piece, page by page.
void CopyStream::Move(const CopyJob& job, const HostPiece& piece, int64_t offset, int64_t bytes) {
  while (bytes > 0) {
    const int64_t at = piece.device_offset + offset;
    const uint32_t page = job.allocation->pages[at / kPageBytes];
    const int64_t within = at % kPageBytes;
    const int64_t part = std::min(bytes, kPageBytes - within);
    char* device = memory_->Page(page) + within;
    const char* host = static_cast<const char*>(piece.source) + offset;
    if (job.direction == Direction::kToHost) {
      std::memcpy(const_cast<char*>(host), device, part);
    } else {
      memory_->Touch(page);
      if (piece.source == nullptr) {
        std::memset(device, 0, part);
      } else {
        std::memcpy(device, host, part);
      }
    }
    offset += part;
    bytes -= part;
  }
}

}  // namespace vrambroker::card
