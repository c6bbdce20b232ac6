#include "broker/server/checks.h"

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "broker/server/size.h"

namespace vrambroker::server {
namespace {

constexpr int64_t kMaxDurationSeconds = 315576000000;
constexpr char kNameCharacters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";

bool IsName(absl::string_view value) {
  return !value.empty() && value.size() <= kMaxNameBytes &&
         value.find_first_not_of(kNameCharacters) == absl::string_view::npos;
}

// What was given, cut and escaped so that it can go into a message.
std::string Quoted(absl::string_view value) {
  constexpr size_t kShown = 40;
  return absl::StrCat(
      "'", absl::CHexEscape(value.substr(0, kShown)),
      value.size() > kShown ? absl::StrCat("...' (", value.size(), " bytes)") : "'");
}

}  // namespace

void Checks::Fail(absl::string_view field, absl::string_view given, absl::string_view allowed) {
  status_ = absl::InvalidArgumentError(
      absl::StrCat(prefix_, field, ": ", given, " given, ", allowed, " allowed"));
}

void Checks::Require(bool holds, absl::string_view field, absl::string_view given,
                     absl::string_view allowed) {
  if (ok() && !holds) Fail(field, given, allowed);
}

void Checks::Range(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (!ok() || (value >= low && value <= high)) return;
  Fail(field, absl::StrCat(value), absl::StrCat(low, " to ", high, " is"));
}

void Checks::Bytes(absl::string_view field, int64_t value) {
  if (!ok() || (value >= 0 && value <= kMaxBytes)) return;
  Fail(field, absl::StrCat(value, " bytes"),
       absl::StrCat("0 to ", kMaxBytes, " bytes (64 TiB) are"));
}

void Checks::NotZero(absl::string_view field, uint64_t value) {
  if (!ok() || value != 0) return;
  Fail(field, "0", "a number above 0 is");
}

void Checks::Amount(absl::string_view field, double value, double high) {
  if (!ok() || (std::isfinite(value) && value >= 0 && value <= high)) return;
  Fail(field, absl::StrCat(value), absl::StrCat("0 to ", high, " is"));
}

void Checks::Name(absl::string_view field, absl::string_view value) {
  if (!ok() || IsName(value)) return;
  Fail(field, Quoted(value), "1 to 128 of letters, digits, '.', '-', '_' are");
}

void Checks::ComponentReference(absl::string_view field, absl::string_view value) {
  if (!ok()) return;
  const size_t slash = value.find('/');
  const bool good = slash == absl::string_view::npos
                        ? IsName(value)
                        : IsName(value.substr(0, slash)) && IsName(value.substr(slash + 1));
  if (good) return;
  Fail(field, Quoted(value),
       "COMPONENT or WORKER/COMPONENT, each of 1 to 128 letters, digits, '.', '-', '_', is");
}

void Checks::RequestId(absl::string_view field, absl::string_view value) {
  if (!ok() || (!value.empty() && value.size() <= kMaxRequestIdBytes)) return;
  Fail(field, absl::StrCat(value.size(), " bytes"),
       "1 to 64 bytes, unique within the session, are");
}

void Checks::Length(absl::string_view field, absl::string_view value, size_t high) {
  if (!ok() || value.size() <= high) return;
  Fail(field, absl::StrCat(value.size(), " bytes"), absl::StrCat("at most ", high, " bytes are"));
}

void Checks::Duration(absl::string_view field, const google::protobuf::Duration& value) {
  if (!ok()) return;
  const bool good = value.seconds() >= 0 && value.seconds() <= kMaxDurationSeconds &&
                    value.nanos() >= 0 && value.nanos() <= 999999999;
  if (good) return;
  Fail(field, absl::StrCat(value.seconds(), " s ", value.nanos(), " ns"),
       "0 to 10,000 years, nanos of 0 to 999,999,999, are");
}

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

void FromDuration(absl::Duration duration, google::protobuf::Duration* out) {
  const absl::Duration bounded = std::max(std::min(duration, absl::Seconds(kMaxDurationSeconds)),
                                          -absl::Seconds(kMaxDurationSeconds));
  absl::Duration rest = bounded;
  out->set_seconds(absl::IDivDuration(rest, absl::Seconds(1), &rest));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

}  // namespace vrambroker::server
