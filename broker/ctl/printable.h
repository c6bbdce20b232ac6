// Text of others, fit for a terminal. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace vrambroker::ctl {

// Valid UTF-8 in which each control character, and each byte that is part of no character, is
// spelt out: "\x1b", "\xff". Nothing else changes.
std::string Printable(absl::string_view text);

// Printable ASCII only: one byte is one column of a table. All else is spelt out byte by byte.
std::string PrintableAscii(absl::string_view text);

// At most `columns` of an ASCII text, the middle left out for "..", as what tells names apart
// stands at their ends. `columns`: 4 at least.
std::string Shortened(absl::string_view text, size_t columns);

}  // namespace vrambroker::ctl
