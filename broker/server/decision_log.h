// The decision log of a running broker: lines for a file, made and written by a thread of its own,
// so that neither a slow disk nor a full one holds a decision up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/observe/decision_log_file.h"
#include "broker/server/decision_lines.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::server {

// Thread-safe. A file that is lost (DecisionLogFile::Lost) is noticed when the next lines are
// written, and begun anew; where it cannot be, lines are dropped until it can.
class DecisionLog {
 public:
  // Entries that wait, and estimated bytes of what they rest on; past either they are dropped.
  static constexpr size_t kMaxWaiting = 8192;
  static constexpr int64_t kMaxWaitingBytes = int64_t{32} << 20;

  // Told of lines that were dropped since it was told last, and why, at most every ten seconds; on
  // the log's thread.
  using TellDropped = std::function<void(uint64_t lines, const std::string& why)>;

  DecisionLog(observe::DecisionLogFile file, v1::DecisionLogHeader header, TellDropped tell);
  // Writes what waits.
  ~DecisionLog();

  void Write(const core::LogDecision& decision);
  void Write(v1::DecisionLogLine line);

  // Lines of all logs of this process that are not written yet. May be asked in a signal handler.
  static size_t Unwritten();
  // Lines that are in no file, since the start.
  uint64_t dropped() const { return dropped_; }

 private:
  using Entry = std::variant<core::LogDecision, v1::DecisionLogLine>;

  void Add(Entry entry, int64_t bytes);
  void Run();
  void WriteOut(const std::vector<Entry>& entries);
  std::string LineOf(const Entry& entry);
  void AddLine(const Entry& entry);
  void BeginFile();
  void Flush();
  void Missing(uint64_t lines, const std::string& why);
  void Dropped(uint64_t lines, const std::string& why);
  void TellIfDue(bool last);

  const TellDropped tell_;
  std::atomic<uint64_t> dropped_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> waiting_;
  int64_t waiting_bytes_ = 0;
  const core::Knowledge* newest_ = nullptr;  // of waiting_
  uint64_t refused_ = 0;                     // for want of room, since the thread looked
  bool stopping_ = false;

  // Of the thread:
  observe::DecisionLogFile file_;
  DecisionLines lines_;
  std::string buffer_;
  uint64_t buffered_ = 0;  // lines
  bool begun_ = false;     // the file has its beginning
  // Dropped lines that no line speaks of, and that nobody was told of.
  uint64_t to_say_ = 0;
  uint64_t to_tell_ = 0;
  std::string why_;
  absl::Time told_ = absl::InfinitePast();

  std::thread thread_;
};

}  // namespace vrambroker::server
