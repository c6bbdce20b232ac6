#include "broker/server/size.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::server {
namespace {

constexpr std::pair<const char*, double> kUnits[] = {
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"B", 1},
    {"", 1},
};

absl::Status BadSize(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no size: a number of bytes from 0 to 64TiB is allowed, such as 24GiB, ",
      "31.4GiB, 512MiB or 1000000"));
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t unit_at = std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  const absl::string_view number = trimmed.substr(0, unit_at);
  const absl::string_view unit = absl::StripAsciiWhitespace(trimmed.substr(unit_at));
  double value = 0;
  if (!IsNumber(number) || !absl::SimpleAtod(number, &value)) return BadSize(text);
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = std::floor(value * factor);
    if (!(bytes <= static_cast<double>(kMaxBytes))) return BadSize(text);
    return static_cast<int64_t>(bytes);
  }
  return BadSize(text);
}

absl::StatusOr<absl::Duration> ParsePositiveDuration(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(absl::StripAsciiWhitespace(text), &duration) ||
      duration < absl::ZeroDuration() || duration > absl::Hours(24 * 30)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is no duration: 0 to 720h is allowed, such as 250ms, 1s or 1m30s"));
  }
  return duration;
}

absl::StatusOr<double> ParseRate(absl::string_view text) {
  double rate = 0;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(text), &rate) || !std::isfinite(rate) ||
      rate <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is no rate: bytes a second above 0 are allowed, such as 29.9e9"));
  }
  return rate;
}

}  // namespace vrambroker::server
