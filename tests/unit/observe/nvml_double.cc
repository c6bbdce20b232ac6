#include "tests/unit/observe/nvml_double.h"

#include <algorithm>
#include <cstring>

// The layouts are written out again here, as the library's own documents give them, so that a wrong
// one in the program does not agree with itself.
namespace {

using vrambroker::observe::NvmlDouble;
using vrambroker::observe::NvmlDoubleDevice;

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct NvmlProcessInfo {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
};
static_assert(sizeof(NvmlMemoryV2) == 40 && sizeof(NvmlProcessInfo) == 24);

NvmlDouble state;

NvmlDoubleDevice* Find(const char* uuid, std::vector<NvmlDoubleDevice>* among) {
  for (NvmlDoubleDevice& device : *among) {
    if (device.uuid == uuid) return &device;
    if (NvmlDoubleDevice* instance = Find(uuid, &device.instances)) return instance;
  }
  return nullptr;
}

NvmlDoubleDevice& Of(void* handle) { return *static_cast<NvmlDoubleDevice*>(handle); }

}  // namespace

extern "C" {

namespace vrambroker::observe {
NvmlDouble* NvmlDoubleState() { return &state; }
}  // namespace vrambroker::observe

int nvmlInit_v2() {
  ++state.inits;
  return state.init_result;
}
int nvmlShutdown() {
  ++state.shutdowns;
  return 0;
}
const char* nvmlErrorString(int result) {
  return result == 9 ? "Driver Not Loaded" : result == 6 ? "Not Found" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = state.devices.size();
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= state.devices.size()) return 2;
  *device = &state.devices[index];
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = Find(uuid, &state.devices);
  return *device == nullptr ? 6 : 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  if (Of(device).uuid.size() >= length) return 7;
  std::strcpy(uuid, Of(device).uuid.c_str());
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, NvmlMemory* memory) {
  ++state.memory_calls;
  const unsigned long long used = Of(device).used + Of(device).reserved;
  *memory = {Of(device).total, Of(device).total - used, used};
  return state.memory_result;
}
int nvmlDeviceGetMemoryInfo_v2(void* device, NvmlMemoryV2* memory) {
  ++state.memory_v2_calls;
  if (memory->version != (40u | (2u << 24))) return 25;
  if (state.memory_v2_result != 0) return state.memory_v2_result;
  const NvmlDoubleDevice& of = Of(device);
  *memory = {memory->version, of.total, of.reserved, of.total - of.reserved - of.used, of.used};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, NvmlProcessInfo* infos) {
  ++state.processes_calls;
  if (state.processes_result != 0) return state.processes_result;
  auto& processes = Of(device).processes;
  const unsigned room = *count;
  *count = processes.size();
  if (room < processes.size()) {
    if (state.growths > 0) {
      --state.growths;
      processes.insert(processes.end(), 17, {processes.back().first + 1, 1});
    }
    return 7;
  }
  for (unsigned i = 0; i < processes.size(); ++i) {
    infos[i] = {processes[i].first, processes[i].second, ~0u, ~0u};
  }
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = Of(device).instances.empty() ? 0 : 1;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) {
  *count = Of(device).instances.empty() ? 0 : 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** instance) {
  if (index >= Of(device).instances.size()) return 6;
  *instance = &Of(device).instances[index];
  return 0;
}

}  // extern "C"
