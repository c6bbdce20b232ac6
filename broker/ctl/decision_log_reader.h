// Reads a decision log (vrambroker/v1/decision_log.proto) line by line.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::ctl {

class DecisionLogReader {
 public:
  // Bytes of one line at most: what a broker of 4,096 components may write of a plan.
  static constexpr size_t kMostLineBytes = 64 << 20;

  // `in` outlives the reader.
  explicit DecisionLogReader(std::istream* in) : in_(in) {}

  // False: the end. What a crash cut off, the last line of the file or of a broker that another one
  // followed, is passed over. INVALID_ARGUMENT, naming the line: it is no line of a decision log,
  // too long, or says what CheckLoggedLine does not allow; its time is further than
  // kMostLoggedSeconds from the first of the file; the first line is no header, or of a version
  // that is not known.
  absl::StatusOr<bool> Next(v1::DecisionLogLine* line);

  // Of the line that Next gave, from 1.
  int64_t number() const { return number_; }
  // Lines that were passed over.
  int64_t torn() const { return torn_; }

 private:
  // False: the end.
  absl::StatusOr<bool> ReadText(std::string* text);
  // The line of that text, or what follows it where it was cut off. False: the end.
  absl::StatusOr<bool> Parse(std::string text, v1::DecisionLogLine* line);
  absl::Status CheckWhole(const v1::DecisionLogLine& line);

  std::istream* const in_;
  int64_t number_ = 0;
  int64_t torn_ = 0;
  int64_t read_ = 0;  // lines
  bool headed_ = false;
  std::optional<double> first_seconds_;  // time of the first line that has one
};

// `status` with the line's number before its message.
absl::Status InLine(int64_t number, const absl::Status& status);

}  // namespace vrambroker::ctl
