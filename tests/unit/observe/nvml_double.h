// A stand-in for NVIDIA's management library, loaded as the real one is. Tests set what it answers.
#ifndef VRAMBROKER_TESTS_UNIT_OBSERVE_NVML_DOUBLE_H_
#define VRAMBROKER_TESTS_UNIT_OBSERVE_NVML_DOUBLE_H_

#include <string>
#include <utility>
#include <vector>

namespace vrambroker::observe {

struct NvmlDoubleDevice {
  std::string uuid;
  unsigned long long total = 0;
  unsigned long long reserved = 0;
  unsigned long long used = 0;  // Without what is reserved.
  std::vector<std::pair<unsigned, unsigned long long>> processes;
  std::vector<NvmlDoubleDevice> instances;  // Of MIG, where there are any.
};

struct NvmlDouble {
  std::vector<NvmlDoubleDevice> devices;
  // What each call answers, 0 for success.
  int init_result = 0;
  int memory_v2_result = 0;
  int memory_result = 0;
  int processes_result = 0;
  // How often the list of processes has grown before the next call gets it.
  int growths = 0;
  // What was called.
  int inits = 0;
  int shutdowns = 0;
  int memory_v2_calls = 0;
  int memory_calls = 0;
  int processes_calls = 0;
};

// The library's one state, found by this name in the loaded library.
inline constexpr char kNvmlDoubleState[] = "NvmlDoubleState";
extern "C" NvmlDouble* NvmlDoubleState();

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_TESTS_UNIT_OBSERVE_NVML_DOUBLE_H_
