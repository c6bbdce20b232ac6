#include "broker/ctl/watch_frame.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/render.h"
#include "broker/ctl/render_picture.h"

namespace vrambroker::ctl {
namespace {

constexpr char kEscape = '\x1b';
// A longer one is no sequence.
constexpr size_t kLongestSequence = 16;
// Devices that are listed at once.
constexpr size_t kDevicesShown = 8;
constexpr size_t kDeviceBarColumns = 30;
// A picture of this age is said to be old.
constexpr absl::Duration kOld = absl::Seconds(5);

constexpr std::pair<const char*, Key> kSequences[] = {
    {"[A", Key::kUp},       {"OA", Key::kUp},      {"[B", Key::kDown},      {"OB", Key::kDown},
    {"[C", Key::kNext},     {"OC", Key::kNext},    {"[D", Key::kPrevious},  {"OD", Key::kPrevious},
    {"[Z", Key::kPrevious}, {"[5~", Key::kPageUp}, {"[6~", Key::kPageDown}, {"[H", Key::kHome},
    {"OH", Key::kHome},     {"[1~", Key::kHome},   {"[F", Key::kEnd},       {"OF", Key::kEnd},
    {"[4~", Key::kEnd}};

Key PlainKey(char c) {
  switch (c) {
    case 'q':
    case 'Q':
      return Key::kQuit;
    case '?':
    case 'h':
      return Key::kHelp;
    case '\t':
      return Key::kNext;
    case 'k':
      return Key::kUp;
    case 'j':
      return Key::kDown;
    case ' ':
      return Key::kPageDown;
    case '\x0c':
      return Key::kRedraw;
    default:
      return Key::kOther;
  }
}

// Bytes of the sequence that begins the text, which begins with an escape. 0: it has not ended.
size_t SequenceBytes(absl::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] != '[' && text[1] != 'O') return 1;  // an escape by itself, then another key
  for (size_t i = 2; i < text.size(); ++i) {
    if (text[i] >= '@' && text[i] <= '~') return i + 1;
    if (i + 1 >= kLongestSequence) return i + 1;
  }
  return 0;
}

Key SequenceKey(absl::string_view sequence) {
  for (const auto& [spelt, key] : kSequences) {
    if (sequence.substr(1) == spelt) return key;
  }
  return Key::kOther;
}

size_t DeviceAt(const v1::Picture& picture, const std::string& uuid) {
  for (int i = 0; i < picture.devices_size(); ++i) {
    if (picture.devices(i).uuid() == uuid) return static_cast<size_t>(i);
  }
  return 0;
}

std::vector<Line> Help() {
  std::vector<Line> lines = LinesOf(
      "Keys\n"
      "  q, Ctrl-C             quit\n"
      "  tab, right / left     next, previous device\n"
      "  up, down, k, j        scroll\n"
      "  page up, page down    a screen at once; space: down\n"
      "  home, end             to the top, to the end\n"
      "  Ctrl-L                draw all anew\n"
      "  Ctrl-Z                to the shell; fg comes back\n"
      "  ?                     this, and back\n");
  lines.push_back({});
  for (Line& line : LinesOf("Classes of the ledger\n"
                            "  # in use      layers, window and needs of uses that run\n"
                            "  = retained    kept by components without a use, or loaded ahead\n"
                            "  @ permanent   permanent sets, and fixed bytes of all components\n"
                            "  o pooled      kept by allocators of workers, used by nobody\n"
                            "  ~ draining    asked back, or of workers that were lost\n"
                            "  x external    what the driver shows beyond our workers\n"
                            "  - reserve     never granted\n"
                            "  . free\n")) {
    lines.push_back(std::move(line));
  }
  return lines;
}

// "12 s", "3 min".
std::string RoughAge(absl::Duration age) {
  if (age < absl::Minutes(2)) return absl::StrCat(absl::ToInt64Seconds(age), " s");
  return absl::StrCat(absl::ToInt64Minutes(age), " min");
}

