// What a driver tells the broker of its runs, and what it does where the broker does not take it.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_DECLARATIONS_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_DECLARATIONS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/broker_client.h"
#include "stage_workers/pipeline/driver.h"

namespace vrambroker::pipeline {

// The driver's session. Thread-safe.
class Declarations {
 public:
  // Attaches and declares the workload's pipelines; without a broker, or with Declared::kNone, does
  // nothing then and later. Errors: the broker's, or DEADLINE_EXCEEDED where none answers.
  static absl::StatusOr<std::unique_ptr<Declarations>> Create(const DriverOptions& options);

  void Arrived(int run, const std::string& pipeline);
  // The id to run under; 0 where the broker did not take it: the run is not declared then, and
  // runs.
  uint64_t Started(int run, const std::string& pipeline);
  void Finished(int run);

  // Runs that started undeclared though they were to be declared, and the broker's last reason.
  int undeclared_runs() const;
  absl::Status undeclared_reason() const;

 private:
  Declarations(std::unique_ptr<client::BrokerClient> client, Declared declared)
      : client_(std::move(client)), declared_(declared) {}
  void Declare(int run, const std::string& pipeline);

  // Null: nothing is declared.
  const std::unique_ptr<client::BrokerClient> client_;
  const Declared declared_;
  mutable std::mutex mutex_;
  std::map<int, uint64_t> ids_;
  int undeclared_runs_ = 0;
  absl::Status undeclared_reason_;
};

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_DECLARATIONS_H_
