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

constexpr int kBarWidth = 40;

std::string Seconds(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.1f s",
                         static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9);
}

// "LIFETIME_FORWARD" without its prefix, lower case.
std::string Word(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

std::string RenderLedger(const v1::DevicePicture& device) {
  const std::pair<const char*, int64_t> classes[] = {
      {"in use", device.in_use_bytes()},
      {"retained", device.retained_bytes()},
      {"permanent", device.permanent_bytes()},
      {"pooled", device.pooled_bytes()},
      {"draining", device.draining_bytes()},
      {"external", device.external_bytes()},
      {"reserve", device.reserve_bytes()},
      {"free", device.free_bytes()},
      {"overcommitted", device.overcommitted_bytes()}};
  std::string out;
  for (const auto& [name, bytes] : classes) {
    if (bytes == 0 && std::string(name) == "overcommitted") continue;
    const bool unknown = std::string(name) == "external" && !device.external_known();
    const double percent =
        device.capacity_bytes() == 0
            ? 0
            : 100.0 * static_cast<double>(bytes) / static_cast<double>(device.capacity_bytes());
    absl::StrAppend(&out, absl::StrFormat("  %-13s %11s %5.1f %%  %s\n", name,
                                          unknown ? "not known" : RenderBytes(bytes), percent,
                                          RenderBar(bytes, device.capacity_bytes(), kBarWidth)));
  }
  return out;
}

std::string ComponentNotes(const v1::ComponentPicture& component) {
  std::vector<std::string> notes;
  if (component.lifetime() == v1::LIFETIME_PERMANENT) notes.push_back("permanent");
  if (component.refused()) notes.push_back("refused");
  if (component.use_id() != 0) notes.push_back(absl::StrCat("use ", component.use_id()));
  if (component.generation() != component.completed_generation()) notes.push_back("converging");
  return absl::StrJoin(notes, ", ");
}

std::string RenderComponents(const v1::DevicePicture& device) {
  std::vector<std::vector<std::string>> rows = {
      {"component", ">layers", ">held", ">target", ">granted", ">held bytes", ">charge", "notes"}};
  for (const v1::ComponentPicture& one : device.components()) {
    rows.push_back({one.id(), absl::StrCat(one.layers()), absl::StrCat(one.held_layers()),
                    absl::StrCat(one.target_layers()),
                    one.use_id() == 0 ? "-" : absl::StrCat(one.granted_layers()),
                    RenderBytes(one.held_bytes()), RenderBytes(one.charge_bytes()),
                    ComponentNotes(one)});
  }
  return rows.size() == 1 ? "  no components\n" : RenderTable(rows);
}

std::string RenderSessions(const v1::Picture& picture) {
  std::vector<std::vector<std::string>> rows = {
      {"worker", ">session", ">pid", "state", ">pool", "notes"}};
  for (const v1::SessionPicture& one : picture.sessions()) {
    rows.push_back({one.worker(), absl::StrCat(one.session_id()), absl::StrCat(one.pid()),
                    SessionStateWord(one.state()), RenderBytes(one.pool_bytes()),
                    SessionNotes(one)});
  }
  return rows.size() == 1 ? "" : "\n" + RenderTable(rows);
}

std::string RenderWaiting(const v1::Picture& picture) {
  std::vector<std::vector<std::string>> rows = {
      {"waits", ">for", ">needs", ">priority", "blocked by"}};
  for (const v1::WaitingUse& one : picture.waiting()) {
    rows.push_back({one.component_id(), Seconds(one.waited()), RenderBytes(one.needed_bytes()),
                    absl::StrCat(one.priority()), one.blocked_by()});
  }
  return rows.size() == 1 ? "" : "\n" + RenderTable(rows);
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

std::string RenderBar(int64_t part, int64_t whole, int width) {
  if (part <= 0 || whole <= 0) return "";
  const double share = std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
  return std::string(static_cast<size_t>(std::max(1.0, share * width + 0.5)), '#');
}

std::string RenderBytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  const double size = std::abs(value);
  if (size >= 1073741824.0) return absl::StrFormat("%.2f GiB", value / 1073741824.0);
  if (size >= 1048576.0) return absl::StrFormat("%.1f MiB", value / 1048576.0);
  if (size >= 1024.0) return absl::StrFormat("%.1f KiB", value / 1024.0);
  return absl::StrCat(bytes, " B");
}

std::string RenderPicture(const v1::Picture& picture) {
  std::string out;
  if (picture.draining()) out += "draining: no use is admitted\n\n";
  if (picture.has_recovery_left()) {
    absl::StrAppend(&out, "recovering from a restart: nothing grows until all workers on record ",
                    "have attached again, at most ",
                    picture.recovery_left().seconds() + (picture.recovery_left().nanos() > 0),
                    " s more\n\n");
  }
  for (const v1::DevicePicture& device : picture.devices()) {
    absl::StrAppend(&out, device.uuid(), "  ", RenderBytes(device.capacity_bytes()), "\n",
                    RenderLedger(device), "\n", RenderComponents(device));
  }
  return out + RenderSessions(picture) + RenderWaiting(picture);
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
