// The broker's log: one line for an event, written by a thread of its own so that a slow reader of
// it holds nobody up.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/server/options.h"

namespace vrambroker::server {

// One event with its particulars, in order.
struct LogLine {
  absl::Time time;
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};

LogLine ToLogLine(const core::Decision& decision);
// Without the line end. Text: time, event and name=value, quoted where a value is not one plain
// word. JSON: an object with "time", "event" and the fields as strings.
std::string FormatLine(const LogLine& line, LogFormat format);

// Thread-safe.
class Log {
 public:
  // Lines that wait; past it lines are dropped, and a line says how many.
  static constexpr size_t kMaxWaiting = 8192;

  // Writes to the descriptor, which outlives the log; below 0: nowhere.
  Log(int descriptor, LogFormat format);
  // Writes what waits, for a second at most where nobody reads it.
  ~Log();

  void Write(LogLine line) { Add(std::move(line)); }
  void Write(const core::Decision& decision) { Add(decision); }

 private:
  using Entry = std::variant<LogLine, core::Decision>;

  void Add(Entry entry);
  void Run();
  void WriteOut(const std::vector<Entry>& entries, size_t dropped) const;

  const int descriptor_;
  const LogFormat format_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> waiting_;
  size_t dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace vrambroker::server
