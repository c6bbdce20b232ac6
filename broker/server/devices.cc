#include "broker/server/devices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/observe/nvml_probe.h"

namespace vrambroker::server {
namespace {

constexpr size_t kMaxDevices = 64;

absl::Status Named(const std::string& flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

absl::StatusOr<std::vector<DeviceOption>> AllRealDevices(observe::NvmlLibrary& library) {
  auto listed = observe::ListNvmlDevices(library);
  if (!listed.ok()) return listed.status();
  std::vector<DeviceOption> devices;
  for (const observe::NvmlDevice& device : *listed) devices.push_back({device.uuid, std::nullopt});
  return devices;
}

absl::Status NoDevice(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "no device to manage: ", why,
      "; give --device=UUID (nvidia-smi -L lists them) on a machine with an NVIDIA driver, or "
      "--emulated-device=NAME=SIZE, such as a=24GiB"));
}

absl::Status CheckReserve(const core::DeviceSpec& spec) {
  if (spec.reserve < spec.capacity) return absl::OkStatus();
  const bool is_default = spec.reserve == core::Bytes(Options().reserve_bytes);
  return absl::InvalidArgumentError(absl::StrCat(
      "--reserve: ", is_default ? "the default, " : "", ToString(spec.reserve),
      is_default ? ", leaves" : " given, which leaves", " nothing of the ", ToString(spec.capacity),
      " of device ", spec.uuid, "; less than that is allowed, --reserve=0 for none"));
}

absl::StatusOr<Device> OpenEmulated(const EmulatedDeviceOption& option, const Options& options,
                                    const std::string& address) {
  const std::string uuid = "emulated:" + option.name;
  auto lock = observe::LockDevice(options.lock_dir, uuid, address);
  if (!lock.ok()) return lock.status();
  auto record = observe::ChargeRecord::Open(options.lock_dir, uuid);
  if (!record.ok()) return record.status();
  Device device{*std::move(lock), *std::move(record), {}, {}, nullptr, 0};
  // What a broker left that was killed, and nobody uses any more, is made anew, of whatever size.
  card::EmulatedCard::RemoveUnused(option.name);
  const bool made = absl::IsNotFound(card::EmulatedCard::Open(option.name).status());
  device.remover = CardRemover(option.name, made);
  card::EmulatedCardOptions card_options;
  card_options.capacity_bytes = option.capacity_bytes;
  card_options.h2d_bytes_per_second = option.rate;
  card_options.usage_lag = option.lag;
  auto card = card::EmulatedCard::Create(option.name, card_options);
  if (!card.ok()) return card.status();
  device.spec.uuid = (*card)->Uuid();
  device.spec.capacity = core::Bytes((*card)->CapacityBytes());
  if (const double rate = (*card)->LinkBytesPerSecond(); rate > 0) device.spec.link_rate = rate;
  device.probe = std::make_unique<observe::EmulatedProbe>(*std::move(card));
  return device;
}

absl::StatusOr<Device> OpenReal(const DeviceOption& option, const Options& options,
                                const std::shared_ptr<observe::NvmlLibrary>& library,
                                const std::string& address) {
  auto probe = observe::NvmlProbe::Open(library, option.uuid);
  if (!probe.ok()) return probe.status();
  // Only of a device that is there: a name that is none leaves no lock behind.
  auto lock = observe::LockDevice(options.lock_dir, option.uuid, address);
  if (!lock.ok()) return lock.status();
  auto record = observe::ChargeRecord::Open(options.lock_dir, option.uuid);
  if (!record.ok()) return record.status();
  Device device{*std::move(lock), *std::move(record), {}, {}, nullptr, 0};
  device.probe = *std::move(probe);
  auto reading = device.probe->Read();
  if (!reading.ok()) return reading.status();
  const int64_t capacity = std::min(option.cap.value_or(INT64_MAX), reading->capacity_bytes);
  device.spec.uuid = option.uuid;
  device.spec.capacity = core::Bytes(capacity);
  device.outside_share = reading->capacity_bytes - capacity;
  return device;
}

}  // namespace

CardRemover::~CardRemover() {
  if (name_.empty()) return;
  if (made_) {
    (void)card::EmulatedCard::Remove(name_);
  } else {
    card::EmulatedCard::RemoveUnused(name_);
  }
}

absl::StatusOr<std::vector<Device>> OpenDevices(const Options& options,
                                                const std::string& address) {
  std::vector<DeviceOption> real = options.devices;
  std::shared_ptr<observe::NvmlLibrary> library;
  if (!real.empty() || options.emulated_devices.empty()) {
    auto loaded = observe::LoadNvml();
    if (!loaded.ok() && !real.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--device=", real.front().uuid,
          ": it cannot be managed here: ", loaded.status().message(),
          "; a machine with an NVIDIA driver is needed, or --emulated-device=NAME=SIZE instead"));
    }
    if (!loaded.ok()) return NoDevice(loaded.status().message());
    library = *std::move(loaded);
  }
  if (real.empty() && options.emulated_devices.empty()) {
    auto all = AllRealDevices(*library);
    if (!all.ok()) return NoDevice(all.status().message());
    if (all->empty()) return NoDevice("NVIDIA's library lists none");
    real = *std::move(all);
  }
  if (real.size() + options.emulated_devices.size() > kMaxDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat(real.size() + options.emulated_devices.size(), " devices, at most ",
                     kMaxDevices, " are allowed; give --device for those to manage"));
  }

  std::vector<Device> devices;
  const auto add = [&](const std::string& flag, absl::StatusOr<Device> device) -> absl::Status {
    if (!device.ok()) return Named(flag, device.status());
    device->spec.reserve = core::Bytes(options.reserve_bytes);
    device->spec.has_probe = true;
    if (absl::Status status = CheckReserve(device->spec); !status.ok()) return status;
    devices.push_back(*std::move(device));
    return absl::OkStatus();
  };
  for (const DeviceOption& option : real) {
    absl::Status status =
        add(absl::StrCat("--device=", option.uuid), OpenReal(option, options, library, address));
    if (!status.ok()) return status;
  }
  for (const EmulatedDeviceOption& option : options.emulated_devices) {
    absl::Status status = add(absl::StrCat("--emulated-device=", option.name),
                              OpenEmulated(option, options, address));
    if (!status.ok()) return status;
  }
  return devices;
}

}  // namespace vrambroker::server
