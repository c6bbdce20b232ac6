#include "broker/ctl/printable.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vrambroker::ctl {
namespace {

uint8_t At(absl::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// How many bytes the character that begins the text has; 0: it begins with none.
size_t CharacterBytes(absl::string_view text) {
  const uint8_t first = At(text, 0);
  const size_t bytes = first < 0x80             ? 1
                       : (first & 0xe0) == 0xc0 ? 2
                       : (first & 0xf0) == 0xe0 ? 3
                       : (first & 0xf8) == 0xf0 ? 4
                                                : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  uint32_t code = bytes == 1 ? first : first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((At(text, i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (At(text, i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter forms are no UTF-8
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLeast[bytes] || code > 0x10ffff || surrogate ? 0 : bytes;
}

// Of one character: those of ASCII, and U+0080 to U+009F, which terminals take for orders as well.
bool IsControl(absl::string_view character) {
  const uint8_t first = At(character, 0);
  return first < 0x20 || first == 0x7f || (first == 0xc2 && At(character, 1) < 0xa0);
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const absl::string_view one = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes != 0 && !IsControl(one)) {
      absl::StrAppend(&out, one);
    } else {
      for (size_t i = 0; i < one.size(); ++i) absl::StrAppendFormat(&out, "\\x%02x", At(one, i));
    }
    text.remove_prefix(one.size());
  }
  return out;
}

std::string PrintableAscii(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(c));
    }
  }
  return out;
}

std::string Shortened(absl::string_view text, size_t columns) {
  if (text.size() <= columns) return std::string(text);
  const size_t tail = (columns - 2) / 2;
  return absl::StrCat(text.substr(0, columns - 2 - tail), "..", text.substr(text.size() - tail));
}

}  // namespace vrambroker::ctl
