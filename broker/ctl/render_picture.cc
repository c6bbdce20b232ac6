#include "broker/ctl/render_picture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/render.h"

namespace vrambroker::ctl {
namespace {

constexpr size_t kLeastColumns = 40;
// Wider bars say no more.
constexpr size_t kWidestBar = 120;
// Of an entry of the legend, with the space after it.
constexpr size_t kLegendColumns = 35;

struct LedgerClass {
  char glyph;
  const char* name;
  int64_t bytes;
  Style style;
};

std::vector<LedgerClass> ClassesOf(const v1::DevicePicture& device) {
  return {{'#', "in use", device.in_use_bytes(), Style::kInUse},
          {'=', "retained", device.retained_bytes(), Style::kRetained},
          {'@', "permanent", device.permanent_bytes(), Style::kPermanent},
          {'o', "pooled", device.pooled_bytes(), Style::kPooled},
          {'~', "draining", device.draining_bytes(), Style::kDraining},
          {'x', "external", device.external_bytes(), Style::kExternal},
          {'-', "reserve", device.reserve_bytes(), Style::kReserve},
          {'.', "free", device.free_bytes(), Style::kPlain}};
}

bool IsUnknown(const LedgerClass& one, const v1::DevicePicture& device) {
  return one.glyph == 'x' && !device.external_known();
}

// "# in use      12.00 GiB   50.0 %".
Line LegendEntry(const LedgerClass& one, const v1::DevicePicture& device) {
  std::string figures = "   not known";
  if (!IsUnknown(one, device)) {
    const double share =
        device.capacity_bytes() == 0
            ? 0
            : 100.0 * static_cast<double>(one.bytes) / static_cast<double>(device.capacity_bytes());
    figures = absl::StrFormat("%12s  %5.1f %%", RenderBytes(one.bytes), share);
  }
  return {{std::string(1, one.glyph), one.style},
          {absl::StrFormat(" %-9s%s", one.name, figures), Style::kPlain}};
}

// Classes of nothing are left out, but for what is free.
std::vector<Line> Legend(const v1::DevicePicture& device, size_t columns) {
  std::vector<Line> lines;
  const size_t in_a_row = std::max<size_t>(1, (columns + 1) / kLegendColumns);
  size_t entries = 0;
  for (const LedgerClass& one : ClassesOf(device)) {
    if (one.bytes == 0 && one.glyph != '.' && !IsUnknown(one, device)) continue;
    if (entries++ % in_a_row == 0) lines.push_back({{"  "}});
    Line& line = lines.back();
    const size_t begin = 2 + (entries - 1) % in_a_row * kLegendColumns;
    line.push_back({std::string(begin - Paint(line, false).size(), ' ')});
    for (Span& span : LegendEntry(one, device)) line.push_back(std::move(span));
  }
  return lines;
}

std::string RenderSeconds(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.1f s",
                         static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9);
}

std::string ComponentState(const v1::ComponentPicture& component) {
  std::vector<std::string> notes;
  if (component.lifetime() == v1::LIFETIME_PERMANENT) notes.push_back("permanent");
  if (component.refused()) notes.push_back("refused: it does not fit");
  if (component.use_id() != 0) {
    notes.push_back(absl::StrCat("use ", component.use_id(), " runs"));
  } else if (component.target_layers() < component.held_layers()) {
    notes.push_back(component.has_release_asked()
                        ? absl::StrCat("releasing for ", RenderSeconds(component.release_asked()))
                        : "releasing");
    if (component.release_overdue()) notes.push_back("overdue");
  } else if (component.target_layers() > component.held_layers()) {
    notes.push_back("loading ahead");
  } else if (component.held_layers() > 0) {
    notes.push_back("kept");
  }
  if (component.generation() != component.completed_generation()) notes.push_back("converging");
  return absl::StrJoin(notes, ", ");
}

void Alarm(Line* line) {
  for (Span& span : *line) span.style = Style::kAlarm;
}

void Append(std::vector<Line> lines, std::vector<Line>* out) {
  for (Line& line : lines) out->push_back(std::move(line));
}

// A paragraph of its own, where there is anything.
void AppendApart(std::vector<Line> lines, std::vector<Line>* out) {
  if (lines.empty()) return;
  if (!out->empty()) out->push_back({});
  Append(std::move(lines), out);
}

}  // namespace

