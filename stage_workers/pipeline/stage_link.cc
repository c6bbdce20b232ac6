#include "stage_workers/pipeline/stage_link.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace vrambroker::pipeline {
namespace {

// The codes of gRPC are those of absl.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("worker at ", address, ": ", status.error_message()));
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace

StageLink::StageLink(const std::string& address)
    : address_(address),
      stub_(v1::StageWorker::NewStub(
          grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {}

absl::StatusOr<v1::RunStageResponse> StageLink::RunStage(const v1::RunStageRequest& request,
                                                         absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::RunStageResponse response;
  const grpc::Status status = stub_->RunStage(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, address_);
  return response;
}

absl::StatusOr<v1::StageWorkerStatus> StageLink::GetStatus(absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::StageWorkerStatus response;
  const grpc::Status status = stub_->GetStatus(&context, v1::GetStatusRequest(), &response);
  if (!status.ok()) return FromGrpc(status, address_);
  return response;
}

}  // namespace vrambroker::pipeline
