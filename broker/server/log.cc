#include "broker/server/log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>

#include "absl/time/clock.h"

namespace vrambroker::server {
namespace {

// Lines are written together, so that a busy broker wakes this thread twenty times a second at
// most.
constexpr std::chrono::milliseconds kGather(50);
constexpr int kPatienceMilliseconds = 1000;

constexpr const char* kReasons[] = {
    "unspecified",     "fits_whole",  "planned",          "grow_wait_ended", "kept_for_next_use",
    "kept_by_recency", "no_next_use", "wanted_by_others", "overcommitted",   "load_ahead",
    "unchanged",       "permanent",   "cannot_fit"};
constexpr const char* kKinds[] = {"decision",  "grant",      "refusal",
                                  "retention", "revocation", "load_ahead"};

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool IsPlain(const std::string& value) {
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
  }
  return !value.empty();
}

// False: nobody took all of it in time.
bool WriteAll(int descriptor, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    pollfd query{descriptor, POLLOUT, 0};
    if (poll(&query, 1, kPatienceMilliseconds) == 0) return false;
    // A pipe that is ready takes this much without blocking.
    const size_t piece = std::min<size_t>(text.size() - done, PIPE_BUF);
    const ssize_t written = write(descriptor, text.data() + done, piece);
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) done += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

LogLine ToLogLine(const core::Decision& decision) {
  return {decision.time,
          kKinds[static_cast<int>(decision.kind)],
          {{"component", decision.component},
           {"layers", absl::StrCat(decision.layers, "/", decision.component_layers)},
           {"held", absl::StrCat(decision.held)},
           {"reason", kReasons[static_cast<int>(decision.reason)]},
           {"decision", absl::StrCat(decision.id.value())},
           {"text", decision.text}}};
}

std::string FormatLine(const LogLine& line, LogFormat format) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", line.time, absl::UTCTimeZone());
  if (format == LogFormat::kJson) {
    std::string out = absl::StrCat("{\"time\":\"", time, "\",\"event\":", JsonString(line.event));
    for (const auto& [name, value] : line.fields) {
      absl::StrAppend(&out, ",", JsonString(name), ":", JsonString(value));
    }
    return out + "}";
  }
  std::string out = absl::StrCat(time, " ", line.event);
  for (const auto& [name, value] : line.fields) {
    absl::StrAppend(&out, " ", name, "=", IsPlain(value) ? value : JsonString(value));
  }
  return out;
}

Log::Log(int descriptor, LogFormat format) : descriptor_(descriptor), format_(format) {
  if (descriptor_ >= 0) thread_ = std::thread([this] { Run(); });
}

Log::~Log() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Log::Add(Entry entry) {
  if (descriptor_ < 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) {
    ++dropped_;
    return;
  }
  waiting_.push_back(std::move(entry));
  if (waiting_.size() == 1) changed_.notify_one();
}

void Log::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (!stopping_) changed_.wait_for(lock, kGather, [this] { return stopping_; });
    if (waiting_.empty()) return;  // only when stopping
    std::vector<Entry> entries;
    entries.swap(waiting_);
    const size_t dropped = std::exchange(dropped_, 0);
    lock.unlock();
    WriteOut(entries, dropped);
    lock.lock();
  }
}

void Log::WriteOut(const std::vector<Entry>& entries, size_t dropped) const {
  std::string text;
  for (const Entry& entry : entries) {
    const auto* decision = std::get_if<core::Decision>(&entry);
    absl::StrAppend(
        &text,
        FormatLine(decision != nullptr ? ToLogLine(*decision) : std::get<LogLine>(entry), format_),
        "\n");
  }
  if (dropped != 0) {
    const LogLine line{absl::Now(), "log_lines_dropped", {{"count", absl::StrCat(dropped)}}};
    absl::StrAppend(&text, FormatLine(line, format_), "\n");
  }
  WriteAll(descriptor_, text);
}

}  // namespace vrambroker::server
