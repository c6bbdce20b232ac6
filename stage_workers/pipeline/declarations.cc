#include "stage_workers/pipeline/declarations.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/offload/weights_writer.h"

namespace vrambroker::pipeline {
namespace {

constexpr absl::Duration kAttachTimeout = absl::Seconds(30);

v1::DeclarePipelineRequest ToDeclaration(const v1::WorkloadPipeline& pipeline, int64_t scale) {
  v1::DeclarePipelineRequest request;
  request.set_pipeline(pipeline.name());
  for (const v1::WorkloadStage& stage : pipeline.stages()) {
    v1::StageSpec* spec = request.add_stages();
    spec->set_component(stage.component());
    spec->set_passes(stage.passes());
    spec->set_activation_bytes(offload::ScaleBytes(stage.activation_bytes(), scale));
  }
  return request;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Declarations>> Declarations::Create(const DriverOptions& options) {
  if (options.broker == "none" || options.declared == Declared::kNone) {
    return std::unique_ptr<Declarations>(new Declarations(nullptr, Declared::kNone));
  }
  client::ClientOptions client_options;
  client_options.address = options.broker;
  client_options.worker = options.name;
  absl::StatusOr<std::unique_ptr<client::BrokerClient>> client =
      client::BrokerClient::Create(std::move(client_options));
  if (!client.ok()) return client.status();
  absl::Status ready = (*client)->WaitReady(absl::Now() + kAttachTimeout);
  if (!ready.ok()) {
    return absl::Status(ready.code(), absl::StrCat("no session with the broker at '",
                                                   options.broker, "': ", ready.message()));
  }
  for (const v1::WorkloadPipeline& pipeline : options.workload.pipelines()) {
    absl::Status status = (*client)->DeclarePipeline(ToDeclaration(pipeline, options.bytes_scale));
    if (!status.ok()) return status;
  }
  return std::unique_ptr<Declarations>(new Declarations(*std::move(client), options.declared));
}

void Declarations::Arrived(int run, const std::string& pipeline) {
  if (client_ != nullptr && declared_ == Declared::kAll) Declare(run, pipeline);
}

uint64_t Declarations::Started(int run, const std::string& pipeline) {
  if (client_ == nullptr) return 0;
  bool known = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    known = ids_.count(run) > 0;
  }
  if (!known) Declare(run, pipeline);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = ids_.find(run);
  if (found != ids_.end()) return found->second;
  ++undeclared_runs_;
  return 0;
}

void Declarations::Declare(int run, const std::string& pipeline) {
  const absl::StatusOr<uint64_t> id = client_->DeclareRun(pipeline);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (id.ok()) {
    ids_[run] = *id;
  } else {
    undeclared_reason_ = id.status();
  }
}

void Declarations::Finished(int run) {
  if (client_ == nullptr) return;
  uint64_t id = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = ids_.find(run);
    if (found == ids_.end()) return;
    id = found->second;
    ids_.erase(found);
  }
  // A run that the broker no longer knows is over as well.
  (void)client_->FinishRun(id);
}

int Declarations::undeclared_runs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return undeclared_runs_;
}

absl::Status Declarations::undeclared_reason() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return undeclared_reason_;
}

}  // namespace vrambroker::pipeline
