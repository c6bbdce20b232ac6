#include "broker/core/units.h"

#include "absl/strings/str_format.h"

namespace vrambroker::core {

std::string ToString(Bytes bytes) {
  const double count = bytes.as_double();
  if (bytes.count() >= int64_t{1} << 30) return absl::StrFormat("%.2f GiB", count / (1 << 30));
  if (bytes.count() >= 1 << 20) return absl::StrFormat("%.1f MiB", count / (1 << 20));
  if (bytes.count() >= 1 << 10) return absl::StrFormat("%.1f KiB", count / (1 << 10));
  return absl::StrFormat("%d B", bytes.count());
}

}  // namespace vrambroker::core
