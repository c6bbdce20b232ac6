// The demo's table: one workload on two cards, with and without a broker, by real processes.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_DEMO_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_DEMO_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stage_workers/pipeline/fleet.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::pipeline {

// What is compared: who decides what stays on the card between the stages.
struct Arm {
  std::string name;
  // In words, for the table's legend.
  std::string meaning;
  bool broker = false;
  // Whether that broker has components loaded ahead of uses that are known to come.
  bool load_ahead = false;
  // By component.
  std::map<std::string, WorkerSetup> workers;
  // Whether it must run on every card; otherwise that is what the demo finds out.
  bool must_run = true;
};

// streamed, set_released, local_rule, broker, broker_all, then the last two with loading ahead:
// broker_ahead, broker_all_ahead; for the components text_encoder, dit and vae. The local rule's
// bytes are divided by the scale.
std::vector<Arm> AllArms(int64_t bytes_scale);
// Those of the names given, in the order of AllArms. INVALID_ARGUMENT for an unknown or no name.
absl::StatusOr<std::vector<Arm>> ChooseArms(const std::vector<std::string>& names,
                                            int64_t bytes_scale);

struct ArmResult {
  std::string name;
  bool must_run = true;
  bool load_ahead = false;
  bool ran = false;
  // Why it did not run.
  std::string error;
  // Of the requests that count.
  std::vector<double> request_seconds;
  // Seconds in which compute waited for copies, mean of those requests.
  double stall_seconds = 0;
  // Bytes copied to the card during those requests by all workers, all together.
  int64_t bytes_to_device = 0;
  // Those of them that were copied between uses, ahead of them.
  int64_t bytes_loaded_ahead = 0;
  // Highest use of the card, from the start of its workers on.
  int64_t peak_bytes = 0;
  // Of each request, the first ones that do not count included.
  std::vector<std::string> results;

  // One digest of all results.
  std::string ResultSha256() const;
};

struct CardResult {
  double capacity_gib = 0;
  // Of the emulated card.
  int64_t card_bytes = 0;
  double link_bytes_per_second = 0;
  // In the order of AllArms, and the names in the order in which they ran.
  std::vector<ArmResult> arms;
  std::vector<std::string> order;
};

struct DemoResult {
  int64_t bytes_scale = 1;
  double time_scale = 1;
  int requests = 0;
  int warm_ups = 0;
  std::vector<CardResult> cards;
};

struct DemoOptions {
  v1::Workload workload;
  std::vector<Arm> arms;
  std::vector<double> card_gib;
  int64_t bytes_scale = 64;
  double time_scale = 8;
  int requests = 5;
  int warm_ups = 1;
  std::string weights_dir;
  std::string log_folder;
  std::string program_folder;
  // Hears of one line of progress at a time.
  std::function<void(const std::string&)> progress;
};

// Runs everything. An arm that does not run is a result, not an error; INTERNAL where processes do
// not end in good order.
absl::StatusOr<DemoResult> RunDemo(const DemoOptions& options);

// Whether every request has the same result in all arms that ran, on all cards.
bool ResultsAgree(const DemoResult& result);
// What is wrong: an arm that had to run and did not, results that differ; nothing: all is well.
std::vector<std::string> DemoFaults(const DemoResult& result);
// What the demo expects beyond that: the local rule runs on the largest card and runs out of
// memory on the smallest, and the broker moves fewer bytes than streaming does on every card.
std::vector<std::string> ExpectationFaults(const DemoResult& result);

// The table, for people; and, where there are arms with loading ahead, a second one for each card
// that has them beside the same arms without.
std::string DemoTable(const DemoResult& result);
// {"scale": {"bytes", "time"},
//  "cards": [{"capacity_gib",
//             "arms": [{"name", "ran", "error", "requests", "p50_seconds", "p95_seconds",
//                       "stall_seconds", "bytes_to_device", "peak_bytes", "result_sha256"}]}]}
// and more fields beside these. Requests are those that count; stall_seconds is a request's mean,
// bytes_to_device the sum of all of them; times are as measured, not scaled back.
std::string DemoJson(const DemoResult& result);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_DEMO_H_
