#include "broker/ctl/decision_log_reader.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "broker/ctl/logged_line_checks.h"

namespace vrambroker::ctl {
namespace {

absl::Status ParseLine(const std::string& text, v1::DecisionLogLine* line) {
  constexpr size_t kShown = 200;
  line->Clear();
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of later brokers
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, line, options);
  if (parsed.ok()) return absl::OkStatus();
  const auto message = parsed.message();
  return absl::InvalidArgumentError(
      absl::StrCat("no line of a decision log: ",
                   absl::Utf8SafeCHexEscape(absl::string_view(
                       message.data(), std::min<size_t>(message.size(), kShown)))));
}

}  // namespace

absl::Status InLine(int64_t number, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("line ", number, ": ", status.message()));
}

absl::StatusOr<bool> DecisionLogReader::ReadText(std::string* text) {
  text->clear();
  for (int c = in_->get(); c != std::istream::traits_type::eof(); c = in_->get()) {
    if (c == '\n') {
      ++read_;
      return true;
    }
    if (text->size() >= kMostLineBytes) {
      return InLine(read_ + 1, absl::InvalidArgumentError(absl::StrCat(
                                   "longer than ", kMostLineBytes, " bytes, which is the bound")));
    }
    text->push_back(static_cast<char>(c));
  }
  if (in_->bad()) return absl::DataLossError("cannot be read to its end");
  if (text->empty()) return false;
  ++read_;
  return true;
}

absl::StatusOr<bool> DecisionLogReader::Parse(std::string text, v1::DecisionLogLine* line) {
  const absl::Status status = ParseLine(text, line);
  if (status.ok()) return true;
  // A file of something else does not begin as a header does.
  if (!headed_ && !absl::StartsWith(text, "{")) return InLine(number_, status);
  // Only what a crash cut off has nothing, or another broker's header, behind it.
  absl::StatusOr<bool> more = ReadText(&text);
  if (!more.ok()) return more;
  if (*more && (!ParseLine(text, line).ok() || !line->has_header())) {
    return InLine(number_, status);
  }
  ++torn_;
  number_ = read_;
  return more;
}

absl::Status DecisionLogReader::CheckWhole(const v1::DecisionLogLine& line) {
  if (!headed_ && !line.has_header()) {
    return absl::InvalidArgumentError(
        "no header; a decision log begins with one (vram-brokerd --decision-log=FILE writes it)");
  }
  if (line.has_header() && line.header().version() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("header.version: ", line.header().version(),
                                                   " given, 1 is known to this vramctl"));
  }
  if (absl::Status status = CheckLoggedLine(line); !status.ok()) return status;
  if (!line.has_time()) return absl::OkStatus();
  if (!first_seconds_.has_value()) first_seconds_ = SecondsOf(line);
  const double away = std::abs(SecondsOf(line) - *first_seconds_);
  if (away <= kMostLoggedSeconds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("time: ", away,
                                                 " seconds from the first of the file, at most ",
                                                 kMostLoggedSeconds, " are allowed"));
}

absl::StatusOr<bool> DecisionLogReader::Next(v1::DecisionLogLine* line) {
  std::string text;
  absl::StatusOr<bool> more = ReadText(&text);
  number_ = read_;
  if (more.ok() && *more) more = Parse(std::move(text), line);
  if (!more.ok() || !*more) return more;
  if (absl::Status status = CheckWhole(*line); !status.ok()) return InLine(number_, status);
  headed_ = true;
  return true;
}

}  // namespace vrambroker::ctl