// The address is shortened where the rest would not fit beside it.
Line Title(const WatchScene& scene, size_t columns) {
  constexpr size_t kLeastAddress = 8;
  const std::string time =
      absl::StrCat("  ", absl::FormatTime("%H:%M:%S", scene.now, absl::LocalTimeZone()), "  ");
  const absl::string_view begin = " vram broker at ";
  const absl::string_view keys = "q quits  ? help ";
  const size_t others = begin.size() + time.size() + keys.size();
  const size_t room = columns > others + kLeastAddress ? columns - others : kLeastAddress;
  const std::string address = Shortened(PrintableAscii(scene.address), room);
  return {{absl::StrCat(begin, address, time, std::string(room - address.size(), ' '), keys),
           Style::kTitle}};
}

// Several devices: a line for each of those around the chosen one.
std::vector<Line> DeviceList(const v1::Picture& picture, size_t chosen) {
  std::vector<Line> lines;
  const size_t all = static_cast<size_t>(picture.devices_size());
  if (all < 2) return lines;
  size_t widest = 0;
  for (const v1::DevicePicture& one : picture.devices()) {
    widest = std::max(widest, PrintableAscii(one.uuid()).size());
  }
  widest = std::min(widest, kMaxCellColumns);
  const size_t first =
      std::min(chosen - std::min(chosen, kDevicesShown / 2), all - std::min(all, kDevicesShown));
  for (size_t i = first; i < std::min(all, first + kDevicesShown); ++i) {
    const v1::DevicePicture& one = picture.devices(static_cast<int>(i));
    const std::string name = Shortened(PrintableAscii(one.uuid()), widest);
    Line line = {{i == chosen ? "> " : "  ", Style::kHead},
                 {name + std::string(widest - name.size() + 2, ' '),
                  i == chosen ? Style::kHead : Style::kPlain}};
    line.push_back({absl::StrFormat("%10s free of %10s  ", RenderBytes(one.free_bytes()),
                                    RenderBytes(one.capacity_bytes()))});
    for (Span& span : LedgerBar(one, kDeviceBarColumns)) line.push_back(std::move(span));
    lines.push_back(std::move(line));
  }
  if (all > lines.size()) {
    lines.push_back({{absl::StrCat("  device ", chosen + 1, " of ", all), Style::kDim}});
  }
  return lines;
}

void AppendApart(std::vector<Line> lines, std::vector<Line>* out) {
  if (lines.empty()) return;
  if (!out->empty()) out->push_back({});
  for (Line& line : lines) out->push_back(std::move(line));
}

std::vector<Line> Body(const v1::Picture& picture, size_t chosen, size_t columns) {
  std::vector<Line> body;
  if (picture.devices().empty()) {
    body.push_back({{"  no devices", Style::kDim}});
  } else {
    const v1::DevicePicture& device = picture.devices(static_cast<int>(chosen));
    AppendApart(LedgerLines(device, columns), &body);
    AppendApart(ComponentLines(device), &body);
  }
  AppendApart(WaitingLines(picture), &body);
  AppendApart(SessionLines(picture), &body);
  AppendApart(HostMemoryLines(picture), &body);
  return body;
}

// What stays above the body however far that is scrolled.
std::vector<Line> Top(const WatchScene& scene, const v1::Picture& picture, size_t chosen,
                      size_t columns) {
  std::vector<Line> top = {Title(scene, columns)};
  if (!scene.trouble.empty()) {
    top.push_back(
        {{absl::StrCat("no connection: ", PrintableAscii(scene.trouble)), Style::kAlarm}});
    top.push_back({{absl::StrCat("trying again; the picture is ", RoughAge(scene.age), " old"),
                    Style::kAlarm}});
  }
  for (Line& line : NoticeLines(picture)) top.push_back(std::move(line));
  for (Line& line : DeviceList(picture, chosen)) top.push_back(std::move(line));
  return top;
}

}  // namespace

std::vector<Key> KeyReader::Feed(absl::string_view bytes) {
  absl::StrAppend(&pending_, bytes);
  std::vector<Key> keys;
  absl::string_view left = pending_;
  while (!left.empty()) {
    if (left[0] != kEscape) {
      keys.push_back(PlainKey(left[0]));
      left.remove_prefix(1);
      continue;
    }
    const size_t length = SequenceBytes(left);
    if (length == 0) break;
    keys.push_back(SequenceKey(left.substr(0, length)));
    left.remove_prefix(length);
  }
  pending_ = std::string(left);
  return keys;
}

std::vector<Key> KeyReader::Flush() {
  if (std::exchange(pending_, "").empty()) return {};
  return {Key::kOther};
}

