#include "broker/observe/nvml_probe.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "broker/observe/nvml_library.h"

namespace vrambroker::observe {
namespace {

constexpr unsigned kMaxDevices = 256;
constexpr unsigned kMaxProcesses = 4096;
constexpr int kMaxListTries = 4;

struct MemoryFigures {
  int64_t capacity = 0;
  int64_t used = 0;
  int64_t reserved = 0;
};

absl::StatusOr<MemoryFigures> FiguresOf(unsigned long long total, unsigned long long free,
                                        unsigned long long reserved) {
  constexpr unsigned long long kMost = 1ull << 50;
  if (total == 0 || total > kMost || free > total || reserved > total - free) {
    return absl::InternalError(absl::StrCat("the driver's figures are no memory: total ", total,
                                            ", free ", free, ", reserved ", reserved, " bytes"));
  }
  return MemoryFigures{static_cast<int64_t>(total), static_cast<int64_t>(total - free),
                       static_cast<int64_t>(reserved)};
}

// By the newer call, which tells the driver's own part; by the older one where the library or the
// driver does not know the newer.
absl::StatusOr<MemoryFigures> ReadMemory(const NvmlLibrary& library, nvml::Device device) {
  const nvml::Calls& calls = library.calls();
  if (calls.memory_v2 != nullptr) {
    nvml::MemoryV2 memory{};
    memory.version = nvml::kMemoryV2Version;
    if (calls.memory_v2(device, &memory) == nvml::kSuccess) {
      return FiguresOf(memory.total, memory.free, memory.reserved);
    }
  }
  nvml::Memory memory{};
  absl::Status read = library.Check(calls.memory(device, &memory), "nvmlDeviceGetMemoryInfo");
  if (!read.ok()) return read;
  return FiguresOf(memory.total, memory.free, 0);
}

// The compute processes with their bytes; false where the library does not tell all of them.
bool ReadProcesses(const NvmlLibrary& library, nvml::Device device,
                   std::vector<ProcessUsage>* processes) {
  const nvml::Calls& calls = library.calls();
  if (calls.compute_processes == nullptr) return false;
  std::vector<nvml::ProcessInfo> infos(64);
  for (int tries = 0; tries < kMaxListTries; ++tries) {
    unsigned count = infos.size();
    const nvml::Result result = calls.compute_processes(device, &count, infos.data());
    if (result == nvml::kSuccess) {
      if (count > infos.size()) return false;
      infos.resize(count);
      break;
    }
    // The list may grow between two calls: room for some more than it says.
    if (result != nvml::kInsufficientSize || count > kMaxProcesses || tries + 1 == kMaxListTries) {
      return false;
    }
    infos.resize(count + 16);
  }
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  for (const nvml::ProcessInfo& info : infos) {
    if (info.used_bytes == nvml::kNotAvailable) {
      processes->clear();
      return false;
    }
    const int32_t pid = static_cast<int32_t>(info.pid);
    if (!processes->empty() && processes->back().pid == pid) {
      // One process may be listed for each of its contexts.
      processes->back().bytes += static_cast<int64_t>(info.used_bytes);
    } else {
      processes->push_back({pid, static_cast<int64_t>(info.used_bytes)});
    }
  }
  return true;
}

int64_t Unlisted(int64_t used, const std::vector<ProcessUsage>& processes) {
  for (const ProcessUsage& process : processes) used -= process.bytes;
  return std::max<int64_t>(0, used);
}

absl::StatusOr<NvmlDevice> Describe(const NvmlLibrary& library, nvml::Device device) {
  char uuid[nvml::kUuidBytes] = {};
  absl::Status named =
      library.Check(library.calls().device_uuid(device, uuid, sizeof(uuid)), "nvmlDeviceGetUUID");
  if (!named.ok()) return named;
  uuid[sizeof(uuid) - 1] = '\0';
  auto memory = ReadMemory(library, device);
  if (!memory.ok()) return memory.status();
  return NvmlDevice{uuid, memory->capacity};
}

// The MIG instances of a card; none where it is not split.
std::vector<nvml::Device> InstancesOf(const NvmlLibrary& library, nvml::Device device) {
  const nvml::Calls& calls = library.calls();
  std::vector<nvml::Device> instances;
  unsigned current = 0;
  unsigned pending = 0;
  unsigned count = 0;
  if (calls.mig_mode == nullptr || calls.mig_device_count == nullptr ||
      calls.mig_device_by_index == nullptr ||
      calls.mig_mode(device, &current, &pending) != nvml::kSuccess || current == 0 ||
      calls.mig_device_count(device, &count) != nvml::kSuccess) {
    return instances;
  }
  for (unsigned index = 0; index < std::min(count, kMaxDevices); ++index) {
    nvml::Device instance = nullptr;
    // Places that hold no instance answer "not found".
    if (calls.mig_device_by_index(device, index, &instance) == nvml::kSuccess) {
      instances.push_back(instance);
    }
  }
  return instances;
}

}  // namespace

absl::StatusOr<std::shared_ptr<NvmlLibrary>> LoadNvml(const std::string& path) {
  return NvmlLibrary::Load(path);
}

absl::StatusOr<std::vector<NvmlDevice>> ListNvmlDevices(NvmlLibrary& library) {
  unsigned count = 0;
  absl::Status counted =
      library.Check(library.calls().device_count(&count), "nvmlDeviceGetCount_v2");
  if (!counted.ok()) return counted;
  std::vector<NvmlDevice> devices;
  for (unsigned index = 0; index < count && devices.size() < kMaxDevices; ++index) {
    nvml::Device card = nullptr;
    absl::Status opened = library.Check(library.calls().device_by_index(index, &card),
                                        "nvmlDeviceGetHandleByIndex_v2");
    if (!opened.ok()) return opened;
    std::vector<nvml::Device> parts = InstancesOf(library, card);
    if (parts.empty()) parts.push_back(card);
    for (nvml::Device part : parts) {
      auto device = Describe(library, part);
      if (!device.ok()) return device.status();
      if (devices.size() < kMaxDevices) devices.push_back(*std::move(device));
    }
  }
  return devices;
}

absl::StatusOr<std::vector<NvmlDevice>> ListNvmlDevices(const std::string& path) {
  auto library = LoadNvml(path);
  if (!library.ok()) return library.status();
  return ListNvmlDevices(**library);
}

NvmlProbe::NvmlProbe(std::shared_ptr<NvmlLibrary> library, void* device, std::string uuid)
    : library_(std::move(library)), device_(device), uuid_(std::move(uuid)) {}

absl::StatusOr<std::unique_ptr<NvmlProbe>> NvmlProbe::Open(std::shared_ptr<NvmlLibrary> library,
                                                           const std::string& uuid) {
  nvml::Device device = nullptr;
  const nvml::Result result = library->calls().device_by_uuid(uuid.c_str(), &device);
  if (result == nvml::kSuccess) {
    return std::unique_ptr<NvmlProbe>(new NvmlProbe(std::move(library), device, uuid));
  }
  auto devices = ListNvmlDevices(*library);
  if (!devices.ok()) return library->Check(result, "nvmlDeviceGetHandleByUUID");
  std::vector<std::string> uuids;
  for (const NvmlDevice& known : *devices) uuids.push_back(known.uuid);
  return absl::NotFoundError(
      absl::StrCat(library->Check(result, "nvmlDeviceGetHandleByUUID").message(), ": no device \"",
                   uuid, "\"; there are: ", uuids.empty() ? "none" : absl::StrJoin(uuids, ", ")));
}

absl::StatusOr<std::unique_ptr<NvmlProbe>> NvmlProbe::Open(const std::string& uuid,
                                                           const std::string& path) {
  auto library = LoadNvml(path);
  if (!library.ok()) return library.status();
  return Open(*std::move(library), uuid);
}

absl::StatusOr<DriverReading> NvmlProbe::Read() {
  DriverReading reading;
  reading.begin = absl::Now();
  auto memory = ReadMemory(*library_, device_);
  if (!memory.ok()) return memory.status();
  reading.by_process = ReadProcesses(*library_, device_, &reading.processes);
  if (reading.by_process) {
    // Bytes that came or went while the list was read are in one of the two figures only.
    auto after = ReadMemory(*library_, device_);
    if (!after.ok()) return after.status();
    reading.unlisted_bytes = Unlisted(std::min(memory->used, after->used), reading.processes);
  }
  reading.end = absl::Now();
  reading.capacity_bytes = memory->capacity;
  reading.total_used_bytes = memory->used;
  reading.driver_reserved_bytes = memory->reserved;
  return reading;
}

}  // namespace vrambroker::observe
