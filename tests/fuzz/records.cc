#include "tests/fuzz/records.h"

#include <algorithm>

#include "vrambroker/v1/admin.pb.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::fuzz {
namespace {

constexpr size_t kMaxRecords = 64;
constexpr size_t kHead = 3;

uint8_t ByteAt(std::string_view bytes, size_t at) {
  return at < bytes.size() ? static_cast<uint8_t>(bytes[at]) : 0;
}

}  // namespace

std::unique_ptr<google::protobuf::Message> NewMessage(Kind kind) {
  switch (kind) {
    case Kind::kAttach:
      return std::make_unique<v1::AttachRequest>();
    case Kind::kUpdateComponents:
      return std::make_unique<v1::UpdateComponentsRequest>();
    case Kind::kBeginUse:
      return std::make_unique<v1::BeginUseRequest>();
    case Kind::kEndUse:
      return std::make_unique<v1::EndUseRequest>();
    case Kind::kReportResidency:
      return std::make_unique<v1::ReportResidencyRequest>();
    case Kind::kDeclarePipeline:
      return std::make_unique<v1::DeclarePipelineRequest>();
    case Kind::kDeclareRun:
      return std::make_unique<v1::DeclareRunRequest>();
    case Kind::kFinishRun:
      return std::make_unique<v1::FinishRunRequest>();
    case Kind::kListDecisions:
      return std::make_unique<v1::ListDecisionsRequest>();
    case Kind::kExplainDecision:
      return std::make_unique<v1::ExplainDecisionRequest>();
    case Kind::kDrain:
      return std::make_unique<v1::DrainRequest>();
    case Kind::kWatchPicture:
      return std::make_unique<v1::WatchPictureRequest>();
    case Kind::kWatchDecisions:
      return std::make_unique<v1::WatchDecisionsRequest>();
    default:
      return nullptr;
  }
}

uint32_t Number(const Record& record) {
  return ByteAt(record.payload, 0) + 256u * ByteAt(record.payload, 1);
}

Record NumberRecord(Kind kind, uint32_t number) {
  return {kind, {static_cast<char>(number % 256), static_cast<char>(number / 256 % 256)}};
}

std::vector<Record> ReadRecords(std::string_view bytes) {
  std::vector<Record> records;
  while (bytes.size() > kHead && records.size() < kMaxRecords) {
    const auto kind = static_cast<Kind>(ByteAt(bytes, 0) % static_cast<int>(Kind::kCount));
    const size_t length = ByteAt(bytes, 1) + size_t{256} * ByteAt(bytes, 2);
    bytes.remove_prefix(kHead);
    records.push_back({kind, std::string(bytes.substr(0, length))});
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  return records;
}

std::string WriteRecords(const std::vector<Record>& records) {
  std::string bytes;
  for (const Record& record : records) {
    const size_t length = std::min<size_t>(record.payload.size(), 65535);
    bytes += static_cast<char>(record.kind);
    bytes += static_cast<char>(length % 256);
    bytes += static_cast<char>(length / 256);
    bytes.append(record.payload, 0, length);
  }
  return bytes;
}

}  // namespace vrambroker::fuzz