std::vector<int> BarCells(const std::vector<int64_t>& parts, int cells) {
  std::vector<int> taken(parts.size(), 0);
  const auto share = [&](size_t i) { return static_cast<double>(std::max<int64_t>(0, parts[i])); };
  double whole = 0;
  for (size_t i = 0; i < parts.size(); ++i) whole += share(i);
  if (whole <= 0) return taken;
  // A part ends where all up to it end, so that nothing is lost by rounding.
  double end = 0;
  int done = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    end += share(i);
    const int until = static_cast<int>(std::lround(end / whole * cells));
    taken[i] = std::exchange(done, until);
    taken[i] = until - taken[i];
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] <= 0 || taken[i] > 0) continue;
    const auto most = std::max_element(taken.begin(), taken.end());
    if (*most < 2) break;
    --*most;
    ++taken[i];
  }
  return taken;
}

Line LedgerBar(const v1::DevicePicture& device, size_t columns) {
  const std::vector<LedgerClass> classes = ClassesOf(device);
  std::vector<int64_t> parts;
  parts.reserve(classes.size());
  for (const LedgerClass& one : classes) parts.push_back(one.bytes);
  const std::vector<int> cells = BarCells(parts, static_cast<int>(columns - 2));
  Line bar = {{"["}};
  for (size_t i = 0; i < classes.size(); ++i) {
    bar.push_back({std::string(static_cast<size_t>(cells[i]), classes[i].glyph), classes[i].style});
  }
  bar.push_back({"]"});
  return bar;
}

std::vector<Line> LedgerLines(const v1::DevicePicture& device, size_t columns) {
  columns = std::max(columns, kLeastColumns);
  std::vector<Line> lines = {{{PrintableAscii(device.uuid()), Style::kHead},
                              {absl::StrCat("  ", RenderBytes(device.capacity_bytes()), ", ",
                                            RenderBytes(device.free_bytes()), " free")}}};
  Line bar = {{"  "}};
  for (Span& span : LedgerBar(device, std::min(columns - 2, kWidestBar))) {
    bar.push_back(std::move(span));
  }
  lines.push_back(std::move(bar));
  Append(Legend(device, columns), &lines);
  if (device.overcommitted_bytes() > 0) {
    lines.push_back({{absl::StrCat("  overcommitted by ", RenderBytes(device.overcommitted_bytes()),
                                   ": the classes sum to more than the card has; nothing grows"),
                      Style::kAlarm}});
  }
  return lines;
}

std::vector<Line> ComponentLines(const v1::DevicePicture& device) {
  std::vector<std::vector<std::string>> rows = {
      {"component", ">held", ">target", ">granted", ">held bytes", ">charge", "state"}};
  std::map<std::string, int> ids;
  for (const v1::ComponentPicture& one : device.components()) ++ids[one.id()];
  for (const v1::ComponentPicture& one : device.components()) {
    rows.push_back(
        {ids[one.id()] == 1 ? one.id() : absl::StrCat(one.id(), " of session ", one.session_id()),
         absl::StrCat(one.held_layers(), "/", one.layers()), absl::StrCat(one.target_layers()),
         one.use_id() == 0 ? "-" : absl::StrCat(one.granted_layers()),
         RenderBytes(one.held_bytes()), RenderBytes(one.charge_bytes()), ComponentState(one)});
  }
  if (rows.size() == 1) return {{{"  no components", Style::kDim}}};
  std::vector<Line> lines = LinesOf(RenderTable(rows));
  for (int i = 0; i < device.components_size(); ++i) {
    if (device.components(i).release_overdue()) Alarm(&lines[static_cast<size_t>(i) + 1]);
  }
  return lines;
}

