// A driver's connection to one stage worker.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_STAGE_LINK_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_STAGE_LINK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "vrambroker/v1/stage.grpc.pb.h"

namespace vrambroker::pipeline {

// Thread-safe. Errors are the worker's own, with its address in front.
class StageLink {
 public:
  // `address`: unix:PATH or HOST:PORT. Connects with the first call.
  explicit StageLink(const std::string& address);

  absl::StatusOr<v1::RunStageResponse> RunStage(const v1::RunStageRequest& request,
                                                absl::Duration timeout);
  absl::StatusOr<v1::StageWorkerStatus> GetStatus(absl::Duration timeout);

  const std::string& address() const { return address_; }

 private:
  const std::string address_;
  const std::unique_ptr<v1::StageWorker::Stub> stub_;
};

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_STAGE_LINK_H_
