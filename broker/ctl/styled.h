// Lines of text with a look, for terminals that have colours and for those that have none.
#pragma once

#include <string>
#include <vector>

namespace vrambroker::ctl {

enum class Style {
  kPlain,
  kTitle,  // the whole line stands out
  kHead,   // of a table or a paragraph
  kDim,
  kAlarm,
  // Classes of the ledger.
  kInUse,
  kRetained,
  kPermanent,
  kPooled,
  kDraining,
  kExternal,
  kReserve,
};

struct Span {
  std::string text;  // printable ASCII
  Style style = Style::kPlain;
};
using Line = std::vector<Span>;

inline constexpr size_t kUncut = static_cast<size_t>(-1);

// Of a line, without a newline; what lies beyond `columns` is left out. Without `colour`: its text
// alone.
std::string Paint(const Line& line, bool colour, size_t columns = kUncut);
// With a newline after each.
std::string PaintAll(const std::vector<Line>& lines, bool colour);

// Of a text with a newline after each line, such as a table: the first in kHead.
std::vector<Line> LinesOf(const std::string& text);

// Whether what is written to this descriptor may be coloured: it is a terminal other than "dumb",
// and $NO_COLOR is not set or empty.
bool MayColour(int descriptor);
// Columns of the terminal there. `otherwise`: it is none, or does not say.
size_t ColumnsOf(int descriptor, size_t otherwise);

}  // namespace vrambroker::ctl