std::vector<Line> WaitingLines(const v1::Picture& picture) {
  std::vector<std::vector<std::string>> rows = {
      {"waits", ">for", ">needs", ">priority", "held up by"}};
  for (const v1::WaitingUse& one : picture.waiting()) {
    rows.push_back({one.component_id(),
                    absl::StrCat(one.is_long() ? "too long, " : "", RenderSeconds(one.waited())),
                    RenderBytes(one.needed_bytes()), absl::StrCat(one.priority()),
                    one.blocked_by()});
  }
  if (rows.size() == 1) return {};
  std::vector<Line> lines = LinesOf(RenderTable(rows));
  for (int i = 0; i < picture.waiting_size(); ++i) {
    if (picture.waiting(i).is_long()) Alarm(&lines[static_cast<size_t>(i) + 1]);
  }
  return lines;
}

std::vector<Line> SessionLines(const v1::Picture& picture) {
  std::vector<std::vector<std::string>> rows = {
      {"worker", ">session", ">pid", "state", ">pool", "notes"}};
  for (const v1::SessionPicture& one : picture.sessions()) {
    rows.push_back({one.worker(), absl::StrCat(one.session_id()), absl::StrCat(one.pid()),
                    SessionStateWord(one.state()), RenderBytes(one.pool_bytes()),
                    SessionNotes(one)});
  }
  return rows.size() == 1 ? std::vector<Line>() : LinesOf(RenderTable(rows));
}

std::vector<Line> HostMemoryLines(const v1::Picture& picture) {
  const bool nobody = std::all_of(
      picture.host_memory().begin(), picture.host_memory().end(),
      [](const auto& one) { return one.wished_bytes() == 0 && one.charged_bytes() == 0; });
  if (nobody) return {};
  std::vector<std::vector<std::string>> rows = {
      {"host memory of", ">pinned", ">allowed", ">wished", ">budget", ">limit", "notes"}};
  const auto known = [](bool is, int64_t bytes) { return is ? RenderBytes(bytes) : "not known"; };
  for (const v1::HostMemoryPicture& one : picture.host_memory()) {
    const bool over = one.budget_known() && one.charged_bytes() > one.budget_bytes();
    rows.push_back({one.domain().empty() ? "the machine" : one.domain(),
                    RenderBytes(one.pinned_bytes()), RenderBytes(one.allowed_bytes()),
                    RenderBytes(one.wished_bytes()), known(one.budget_known(), one.budget_bytes()),
                    known(one.limit_bytes() > 0, one.limit_bytes()),
                    over ? "over budget: nobody is allowed more" : ""});
  }
  return LinesOf(RenderTable(rows));
}

std::vector<Line> NoticeLines(const v1::Picture& picture) {
  std::vector<Line> lines;
  if (picture.draining()) lines.push_back({{"draining: no use is admitted", Style::kAlarm}});
  if (picture.has_recovery_left()) {
    const int64_t seconds =
        picture.recovery_left().seconds() + (picture.recovery_left().nanos() > 0 ? 1 : 0);
    lines.push_back(
        {{absl::StrCat("recovering from a restart: nothing grows until all workers on record have ",
                       "attached again, at most ", seconds, " s more"),
          Style::kAlarm}});
  }
  return lines;
}

std::vector<Line> PictureLines(const v1::Picture& picture, size_t columns) {
  std::vector<Line> lines = NoticeLines(picture);
  for (const v1::DevicePicture& device : picture.devices()) {
    AppendApart(LedgerLines(device, columns), &lines);
    AppendApart(ComponentLines(device), &lines);
  }
  AppendApart(WaitingLines(picture), &lines);
  AppendApart(SessionLines(picture), &lines);
  AppendApart(HostMemoryLines(picture), &lines);
  return lines;
}

}  // namespace vrambroker::ctl
