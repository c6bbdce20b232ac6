#include "broker/server/device_options.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "broker/observe/driver_probe.h"
#include "broker/server/size.h"

namespace vrambroker::server {
namespace {

// A size of a card below it that has no unit was hardly meant as bytes.
constexpr int64_t kLeastWithoutUnit = int64_t{1} << 20;

absl::Status SetEmulatedField(absl::string_view field, EmulatedDeviceOption* device) {
  const std::pair<absl::string_view, absl::string_view> named =
      absl::StrSplit(field, absl::MaxSplits('=', 1));
  if (named.first == "rate") {
    auto rate = ParseRate(named.second);
    if (rate.ok()) device->rate = *rate;
    return rate.status();
  }
  if (named.first == "lag") {
    auto lag = ParsePositiveDuration(named.second);
    if (lag.ok() && *lag > absl::Hours(1)) {
      return absl::InvalidArgumentError(absl::StrCat("lag=", named.second, ": 0 to 1h is allowed"));
    }
    if (lag.ok()) device->lag = *lag;
    return lag.status();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", field, "': rate=BYTES_A_SECOND and lag=DURATION are allowed after NAME=SIZE"));
}

}  // namespace

absl::Status AddDevice(const std::string& text, std::vector<DeviceOption>* out) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  DeviceOption device{parts[0], std::nullopt};
  if (device.uuid.empty() || device.uuid.size() > 128) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': UUID or UUID=SIZE is allowed, the UUID of 1 to 128 bytes"));
  }
  if (parts.size() == 2) {
    auto cap = ParseBytes(parts[1]);
    if (!cap.ok()) return cap.status();
    device.cap = *cap;
  }
  out->push_back(std::move(device));
  return absl::OkStatus();
}

absl::Status AddEmulatedDevice(const std::string& text, std::vector<EmulatedDeviceOption>* out) {
  const std::vector<std::string> fields = absl::StrSplit(text, ',');
  const std::vector<std::string> first = absl::StrSplit(fields[0], absl::MaxSplits('=', 1));
  if (first.size() != 2 || first[0].empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': NAME=SIZE[,rate=BYTES_A_SECOND][,lag=DURATION] is allowed"));
  }
  EmulatedDeviceOption device;
  device.name = first[0];
  auto capacity = ParseBytes(first[1]);
  double number = 0;
  if (capacity.ok() && *capacity > 0 && *capacity < kLeastWithoutUnit &&
      absl::SimpleAtod(first[1], &number)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "': a size of '", first[1],
        "' given, which is bytes; a size with its unit is needed, such as ", first[1], "GiB"));
  }
  if (!capacity.ok() || *capacity == 0 || *capacity > observe::kMaxEmulatedBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "': a size of '", first[1],
        "' given; above 0, at most 1TiB is allowed, such as 24GiB, 31.4GiB or 512MiB"));
  }
  device.capacity_bytes = *capacity;
  for (size_t i = 1; i < fields.size(); ++i) {
    if (absl::Status status = SetEmulatedField(fields[i], &device); !status.ok()) return status;
  }
  out->push_back(std::move(device));
  return absl::OkStatus();
}

}  // namespace vrambroker::server
