// An emulated card with a worker process for each component and, where asked for, a broker:
// started, watched and stopped together.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_FLEET_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_FLEET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/pipeline/child_process.h"
#include "stage_workers/pipeline/cleanup.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::pipeline {

// How the worker of one component is started; values are those of vram-stage-worker's flags.
struct WorkerSetup {
  std::string lifetime = "forward";
  std::string resident = "0";
  std::string retain = "none";
  std::string allocate = "whole";
};

struct FleetOptions {
  v1::Workload workload;
  // Size of the card before scaling, in bytes. 0: the workload's.
  int64_t capacity_bytes = 0;
  // Sizes are divided by the one (1 to 1,048,576), times by the other (above 0).
  int64_t bytes_scale = 1;
  double time_scale = 1;
  // Weights files as vram-make-weights writes them, at the same scale.
  std::string weights_dir;
  // Whether a broker runs on the card.
  bool broker = false;
  // Whether it loads ahead of uses that are known to come.
  bool load_ahead = false;
  // By component; those that are not here get the defaults above.
  std::map<std::string, WorkerSetup> workers;
  // Where the programs are, and where their logs go: LOG_PREFIX-NAME.log.
  std::string program_folder;
  std::string log_prefix;
  absl::Duration start_timeout = absl::Seconds(60);
  // Hears one line of what a worker waits for at its start, such as the broker's refusal of its
  // component. May be empty.
  std::function<void(const std::string&)> notice;
};

class Fleet {
 public:
  // Returns when every worker is attached, placed and served. Errors name the program that failed
  // and its log.
  static absl::StatusOr<std::unique_ptr<Fleet>> Start(const FleetOptions& options);
  // Kills what runs.
  ~Fleet();

  // By component.
  const std::map<std::string, std::string>& workers() const { return addresses_; }
  // "none" without a broker.
  const std::string& broker() const { return broker_address_; }
  int64_t card_bytes() const { return card_->CapacityBytes(); }
  double link_bytes_per_second() const { return card_->LinkBytesPerSecond(); }
  // Highest use of the card so far.
  absl::StatusOr<int64_t> PeakBytes();
  // Ends all processes in good order, in a few seconds even where one has been stopped; afterwards
  // nothing of the workers is on the card. The first process that did not end well is named.
  absl::Status Stop();

 private:
  Fleet(const FleetOptions& options, TemporaryFolder folder)
      : options_(options), folder_(std::move(folder)) {}
  absl::Status MakeCard();
  absl::Status StartBroker();
  absl::Status StartWorkers();
  absl::Status WaitForWorker(const std::string& name, ChildProcess& worker);
  std::string Log(const std::string& name) const;

  const FleetOptions options_;
  const TemporaryFolder folder_;
  const TemporaryCardName card_name_;
  std::unique_ptr<card::EmulatedCard> card_;
  std::unique_ptr<ChildProcess> broker_;
  std::string broker_address_ = "none";
  std::map<std::string, std::string> addresses_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
};

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_FLEET_H_