WatchFrame MakeFrame(const WatchScene& scene, const WatchView& view, size_t columns, size_t rows) {
  const v1::Picture picture = Aged(*scene.picture, scene.age);
  const size_t chosen = DeviceAt(picture, view.device_uuid);
  WatchFrame frame;
  frame.lines = Top(scene, picture, chosen, columns);
  const std::vector<Line> body = view.help ? Help() : Body(picture, chosen, columns);
  // At least one row is left to the body, but for a terminal of a single row.
  frame.lines.resize(std::min(frame.lines.size(), std::max<size_t>(1, rows - 1)));
  const size_t room = rows - frame.lines.size();
  const bool gap = room >= 2;
  const bool old = scene.trouble.empty() && scene.age >= kOld;
  if (gap) {
    frame.lines.push_back(
        {{old ? absl::StrCat("unchanged for ", RoughAge(scene.age)) : "", Style::kDim}});
  }
  frame.page = std::max<size_t>(1, room - (gap ? 1 : 0));
  frame.max_scroll = body.size() - std::min(body.size(), frame.page);
  const size_t first = std::min(view.scroll, frame.max_scroll);
  for (size_t i = first; i < body.size() && frame.lines.size() < rows; ++i) {
    frame.lines.push_back(body[i]);
  }
  frame.lines.resize(rows);
  return frame;
}

WatchView After(Key key, const WatchView& view, const v1::Picture& picture,
                const WatchFrame& frame) {
  WatchView next = view;
  next.scroll = std::min(view.scroll, frame.max_scroll);
  const auto to_device = [&](size_t step) {
    const size_t all = static_cast<size_t>(picture.devices_size());
    if (all < 2) return;
    const size_t at = (DeviceAt(picture, view.device_uuid) + step) % all;
    next = {picture.devices(static_cast<int>(at)).uuid(), 0, view.help};
  };
  switch (key) {
    case Key::kHelp:
      return {view.device_uuid, 0, !view.help};
    case Key::kNext:
      to_device(1);
      break;
    case Key::kPrevious:
      to_device(static_cast<size_t>(picture.devices_size()) - 1);
      break;
    case Key::kUp:
      next.scroll -= std::min<size_t>(next.scroll, 1);
      break;
    case Key::kDown:
      next.scroll = std::min(next.scroll + 1, frame.max_scroll);
      break;
    case Key::kPageUp:
      next.scroll -= std::min(next.scroll, frame.page);
      break;
    case Key::kPageDown:
      next.scroll = std::min(next.scroll + frame.page, frame.max_scroll);
      break;
    case Key::kHome:
      next.scroll = 0;
      break;
    case Key::kEnd:
      next.scroll = frame.max_scroll;
      break;
    case Key::kQuit:
    case Key::kRedraw:
    case Key::kOther:
      break;
  }
  return next;
}

std::string DrawingOf(const std::vector<std::string>& now, const std::vector<std::string>& before) {
  std::string out;
  for (size_t i = 0; i < now.size(); ++i) {
    if (i < before.size() ? now[i] == before[i] : now[i].empty()) continue;
    absl::StrAppend(&out, "\x1b[", i + 1, ";1H", now[i], "\x1b[K");
  }
  return out;
}

v1::Picture Aged(const v1::Picture& picture, absl::Duration age) {
  v1::Picture aged = picture;
  const auto shift = [](absl::Duration by, google::protobuf::Duration* time) {
    const absl::Duration then = absl::Seconds(time->seconds()) + absl::Nanoseconds(time->nanos());
    const int64_t now = absl::ToInt64Nanoseconds(std::max(absl::ZeroDuration(), then + by));
    time->set_seconds(now / 1000000000);
    time->set_nanos(static_cast<int32_t>(now % 1000000000));
  };
  for (v1::WaitingUse& one : *aged.mutable_waiting()) shift(age, one.mutable_waited());
  for (v1::DevicePicture& device : *aged.mutable_devices()) {
    for (v1::ComponentPicture& one : *device.mutable_components()) {
      if (one.has_release_asked()) shift(age, one.mutable_release_asked());
    }
  }
  if (aged.has_recovery_left()) shift(-age, aged.mutable_recovery_left());
  return aged;
}

}  // namespace vrambroker::ctl
