#include "broker/server/log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "broker/observe/tally.h"

namespace vrambroker::server {
namespace {

// Lines are written together, so that a busy broker wakes this thread twenty times a second at
// most.
constexpr std::chrono::milliseconds kGather(50);
constexpr int kPatienceMilliseconds = 1000;
// Bytes that nobody has read; past it a warning waits as other lines do.
constexpr size_t kMostLeftOver = 64 << 10;

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

template <typename Event>
concept HasHeader = requires(const Event& event) {
  event.header;
};

std::atomic<size_t> g_unwritten = 0;

// Bytes of it that were taken before nobody took any for `patience` milliseconds, or before an
// error, such as of a full disk.
size_t WriteSome(int descriptor, const std::string& text, int patience) {
  size_t done = 0;
  while (done < text.size()) {
    pollfd query{descriptor, POLLOUT, 0};
    if (poll(&query, 1, patience) == 0) return done;
    // A pipe that is ready takes this much without blocking.
    const size_t piece = std::min<size_t>(text.size() - done, PIPE_BUF);
    const ssize_t written = write(descriptor, text.data() + done, piece);
    if (written < 0 && errno != EINTR && errno != EAGAIN) return done;
    if (written > 0) done += static_cast<size_t>(written);
  }
  return done;
}

}  // namespace

LogLevel LevelOf(const std::string& event) {
  constexpr std::pair<absl::string_view, LogLevel> kLevels[] = {
      {"step", LogLevel::kDebug},
      {"connection_refused", LogLevel::kWarning},
      {"long_wait", LogLevel::kWarning},
      {"no_metrics", LogLevel::kWarning},
      {"no_page", LogLevel::kWarning},
      {"not_watched", LogLevel::kWarning},
      {"reading_failed", LogLevel::kWarning},
      {"record_not_read", LogLevel::kWarning},
      {"tls_not_renewed", LogLevel::kWarning},
      {"decision_log_dropped", LogLevel::kError},
      {"log_lines_dropped", LogLevel::kError},
      {"not_recorded", LogLevel::kError}};
  for (const auto& [name, level] : kLevels) {
    if (name == event) return level;
  }
  return LogLevel::kInfo;
}

LogLevel LogLine::level() const { return own_level.has_value() ? *own_level : LevelOf(event); }

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

LogLine ToLogLine(const core::Event& event, absl::Time now, absl::Duration took) {
  LogLine line{now,
               "step",
               {{"of", observe::kEventNames[event.index()]},
                {"microseconds", absl::StrCat(absl::ToInt64Microseconds(took))}}};
  std::visit(
      [&line](const auto& one) {
        using One = std::decay_t<decltype(one)>;
        if constexpr (HasHeader<One>) {
          line.fields.emplace_back("session", absl::StrCat(one.header.session.value()));
          if (one.header.request_id.empty()) return;
          line.fields.emplace_back("request", one.header.request_id);
        } else if constexpr (std::is_same_v<One, core::AttachEvent>) {
          line.fields.emplace_back("worker", one.worker);
        } else if constexpr (std::is_same_v<One, core::ReadingEvent>) {
          line.fields.emplace_back("device", one.device_uuid);
          line.fields.emplace_back(
              "used", one.status.ok() ? core::ToString(one.total_used) : one.status.ToString());
        }
      },
      event);
  return line;
}

std::string FormatLine(const LogLine& line, LogFormat format) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", line.time, absl::UTCTimeZone());
  if (format == LogFormat::kJson) {
    std::string out = absl::StrCat("{\"time\":\"", time, "\",\"level\":\"", NameOf(line.level()),
                                   "\",\"event\":", JsonString(line.event));
    for (const auto& [name, value] : line.fields) {
      absl::StrAppend(&out, ",", JsonString(name), ":", JsonString(value));
    }
    return out + "}";
  }
  std::string out = absl::StrCat(time, " ", NameOf(line.level()), " ", line.event);
  for (const auto& [name, value] : line.fields) {
    absl::StrAppend(&out, " ", name, "=", IsPlain(value) ? value : JsonString(value));
  }
  return out;
}

size_t Log::Unwritten() { return g_unwritten; }

Log::Log(int descriptor, LogFormat format, LogLevel least)
    : descriptor_(descriptor), format_(format), least_(least) {
  if (descriptor_ >= 0) thread_ = std::thread([this] { Run(); });
}

Log::~Log() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  g_unwritten -= left_lines_;
}

void Log::Write(LogLine line) {
  const LogLevel level = line.level();
  if (!Takes(level)) return;
  Add(std::move(line));
  if (level < LogLevel::kWarning) return;
  // Where another thread writes, it writes this as well.
  std::unique_lock<std::mutex> output(output_mutex_, std::try_to_lock);
  if (!output.owns_lock() || left_over_.size() > kMostLeftOver) return;
  WriteOut(/*patience=*/0, /*keep=*/true);
  if (left_over_.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
  changed_.notify_one();
}

void Log::Add(Entry entry) {
  if (descriptor_ < 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) {
    ++dropped_;
    return;
  }
  ++g_unwritten;
  waiting_.push_back(std::move(entry));
  if (waiting_.size() == 1) changed_.notify_one();
}

void Log::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || left_ || !waiting_.empty(); });
    left_ = false;
    if (!stopping_) changed_.wait_for(lock, kGather, [this] { return stopping_; });
    const bool last = stopping_;
    lock.unlock();
    {
      std::lock_guard<std::mutex> output(output_mutex_);
      WriteOut(kPatienceMilliseconds, /*keep=*/false);
    }
    if (last) return;
    lock.lock();
  }
}

void Log::WriteOut(int patience, bool keep) {
  std::vector<Entry> entries;
  size_t dropped = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    entries.swap(waiting_);
    // Said by who also counts what is not written.
    if (!keep) dropped = std::exchange(dropped_, 0);
  }
  for (const Entry& entry : entries) {
    const auto* decision = std::get_if<core::Decision>(&entry);
    absl::StrAppend(
        &left_over_,
        FormatLine(decision != nullptr ? ToLogLine(*decision) : std::get<LogLine>(entry), format_),
        "\n");
  }
  if (dropped != 0) {
    const LogLine line{absl::Now(), "log_lines_dropped", {{"count", absl::StrCat(dropped)}}};
    absl::StrAppend(&left_over_, FormatLine(line, format_), "\n");
  }
  left_lines_ += entries.size();
  const size_t taken = WriteSome(descriptor_, left_over_, patience);
  cut_ = taken > 0 ? left_over_[taken - 1] != '\n' : cut_;
  left_over_.erase(0, taken);
  if (!keep) GiveUp(dropped);
  const size_t left = std::min(
      left_lines_, static_cast<size_t>(std::count(left_over_.begin(), left_over_.end(), '\n')));
  g_unwritten -= left_lines_ - left;
  left_lines_ = left;
}

// A line that was begun is kept, so that its reader finds no half one; the rest is dropped. The
// last line left over says that `dropped` were, if that is above 0.
void Log::GiveUp(size_t dropped) {
  const size_t kept = cut_ ? std::min(left_over_.find('\n') + 1, left_over_.size()) : 0;
  auto lost = static_cast<size_t>(
      std::count(left_over_.begin() + static_cast<std::ptrdiff_t>(kept), left_over_.end(), '\n'));
  if (lost == 0) return;
  left_over_.resize(kept);
  if (dropped != 0) lost += dropped - 1;
  std::lock_guard<std::mutex> lock(mutex_);
  dropped_ += lost;
}

}  // namespace vrambroker::server
