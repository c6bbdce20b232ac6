#include "broker/server/broker_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_attach.h"
#include "broker/server/convert_calls.h"

namespace vrambroker::server {

template <typename Answer, typename Event, typename Response>
grpc::ServerUnaryReactor* BrokerService::Run(Context* context, const MethodRoles& method,
                                             absl::StatusOr<Event> event, Response* response) {
  auto* call = new TypedCall<Answer, Response>(engine_, response);
  const Caller caller = callers_->Of(*context);
  absl::Status status = CheckRole(caller, method);
  if (status.ok()) status = event.status();
  if (status.ok()) status = engine_->sessions().CheckCaller(event->header.session, caller);
  if (status.ok()) {
    engine_->Submit(call, *std::move(event));
  } else {
    call->Refuse(status);
  }
  return call;
}

grpc::ServerWriteReactor<v1::Directive>* BrokerService::Attach(Context* context,
                                                               const v1::AttachRequest* request) {
  const std::shared_ptr<AttachStream> stream = AttachStream::Create(engine_);
  stream->caller = callers_->Of(*context);
  absl::Status allowed = CheckRole(stream->caller, Method("VramBroker.Attach"));
  if (allowed.ok() && request->components_size() > 0) {
    allowed = CheckRole(stream->caller, kAttachWithComponents);
  }
  absl::StatusOr<core::AttachEvent> event = ReadAttach(*request);
  if (!allowed.ok() || !event.ok()) {
    stream->Close(allowed.ok() ? event.status() : allowed);
    return stream.get();
  }
  event->process = ProcessOf(stream->caller, event->worker, event->process);
  if (absl::Status own =
          engine_->sessions().CheckAttach(event->worker, event->process, stream->caller);
      !own.ok()) {
    stream->Close(std::move(own));
    return stream.get();
  }
  stream->worker = event->worker;
  stream->process = event->process;
  stream->components = static_cast<int>(event->components.size());
  stream->device_uuid = event->device_uuid.empty() ? only_device_ : event->device_uuid;
  engine_->SubmitAttach(stream, *std::move(event));
  return stream.get();
}

absl::Status BrokerService::CheckDevice(core::SessionId session,
                                        const std::string& device_uuid) const {
  const std::string own = engine_->sessions().DeviceOf(session);
  if (device_uuid.empty() || own.empty() || device_uuid == own) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("upsert.device_uuid: '", device_uuid, "' given, the session's '", own,
                   "' is allowed; attach one session for each device"));
}

grpc::ServerUnaryReactor* BrokerService::UpdateComponents(
    Context* context, const v1::UpdateComponentsRequest* request,
    v1::UpdateComponentsResponse* response) {
  std::string device_uuid;
  absl::StatusOr<core::UpdateComponentsEvent> event = ReadUpdate(*request, &device_uuid);
  if (event.ok()) {
    absl::Status status = CheckDevice(event->header.session, device_uuid);
    if (!status.ok()) event = std::move(status);
  }
  return Run<core::UpdateAnswer>(context, Method("VramBroker.UpdateComponents"), std::move(event),
                                 response);
}

grpc::ServerUnaryReactor* BrokerService::BeginUse(Context* context,
                                                  const v1::BeginUseRequest* request,
                                                  v1::BeginUseResponse* response) {
  return Run<core::BeginAnswer>(context, Method("VramBroker.BeginUse"), ReadBeginUse(*request),
                                response);
}

grpc::ServerUnaryReactor* BrokerService::EndUse(Context* context, const v1::EndUseRequest* request,
                                                v1::EndUseResponse* response) {
  return Run<core::EndAnswer>(context, Method("VramBroker.EndUse"), ReadEndUse(*request), response);
}

grpc::ServerUnaryReactor* BrokerService::ReportResidency(Context* context,
                                                         const v1::ReportResidencyRequest* request,
                                                         v1::ReportResidencyResponse* response) {
  return Run<core::ReportAnswer>(context, Method("VramBroker.ReportResidency"),
                                 ReadReport(*request), response);
}

grpc::ServerUnaryReactor* BrokerService::DeclarePipeline(Context* context,
                                                         const v1::DeclarePipelineRequest* request,
                                                         v1::DeclarePipelineResponse* response) {
  return Run<core::EmptyAnswer>(context, Method("VramBroker.DeclarePipeline"),
                                ReadDeclarePipeline(*request), response);
}

grpc::ServerUnaryReactor* BrokerService::DeclareRun(Context* context,
                                                    const v1::DeclareRunRequest* request,
                                                    v1::DeclareRunResponse* response) {
  return Run<core::DeclareRunAnswer>(context, Method("VramBroker.DeclareRun"),
                                     ReadDeclareRun(*request), response);
}

grpc::ServerUnaryReactor* BrokerService::FinishRun(Context* context,
                                                   const v1::FinishRunRequest* request,
                                                   v1::FinishRunResponse* response) {
  return Run<core::EmptyAnswer>(context, Method("VramBroker.FinishRun"), ReadFinishRun(*request),
                                response);
}

}  // namespace vrambroker::server
