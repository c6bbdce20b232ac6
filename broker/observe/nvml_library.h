// The part of NVIDIA's management library that is used here, declared by us: the distribution has
// no header of it. Names and layouts are the library's.
#ifndef VRAMBROKER_BROKER_OBSERVE_NVML_LIBRARY_H_
#define VRAMBROKER_BROKER_OBSERVE_NVML_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vrambroker::observe {

namespace nvml {

using Device = void*;
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kNotSupported = 3;
inline constexpr Result kNoPermission = 4;
inline constexpr Result kNotFound = 6;
inline constexpr Result kInsufficientSize = 7;

inline constexpr unsigned kUuidBytes = 96;
// Stands where a process's bytes are not available.
inline constexpr unsigned long long kNotAvailable = ~0ull;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
inline constexpr unsigned kMemoryV2Version = sizeof(MemoryV2) | (2u << 24);

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct Calls {
  Result (*init)();
  Result (*shutdown)();
  Result (*device_count)(unsigned*);
  Result (*device_by_index)(unsigned, Device*);
  Result (*device_by_uuid)(const char*, Device*);
  Result (*device_uuid)(Device, char*, unsigned);
  Result (*memory)(Device, Memory*);
  // Null where the library is too old for them.
  const char* (*error_string)(Result);
  Result (*memory_v2)(Device, MemoryV2*);
  Result (*compute_processes)(Device, unsigned*, ProcessInfo*);
  Result (*mig_mode)(Device, unsigned* current, unsigned* pending);
  Result (*mig_device_count)(Device, unsigned*);
  Result (*mig_device_by_index)(Device, unsigned, Device*);
};

}  // namespace nvml

class NvmlLibrary {
 public:
  static absl::StatusOr<std::shared_ptr<NvmlLibrary>> Load(const std::string& path);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  const nvml::Calls& calls() const { return calls_; }
  // OK for success, else an error that names the call, the library and what it answered.
  absl::Status Check(nvml::Result result, absl::string_view call) const;

 private:
  NvmlLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}
  absl::Status FindCalls();

  const std::string path_;
  void* const handle_;
  nvml::Calls calls_{};
  bool initialised_ = false;
};

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_NVML_LIBRARY_H_
