// Readings of real cards through NVIDIA's management library, which is loaded at run time: neither
// the build nor the program needs it to be there.
#ifndef VRAMBROKER_BROKER_OBSERVE_NVML_PROBE_H_
#define VRAMBROKER_BROKER_OBSERVE_NVML_PROBE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/observe/driver_probe.h"

namespace vrambroker::observe {

// The library's name for the dynamic loader, which comes with the driver.
inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// A device as the library lists it.
struct NvmlDevice {
  // "GPU-...", or "MIG-..." for an instance of a card that is split.
  std::string uuid;
  // Size in bytes, what the driver keeps for itself included.
  int64_t capacity_bytes = 0;
};

// The loaded library; shut down when the last owner goes. Thread-safe.
class NvmlLibrary;

// Loads and initialises the library. `path` is a file name or a path, as dlopen takes it.
// UNAVAILABLE, saying what was tried and what came back: no such library, a call missing in it, no
// driver behind it.
absl::StatusOr<std::shared_ptr<NvmlLibrary>> LoadNvml(const std::string& path = kNvmlLibrary);

// Every device of the machine, in the library's order; of a card that is split into MIG instances,
// the instances instead of the card. At most 256. Empty: a driver, and no device.
absl::StatusOr<std::vector<NvmlDevice>> ListNvmlDevices(NvmlLibrary& library);
// The same, of a library loaded for it.
absl::StatusOr<std::vector<NvmlDevice>> ListNvmlDevices(const std::string& path = kNvmlLibrary);

// Reads one device.
//
// Used bytes are total minus free, so that what the driver reserves counts as used. By process only
// while the library gives the bytes of every compute process (it gives none under some permissions,
// and more than 4096 processes are not read): else totals only.
class NvmlProbe : public DriverProbe {
 public:
  // NOT_FOUND for a uuid that no device has, naming those that there are.
  static absl::StatusOr<std::unique_ptr<NvmlProbe>> Open(std::shared_ptr<NvmlLibrary> library,
                                                         const std::string& uuid);
  // The same, of a library loaded for it.
  static absl::StatusOr<std::unique_ptr<NvmlProbe>> Open(const std::string& uuid,
                                                         const std::string& path = kNvmlLibrary);

  const std::string& Uuid() const override { return uuid_; }
  absl::StatusOr<DriverReading> Read() override;

 private:
  NvmlProbe(std::shared_ptr<NvmlLibrary> library, void* device, std::string uuid);

  std::shared_ptr<NvmlLibrary> library_;
  void* device_;  // The library's handle, valid as long as the library is loaded.
  std::string uuid_;
};

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_NVML_PROBE_H_
