// A workload's JSON text, as vramctl and as the stage workers read it.
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "broker/core/units.h"
#include "broker/ctl/workload_file.h"
#include "broker/sim/workload.h"
#include "stage_workers/offload/workload_file.h"
#include "tests/fuzz/mutate.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// A text that is a workload's message stays one as a rule, with a field or two changed.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  const std::string text(reinterpret_cast<const char*>(data), size);
  vrambroker::v1::Workload workload;
  if (random() % 4 == 0 || !google::protobuf::util::JsonStringToMessage(text, &workload).ok()) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  for (uint64_t changes = 1 + random() % 2; changes > 0; --changes) {
    vrambroker::fuzz::Mutate(&workload, &random);
  }
  std::string changed;
  if (!google::protobuf::util::MessageToJsonString(workload, &changed).ok()) return size;
  const size_t kept = std::min(changed.size(), max_size);
  std::memcpy(data, changed.data(), kept);
  return kept;
}

// Text that is no UTF-8 is expected.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<vrambroker::sim::Workload> workload = vrambroker::ctl::ParseWorkload(text);
  if (workload.ok()) {
    // What was taken is within the bounds, and its sums can be made.
    VRAM_CHECK(vrambroker::sim::Validate(*workload).ok());
    for (const vrambroker::sim::Component& component : workload->components) {
      VRAM_CHECK(component.Layers().count() >= 1);
      VRAM_CHECK(component.WindowBytes() >= 0);
    }
  }
  vrambroker::v1::Workload message;
  if (google::protobuf::util::JsonStringToMessage(text, &message).ok()) {
    // The two readers differ in what they replace, not in what they refuse as broken.
    const bool good = vrambroker::offload::CheckWorkload(message).ok();
    VRAM_CHECK(!workload.ok() || good);
  }
  return 0;
}
