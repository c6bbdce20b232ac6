// Every request of the broker's services, as bytes off the wire: parsed, checked, converted, taken
// by a live machine that checks itself after each step.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/edge_world.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/records.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace vrambroker::fuzz {
namespace {

void MutateRecord(Record* record, std::minstd_rand* random) {
  const std::unique_ptr<google::protobuf::Message> message = NewMessage(record->kind);
  if (message == nullptr) {
    *record = NumberRecord(record->kind, static_cast<uint32_t>((*random)() >> ((*random)() % 24)));
    return;
  }
  if (!message->ParseFromString(record->payload)) message->Clear();
  for (uint64_t changes = 1 + (*random)() % 3; changes > 0; --changes)
    Mutate(message.get(), random);
  record->payload = message->SerializePartialAsString();
}

// Requests stay requests: one is changed, doubled, moved, dropped or made up.
std::string MutateRecords(std::vector<Record> records, std::minstd_rand* random) {
  const size_t at = records.empty() ? 0 : (*random)() % records.size();
  const uint64_t what = records.empty() ? 5 : (*random)() % 8;
  if (what < 5) {
    MutateRecord(&records[at], random);
  } else if (what == 5) {
    Record made{static_cast<Kind>((*random)() % static_cast<int>(Kind::kCount)), ""};
    MutateRecord(&made, random);
    records.insert(records.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
  } else if (what == 6) {
    records.insert(records.begin() + static_cast<std::ptrdiff_t>((*random)() % records.size()),
                   Record(records[at]));
  } else {
    std::swap(records[at], records[(*random)() % records.size()]);
    if ((*random)() % 2 == 0) records.pop_back();
  }
  return WriteRecords(records);
}

}  // namespace
}  // namespace vrambroker::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  if (random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string mutated = vrambroker::fuzz::MutateRecords(
      vrambroker::fuzz::ReadRecords({reinterpret_cast<const char*>(data), size}), &random);
  const size_t kept = std::min(mutated.size(), max_size);
  std::memcpy(data, mutated.data(), kept);
  return kept;
}

// What cannot be parsed is expected.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vrambroker::fuzz::EdgeWorld world;
  for (const vrambroker::fuzz::Record& record :
       vrambroker::fuzz::ReadRecords({reinterpret_cast<const char*>(data), size})) {
    world.Take(record);
  }
  world.WritePicture();
  return 0;
}
