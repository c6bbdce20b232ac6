#include "broker/ctl/styled.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace vrambroker::ctl {
namespace {

// Numbers of the sixteen colours that every terminal has, in its owner's own shades.
const char* Order(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kTitle:
      return "\x1b[7m";
    case Style::kHead:
      return "\x1b[1m";
    case Style::kDim:
    case Style::kReserve:
      return "\x1b[2m";
    case Style::kAlarm:
      return "\x1b[1;31m";
    case Style::kInUse:
      return "\x1b[32m";
    case Style::kRetained:
      return "\x1b[36m";
    case Style::kPermanent:
      return "\x1b[34m";
    case Style::kPooled:
      return "\x1b[33m";
    case Style::kDraining:
      return "\x1b[35m";
    case Style::kExternal:
      return "\x1b[31m";
  }
  return "";
}

constexpr char kPlainAgain[] = "\x1b[0m";

}  // namespace

std::string Paint(const Line& line, bool colour, size_t columns) {
  std::string out;
  for (const Span& span : line) {
    const std::string text = span.text.substr(0, columns);
    columns -= text.size();
    if (text.empty()) continue;
    const std::string order = colour ? Order(span.style) : "";
    absl::StrAppend(&out, order, text, order.empty() ? "" : kPlainAgain);
  }
  return out;
}

std::string PaintAll(const std::vector<Line>& lines, bool colour) {
  std::string out;
  for (const Line& line : lines) absl::StrAppend(&out, Paint(line, colour), "\n");
  return out;
}

std::vector<Line> LinesOf(const std::string& text) {
  std::vector<Line> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.push_back({{std::string(line), lines.empty() ? Style::kHead : Style::kPlain}});
  }
  lines.pop_back();
  return lines;
}

bool MayColour(int descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && (refused == nullptr || *refused == '\0') &&
         terminal != nullptr && std::string(terminal) != "dumb";
}

size_t ColumnsOf(int descriptor, size_t otherwise) {
  winsize size = {};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : otherwise;
}

}  // namespace vrambroker::ctl
