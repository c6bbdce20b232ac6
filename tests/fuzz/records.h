// What the fuzzer of the broker's edge reads its input as: a sequence of things that happen to a
// broker, requests as they come off the wire.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vrambroker::fuzz {

enum class Kind : uint8_t {
  kAttach,
  kUpdateComponents,
  kBeginUse,
  kEndUse,
  kReportResidency,
  kDeclarePipeline,
  kDeclareRun,
  kFinishRun,
  kListDecisions,
  kExplainDecision,
  kDrain,
  kWatchPicture,
  kWatchDecisions,
  // Not requests: one number each, as its payload says (Number).
  kTick,           // milliseconds that pass
  kStreamClosed,   // of which attach
  kCallCancelled,  // which call
  kProcessDied,    // pid
  kReading,        // MiB that the driver shows
  kCount,
};

struct Record {
  Kind kind = Kind::kTick;
  std::string payload;
};

// The request of a kind, empty; null where it is none.
std::unique_ptr<google::protobuf::Message> NewMessage(Kind kind);

// The number in the payload of a kind that is no request: its first two bytes, little end first.
uint32_t Number(const Record& record);
Record NumberRecord(Kind kind, uint32_t number);

// One record: a byte of kind (modulo kCount), two of length, the payload. A record that is cut
// short is the last, with what there is; at most 64 are read.
std::vector<Record> ReadRecords(std::string_view bytes);
std::string WriteRecords(const std::vector<Record>& records);

}  // namespace vrambroker::fuzz
