// The broker's log: one line for an event, written by a thread of its own so that a slow reader of
// it holds nobody up. A warning or an error is written at once, with all that waits before it, as
// far as the descriptor takes it without blocking: what a crash ends is there to be read.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/core/events.h"
#include "broker/server/options.h"

namespace vrambroker::server {

// One event with its particulars, in order.
struct LogLine {
  absl::Time time;
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
  // Absent: as LevelOf says of the event.
  std::optional<LogLevel> own_level = std::nullopt;

  LogLevel level() const;
};

LogLine ToLogLine(const core::Decision& decision);
// At the level debug: that the core has taken this event, in this time.
LogLine ToLogLine(const core::Event& event, absl::Time now, absl::Duration took);
// By the event's name. Error: something that was asked for is lost. Warning: somebody should look
// at it, and the broker goes on. Debug: the core's steps. Info: all else.
LogLevel LevelOf(const std::string& event);
// Without the line end. Text: time, level, event and name=value, quoted where a value is not one
// plain word. JSON: an object with "time", "level", "event" and the fields as strings.
std::string FormatLine(const LogLine& line, LogFormat format);

// Thread-safe.
class Log {
 public:
  // Lines that wait; past it lines are dropped, and a line says how many.
  static constexpr size_t kMaxWaiting = 8192;

  // Writes to the descriptor, which outlives the log; below 0: nowhere.
  // Lines below `least` are passed over.
  Log(int descriptor, LogFormat format, LogLevel least = LogLevel::kInfo);
  // Writes what waits, for a second at most where nobody reads it.
  ~Log();

  void Write(LogLine line);
  void Write(const core::Decision& decision) {
    if (Takes(LogLevel::kInfo)) Add(decision);
  }
  // Whether lines of this level are written.
  bool Takes(LogLevel level) const { return descriptor_ >= 0 && level >= least_; }
  // Lines of all logs of this process that are not written yet. May be asked in a signal handler.
  static size_t Unwritten();

 private:
  using Entry = std::variant<LogLine, core::Decision>;

  void Add(Entry entry);
  void Run();
  // To be called by the holder of output_mutex_. Takes all that waits; what the descriptor does not
  // take within `patience` (milliseconds) is left over where `keep`, else dropped and counted.
  void WriteOut(int patience, bool keep);
  void GiveUp(size_t dropped);

  const int descriptor_;
  const LogFormat format_;
  const LogLevel least_;
  // Guards the descriptor, so that lines keep their order; before mutex_.
  std::mutex output_mutex_;
  std::string left_over_;
  bool cut_ = false;       // it begins within a line
  size_t left_lines_ = 0;  // at most, of left_over_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> waiting_;
  size_t dropped_ = 0;
  bool left_ = false;  // something is left over for the thread
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace vrambroker::server
