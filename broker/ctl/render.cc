#include "broker/ctl/render.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "broker/ctl/printable.h"

namespace vrambroker::ctl {
namespace {

// "LIFETIME_FORWARD" without its prefix, lower case.
std::string Word(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

}  // namespace

std::string SessionStateWord(v1::SessionState state) {
  return Word(v1::SessionState_Name(state), "SESSION_STATE_");
}

std::string SessionNotes(const v1::SessionPicture& session) {
  std::vector<std::string> notes;
  if (session.unexplained_bytes() > 0) {
    notes.push_back(RenderBytes(session.unexplained_bytes()) + " unexplained");
  }
  if (session.recorded_bytes() > 0) {
    notes.push_back(RenderBytes(session.recorded_bytes()) + " on record, not attached since");
  }
  if (session.pinned_host_bytes() > session.pin_allowance_bytes()) {
    notes.push_back(RenderBytes(session.pinned_host_bytes() - session.pin_allowance_bytes()) +
                    " of host memory pinned beyond its allowance");
  }
  if (session.under_released()) notes.push_back("under-released");
  if (session.overdue_targets() > 0) {
    notes.push_back(absl::StrCat(session.overdue_targets(), " overdue"));
  }
  return absl::StrJoin(notes, ", ");
}

std::string RenderTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> shown = rows;
  std::vector<size_t> widths(rows.front().size(), 0);
  std::vector<bool> right;
  for (std::string& head : shown.front()) {
    right.push_back(absl::StartsWith(head, ">"));
    if (right.back()) head.erase(0, 1);
  }
  for (std::vector<std::string>& row : shown) {
    for (size_t c = 0; c < widths.size(); ++c) {
      row[c] = PrintableAscii(row[c]);
      if (c + 1 < widths.size()) row[c] = Shortened(row[c], kMaxCellColumns);
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string out;
  for (const std::vector<std::string>& row : shown) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string pad(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, "  ", right[c] ? pad : "", row[c], right[c] ? "" : pad);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

std::string RenderBytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  const double size = std::abs(value);
  if (size >= 1073741824.0) return absl::StrFormat("%.2f GiB", value / 1073741824.0);
  if (size >= 1048576.0) return absl::StrFormat("%.1f MiB", value / 1048576.0);
  if (size >= 1024.0) return absl::StrFormat("%.1f KiB", value / 1024.0);
  return absl::StrCat(bytes, " B");
}

std::string Counted(int64_t count, const char* one, const char* more) {
  return absl::StrCat(count, " ", count == 1 ? one : more);
}

std::string RenderDecisions(const v1::ListDecisionsResponse& decisions) {
  std::vector<std::vector<std::string>> rows = {
      {"time", ">id", "kind", "component", ">held", ">layers", "reason", "text"}};
  for (const v1::Decision& one : decisions.decisions()) {
    const absl::Time time =
        absl::FromUnixSeconds(one.time().seconds()) + absl::Nanoseconds(one.time().nanos());
    rows.push_back(
        {absl::FormatTime("%H:%M:%E3S", time, absl::LocalTimeZone()), absl::StrCat(one.id()),
         Word(v1::DecisionKind_Name(one.kind()), "DECISION_KIND_"), one.component_id(),
         absl::StrCat(one.held_layers()), absl::StrCat(one.layers(), "/", one.component_layers()),
         Word(v1::Reason_Name(one.reason()), "REASON_"), one.text()});
  }
  return rows.size() == 1 ? "no decisions yet\n" : RenderTable(rows);
}

}  // namespace vrambroker::ctl
