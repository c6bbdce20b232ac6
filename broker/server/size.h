// Sizes and durations as people write them, and how they read in messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace vrambroker::server {

// The most that any byte count of a caller or a flag may be: 64 TiB. Sums over all components that
// a broker takes (4,096) stay within 63 bits.
inline constexpr int64_t kMaxBytes = int64_t{1} << 46;

// "24GiB", "31.4GiB", "512MiB", "1.5GB", "1000000": a number of bytes, 0 to kMaxBytes, fractions
// cut off. Units B, KiB, MiB, GiB, TiB (powers of 1024) and KB, MB, GB, TB (powers of 1000), upper
// case as written.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// "250ms", "1s", "1m30s", "0": 0 to 30 days.
absl::StatusOr<absl::Duration> ParsePositiveDuration(absl::string_view text);

// A positive finite number, "29.9e9".
absl::StatusOr<double> ParseRate(absl::string_view text);

}  // namespace vrambroker::server
