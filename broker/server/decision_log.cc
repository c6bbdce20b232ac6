#include "broker/server/decision_log.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/core/explain.h"
#include "broker/server/convert_decision_log.h"

namespace vrambroker::server {
namespace {

// Lines are written together, so that a busy broker wakes this thread fifty times a second at most.
constexpr std::chrono::milliseconds kGather(20);
// Bytes that are written at once.
constexpr size_t kMostBuffered = 256 << 10;
constexpr absl::Duration kTellEvery = absl::Seconds(10);
// Of an entry without a plan, about.
constexpr int64_t kEntryBytes = 1024;

std::atomic<size_t> g_unwritten = 0;

}  // namespace

size_t DecisionLog::Unwritten() { return g_unwritten; }

DecisionLog::DecisionLog(observe::DecisionLogFile file, v1::DecisionLogHeader header,
                         TellDropped tell)
    : tell_(std::move(tell)),
      file_(std::move(file)),
      lines_(std::move(header)),
      thread_([this] { Run(); }) {}

DecisionLog::~DecisionLog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void DecisionLog::Write(const core::LogDecision& decision) {
  Add(decision, decision.knowledge == nullptr ? 0 : decision.knowledge->bytes);
}

void DecisionLog::Write(v1::DecisionLogLine line) { Add(std::move(line), 0); }

// `bytes`: of what the entry rests on, which those that follow each other may share.
void DecisionLog::Add(Entry entry, int64_t bytes) {
  const auto* decision = std::get_if<core::LogDecision>(&entry);
  const core::Knowledge* knowledge = decision == nullptr ? nullptr : decision->knowledge.get();
  std::lock_guard<std::mutex> lock(mutex_);
  if (knowledge == newest_) bytes = 0;
  if (waiting_.size() >= kMaxWaiting || waiting_bytes_ + bytes > kMaxWaitingBytes) {
    ++refused_;
    ++dropped_;
    return;
  }
  if (knowledge != nullptr) newest_ = knowledge;
  waiting_bytes_ += bytes + kEntryBytes;
  ++g_unwritten;
  waiting_.push_back(std::move(entry));
  if (waiting_.size() == 1) changed_.notify_one();
}

void DecisionLog::Run() {
  WriteOut({});  // what the file begins with
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (!stopping_) changed_.wait_for(lock, kGather, [this] { return stopping_; });
    std::vector<Entry> entries;
    entries.swap(waiting_);
    waiting_bytes_ = 0;
    newest_ = nullptr;
    const uint64_t refused = std::exchange(refused_, 0);
    const bool last = stopping_;
    lock.unlock();
    if (refused > 0) {
      Missing(refused, absl::StrCat(kMaxWaiting, " lines waited for the disk, which is the bound"));
    }
    WriteOut(entries);
    g_unwritten -= entries.size();
    TellIfDue(last);
    if (last) return;
    lock.lock();
  }
}

void DecisionLog::WriteOut(const std::vector<Entry>& entries) {
  if (!begun_ || file_.Lost()) BeginFile();
  for (const Entry& entry : entries) {
    if (begun_) {
      AddLine(entry);
    } else {
      Dropped(1, why_);
    }
  }
  Flush();
}

std::string DecisionLog::LineOf(const Entry& entry) {
  return std::visit([this](const auto& one) { return lines_.Of(one); }, entry);
}

void DecisionLog::AddLine(const Entry& entry) {
  std::string line = LineOf(entry);
  if (file_.Full(static_cast<int64_t>(buffer_.size()), static_cast<int64_t>(line.size()))) {
    Flush();
    BeginFile();
    // Again: it may rest on a plan that the file before has.
    if (begun_) line = LineOf(entry);
  }
  if (line.empty() || !begun_) return Dropped(1, line.empty() ? "no JSON can say it" : why_);
  buffer_ += line;
  ++buffered_;
  if (buffer_.size() >= kMostBuffered) Flush();
}

// Where that fails, what is to be written is dropped until it does not.
void DecisionLog::BeginFile() {
  const std::string beginning = lines_.Begin(absl::Now());
  absl::Status status = absl::OkStatus();
  if (file_.Lost()) {
    status = file_.Reopen();
  } else if (file_.Full(0, static_cast<int64_t>(beginning.size())) || begun_) {
    status = file_.Rotate();
  }
  begun_ = false;
  if (status.ok()) status = file_.Append(beginning, /*beginning=*/true);
  begun_ = status.ok();
  if (!status.ok()) why_ = std::string(status.message());
}

void DecisionLog::Flush() {
  if (buffered_ == 0) return;
  std::string said;
  if (to_say_ > 0) {
    v1::DecisionLogLine line;
    WriteTime(absl::Now(), line.mutable_time());
    line.mutable_dropped()->set_lines(to_say_);
    said = ToLine(line);
  }
  const absl::Status status = file_.Append(absl::StrCat(said, buffer_), /*beginning=*/false);
  if (status.ok()) {
    to_say_ = 0;
  } else {
    lines_.Forget();
    Dropped(buffered_, std::string(status.message()));
  }
  buffer_.clear();
  buffered_ = 0;
}

void DecisionLog::Dropped(uint64_t lines, const std::string& why) {
  dropped_ += lines;
  Missing(lines, why);
}

// Lines that are counted already.
void DecisionLog::Missing(uint64_t lines, const std::string& why) {
  to_say_ += lines;
  to_tell_ += lines;
  why_ = why;
}

void DecisionLog::TellIfDue(bool last) {
  const absl::Time now = absl::Now();
  if (to_tell_ == 0 || (!last && now < told_ + kTellEvery)) return;
  told_ = now;
  tell_(std::exchange(to_tell_, 0), why_);
}

}  // namespace vrambroker::server
