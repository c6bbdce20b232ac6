// The service for workers and drivers: from the wire to the engine.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/statusor.h"
#include "broker/server/callers.h"
#include "broker/server/engine.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::server {

class BrokerService final : public v1::VramBroker::CallbackService {
 public:
  // Both outlive the service. `only_device` is the UUID of the broker's device where it has one
  // only.
  BrokerService(Engine* engine, const Callers* callers, std::string only_device)
      : engine_(engine), callers_(callers), only_device_(std::move(only_device)) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  grpc::ServerWriteReactor<v1::Directive>* Attach(Context* context,
                                                  const v1::AttachRequest* request) override;
  Reactor* UpdateComponents(Context* context, const v1::UpdateComponentsRequest* request,
                            v1::UpdateComponentsResponse* response) override;
  Reactor* BeginUse(Context* context, const v1::BeginUseRequest* request,
                    v1::BeginUseResponse* response) override;
  Reactor* EndUse(Context* context, const v1::EndUseRequest* request,
                  v1::EndUseResponse* response) override;
  Reactor* ReportResidency(Context* context, const v1::ReportResidencyRequest* request,
                           v1::ReportResidencyResponse* response) override;
  Reactor* DeclarePipeline(Context* context, const v1::DeclarePipelineRequest* request,
                           v1::DeclarePipelineResponse* response) override;
  Reactor* DeclareRun(Context* context, const v1::DeclareRunRequest* request,
                      v1::DeclareRunResponse* response) override;
  Reactor* FinishRun(Context* context, const v1::FinishRunRequest* request,
                     v1::FinishRunResponse* response) override;

  // Checks the caller's role and session, then hands over to the engine. `event` may be an error of
  // the conversion.
  template <typename Answer, typename Event, typename Response>
  Reactor* Run(Context* context, const MethodRoles& method, absl::StatusOr<Event> event,
               Response* response);
  absl::Status CheckDevice(core::SessionId session, const std::string& device_uuid) const;

  Engine* const engine_;
  const Callers* const callers_;
  const std::string only_device_;
};

}  // namespace vrambroker::server
