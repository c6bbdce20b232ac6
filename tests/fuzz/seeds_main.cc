// Writes what the fuzzer of the broker's edge starts from: short stories of workers and drivers,
// one file each. fuzz-seeds FOLDER
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/records.h"

namespace vrambroker::fuzz {
namespace {

// Sessions are numbered as they attach, uses and runs as they begin, from 1.
constexpr char kWorkerW[] =
    "worker: 'w' pid: 1 start_time_ticks: 1 attach_number: 1 max_version: 1 "
    "components { name: 'x' layer_runs { count: 8 layer_bytes: 4194304 } window_bytes: 8388608 "
    "  lifetime: LIFETIME_FORWARD pass_seconds: 0.5 host_tier: HOST_TIER_PINNED } "
    "components { name: 'y' layer_runs { count: 3 layer_bytes: 1048576 } "
    "  layer_runs { count: 2 layer_bytes: 2097152 } fixed_bytes: 1048576 lifetime: "
    "LIFETIME_FORWARD }";
constexpr char kWorkerV[] =
    "worker: 'v' pid: 2 start_time_ticks: 2 attach_number: 1 max_version: 1 "
    "components { name: 'z' device_uuid: 'GPU-0' layer_runs { count: 6 layer_bytes: 8388608 } "
    "  lifetime: LIFETIME_FORWARD link_bytes_per_second: 1e9 }";
constexpr char kDriver[] = "worker: 'd' pid: 3 start_time_ticks: 3 attach_number: 1 pod: 'p'";
constexpr char kNothingHeld[] =
    "snapshot { sequence: 1 components { component: 'x' completed_generation: 1 } "
    "  components { component: 'y' completed_generation: 1 fixed_placed: true } }";

struct Happening {
  Kind kind;
  // A request in text form; for the others a number.
  std::string text;
};

std::string Story(const std::vector<Happening>& happenings) {
  std::vector<Record> records;
  for (const Happening& happening : happenings) {
    const auto message = NewMessage(happening.kind);
    if (message == nullptr) {
      records.push_back(
          NumberRecord(happening.kind, static_cast<uint32_t>(std::stoul(happening.text))));
    } else if (google::protobuf::TextFormat::ParseFromString(happening.text, message.get())) {
      records.push_back({happening.kind, message->SerializeAsString()});
    } else {
      std::cerr << "fuzz-seeds: no request: " << happening.text << "\n";
      return "";
    }
  }
  return WriteRecords(records);
}

const std::vector<std::pair<const char*, std::vector<Happening>>>& Stories() {
  static const auto* stories = new std::vector<std::pair<const char*, std::vector<Happening>>>{
      {"use",
       {{Kind::kAttach, kWorkerW},
        {Kind::kWatchDecisions, ""},
        {Kind::kReportResidency, std::string("session_id: 1 ") + kNothingHeld},
        {Kind::kBeginUse,
         "session_id: 1 request_id: 'b1' component: 'x' passes: 3 activation_bytes: 4194304 "
         "min_resident_layers: 1 shape: '1024x1024'"},
        {Kind::kTick, "500"},
        {Kind::kBeginUse, "session_id: 1 request_id: 'b2' component: 'x' held_use_ids: 1"},
        {Kind::kBeginUse, "session_id: 1 request_id: 'b3' component: 'y' priority: 2"},
        {Kind::kCallCancelled, "3"},
        {Kind::kEndUse,
         "session_id: 1 request_id: 'e1' use_id: 1 snapshot { sequence: 2 "
         "components { component: 'x' held_layers: 8 completed_generation: 2 } "
         "components { component: 'y' completed_generation: 1 fixed_placed: true } "
         "pool_bytes: 4194304 } measured { peak_activation_bytes: 3145728 stall_seconds: 0.1 "
         "bytes_loaded: 33554432 seconds: 0.5 compute_seconds: 0.4 passes: 3 copy_seconds: 0.1 }"},
        {Kind::kReading, "40"},
        {Kind::kExplainDecision, "decision_id: 2"},
        {Kind::kListDecisions, "limit: 3"},
        {Kind::kWatchDecisions, "limit: 2 after_decision_id: 1"},
        {Kind::kTick, "6000"}}},
      {"two_workers",
       {{Kind::kAttach, kWorkerW},
        {Kind::kAttach, kWorkerV},
        {Kind::kBeginUse, "session_id: 1 request_id: 'b1' component: 'x'"},
        {Kind::kBeginUse,
         "session_id: 2 request_id: 'b1' component: 'z' min_resident_layers: 6 "
         "max_resident_layers: 6"},
        {Kind::kTick, "1200"},
        {Kind::kEndUse,
         "session_id: 1 request_id: 'e1' begin_request_id: 'b1' snapshot { sequence: 1 "
         "components { component: 'x' held_layers: 8 completed_generation: 2 } "
         "components { component: 'y' completed_generation: 1 } }"},
        {Kind::kReportResidency,
         "session_id: 1 snapshot { sequence: 2 "
         "components { component: 'x' held_layers: 0 completed_generation: 3 } "
         "components { component: 'y' completed_generation: 1 } }"},
        {Kind::kEndUse, "session_id: 2 request_id: 'e1' use_id: 2"},
        {Kind::kWatchPicture, "min_interval { nanos: 5 }"}}},
      {"runs",
       {{Kind::kAttach, kWorkerW},
        {Kind::kAttach, kWorkerV},
        {Kind::kAttach, kDriver},
        {Kind::kDeclarePipeline,
         "session_id: 3 request_id: 'p' pipeline: 'p' stages { component: 'w/x' passes: 2 } "
         "stages { component: 'z' activation_bytes: 1048576 } stages { component: 'x' }"},
        {Kind::kDeclareRun, "session_id: 3 request_id: 'r1' pipeline: 'p'"},
        {Kind::kDeclareRun,
         "session_id: 3 request_id: 'r2' pipeline: 'p' starts_in { seconds: 2 }"},
        {Kind::kBeginUse, "session_id: 1 request_id: 'b1' component: 'x' run_id: 1"},
        {Kind::kTick, "300"},
        {Kind::kEndUse,
         "session_id: 1 request_id: 'e1' use_id: 1 snapshot { sequence: 1 "
         "components { component: 'x' held_layers: 8 completed_generation: 2 } "
         "components { component: 'y' completed_generation: 1 fixed_placed: true } }"},
        {Kind::kBeginUse, "session_id: 2 request_id: 'b1' component: 'z' run_id: 1 stage: 1"},
        {Kind::kTick, "100"},
        {Kind::kExplainDecision, "decision_id: 2"},
        {Kind::kFinishRun, "session_id: 3 request_id: 'f1' run_id: 1"},
        {Kind::kStreamClosed, "3"},
        {Kind::kTick, "6000"}}},
      {"again",
       {{Kind::kAttach, kWorkerW},
        {Kind::kBeginUse,
         "session_id: 1 request_id: 'b1' component: 'x' activation_bytes: 1048576"},
        {Kind::kStreamClosed, "1"},
        {Kind::kAttach,
         "worker: 'w' pid: 1 start_time_ticks: 1 attach_number: 2 "
         "components { name: 'x' layer_runs { count: 8 layer_bytes: 4194304 } "
         "  window_bytes: 8388608 lifetime: LIFETIME_FORWARD pass_seconds: 0.5 "
         "  host_tier: HOST_TIER_PINNED } "
         "snapshot { sequence: 3 components { component: 'x' held_layers: 8 } } "
         "running_uses { request_id: 'b1' component: 'x' granted_layers: 8 "
         "  activation_bytes: 1048576 generation: 2 }"},
        {Kind::kEndUse, "session_id: 2 request_id: 'e1' use_id: 2"},
        {Kind::kEndUse, "session_id: 2 request_id: 'e2' begin_request_id: 'b2'"},
        {Kind::kBeginUse, "session_id: 2 request_id: 'b2' component: 'x'"},
        {Kind::kProcessDied, "1"},
        {Kind::kReading, "20"},
        {Kind::kTick, "6000"}}},
      {"pins",
       {{Kind::kAttach,
         "worker: 'w' pid: 1 start_time_ticks: 1 attach_number: 1 "
         "components { name: 'x' layer_runs { count: 2 layer_bytes: 1048576 } "
         "  host_tier: HOST_TIER_PAGEABLE pin_host_bytes: 4194304 } "
         "components { name: 'y' layer_runs { count: 1 layer_bytes: 1048576 } "
         "  pin_host_bytes: 2097152 } "
         "host_memory { limit_bytes: 10485760 domain: 'cgroup:7' }"},
        {Kind::kAttach,
         "worker: 'v' pid: 2 start_time_ticks: 2 attach_number: 1 "
         "components { name: 'z' layer_runs { count: 1 layer_bytes: 1048576 } "
         "  pin_host_bytes: 4194304 } host_memory { limit_bytes: 8388608 domain: 'cgroup:7' }"},
        {Kind::kReading, "2"},
        {Kind::kReportResidency,
         "session_id: 1 snapshot { sequence: 1 components { component: 'x' } "
         "components { component: 'y' } pinned_host_bytes: 4194304 }"},
        {Kind::kUpdateComponents,
         "session_id: 1 request_id: 'u1' upsert { name: 'x' "
         "layer_runs { count: 2 layer_bytes: 1048576 } host_tier: HOST_TIER_PINNED "
         "pin_host_bytes: 0 }"},
        {Kind::kStreamClosed, "1"},
        {Kind::kProcessDied, "1"},
        {Kind::kTick, "6000"},
        {Kind::kWatchPicture, ""}}},
      {"components",
       {{Kind::kAttach, kWorkerW},
        {Kind::kUpdateComponents,
         "session_id: 1 request_id: 'u1' remove: 'y' upsert { name: 'z' lifetime: "
         "LIFETIME_PERMANENT no_host_copy: true layer_runs { count: 2 layer_bytes: 1048576 } }"},
        {Kind::kReportResidency,
         "session_id: 1 snapshot { sequence: 1 components { component: 'x' } "
         "components { component: 'z' held_layers: 2 completed_generation: 1 } "
         "pinned_host_bytes: 5 }"},
        {Kind::kBeginUse, "session_id: 1 request_id: 'b1' component: 'z'"},
        {Kind::kReading, "101"},
        {Kind::kDrain, ""},
        {Kind::kEndUse, "session_id: 1 request_id: 'e1' use_id: 1"}}}};
  return *stories;
}

}  // namespace
}  // namespace vrambroker::fuzz

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::cerr << "usage: fuzz-seeds FOLDER: writes the first inputs of the fuzzer of the broker's "
                 "edge into it\n";
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  for (const auto& [name, happenings] : vrambroker::fuzz::Stories()) {
    const std::string story = vrambroker::fuzz::Story(happenings);
    std::ofstream file(std::filesystem::path(argv[1]) / name, std::ios::binary);
    if (story.empty() || !(file << story).flush()) {
      std::cerr << "fuzz-seeds: cannot write " << name << " into " << argv[1] << "\n";
      return 1;
    }
  }
  return 0;
}
