#include "broker/server/admin_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "broker/server/checks.h"
#include "broker/server/convert_answers.h"
#include "broker/server/convert_explanation.h"
#include "broker/server/looks.h"

namespace vrambroker::server {
namespace {

constexpr int kDefaultDecisions = 100;

// A call that is answered by a look at the machine; only its end without one goes through Complete.
class LookCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;
  void Complete(const Result& result) override {
    const auto* status = std::get_if<absl::Status>(&result);
    Finish(status == nullptr ? grpc::Status::OK : ToGrpc(*status));
  }
};

}  // namespace

bool AdminService::Allowed(const Context& context, const MethodRoles& method,
                           UnaryCall* call) const {
  const absl::Status status = CheckRole(callers_->Of(context), method);
  if (!status.ok()) call->Refuse(status);
  return status.ok();
}

grpc::ServerUnaryReactor* AdminService::GetPicture(Context* context, const v1::GetPictureRequest*,
                                                   v1::Picture* response) {
  auto* call = new LookCall(engine_);
  if (!Allowed(*context, Method("BrokerAdmin.GetPicture"), call)) return call;
  engine_->SubmitInspection(
      call, [response](UnaryCall* answered, const core::Machine& machine, absl::Time now) {
        Write(machine.GetPicture(now), response);
        answered->Complete(absl::OkStatus());
      });
  return call;
}

grpc::ServerWriteReactor<v1::Picture>* AdminService::WatchPicture(
    Context* context, const v1::WatchPictureRequest* request) {
  const absl::Duration wanted = ToDuration(request->min_interval());
  const std::shared_ptr<PictureStream> stream =
      PictureStream::Create(std::max(wanted, PictureFeed::kMinInterval));
  Checks checks;
  checks.Duration("min_interval", request->min_interval());
  absl::Status status = CheckRole(callers_->Of(*context), Method("BrokerAdmin.WatchPicture"));
  if (status.ok()) status = checks.status();
  if (status.ok()) status = feed_->Add(stream);
  if (!status.ok()) stream->Close(status);
  return stream.get();
}

grpc::ServerUnaryReactor* AdminService::ListDecisions(Context* context,
                                                      const v1::ListDecisionsRequest* request,
                                                      v1::ListDecisionsResponse* response) {
  auto* call = new LookCall(engine_);
  if (!Allowed(*context, Method("BrokerAdmin.ListDecisions"), call)) return call;
  Checks checks;
  checks.Range("limit", request->limit(), 0, kMaxDecisions);
  if (!checks.ok()) {
    call->Refuse(checks.status());
    return call;
  }
  const int limit = request->limit() == 0 ? kDefaultDecisions : request->limit();
  const core::DecisionId after(request->after_decision_id());
  engine_->SubmitInspection(call,
                            [=](UnaryCall* answered, const core::Machine& machine, absl::Time) {
                              CopyDecisions(machine, static_cast<size_t>(limit), after, response);
                              answered->Complete(absl::OkStatus());
                            });
  return call;
}

grpc::ServerWriteReactor<v1::Decision>* AdminService::WatchDecisions(
    Context* context, const v1::WatchDecisionsRequest* request) {
  const std::shared_ptr<DecisionStream> stream = DecisionStream::Create();
  Checks checks;
  checks.Range("limit", request->limit(), 0, kMaxDecisions);
  absl::Status status = CheckRole(callers_->Of(*context), Method("BrokerAdmin.WatchDecisions"));
  if (status.ok()) status = checks.status();
  if (status.ok()) status = decisions_->Add(stream);
  if (!status.ok()) {
    stream->Close(status);
    return stream.get();
  }
  // Between two decisions, so that none is missed and none comes twice.
  engine_->Inspect([this, stream, limit = static_cast<size_t>(request->limit()),
                    after = core::DecisionId(request->after_decision_id())](
                       const core::Machine& machine, absl::Time) {
    v1::ListDecisionsResponse known;
    if (limit > 0) CopyDecisions(machine, limit, after, &known);
    std::vector<DecisionStream::MessagePtr> before;
    for (v1::Decision& decision : *known.mutable_decisions()) {
      before.push_back(std::make_shared<const v1::Decision>(std::move(decision)));
    }
    decisions_->Begin(stream, before);
  });
  return stream.get();
}

// Makes up to three plans between two decisions: some milliseconds where most is known.
grpc::ServerUnaryReactor* AdminService::ExplainDecision(Context* context,
                                                        const v1::ExplainDecisionRequest* request,
                                                        v1::ExplainDecisionResponse* response) {
  auto* call = new LookCall(engine_);
  if (!Allowed(*context, Method("BrokerAdmin.ExplainDecision"), call)) return call;
  const core::DecisionId id(request->decision_id());
  if (!id) {
    call->Refuse(absl::InvalidArgumentError("decision_id: 0 given, 1 or more is allowed"));
    return call;
  }
  engine_->SubmitInspection(call,
                            [=](UnaryCall* answered, const core::Machine& machine, absl::Time) {
                              const absl::StatusOr<core::Explanation> why = machine.Explain(id);
                              if (why.ok()) Write(*why, response);
                              answered->Complete(why.status());
                            });
  return call;
}

grpc::ServerUnaryReactor* AdminService::ListRuns(Context* context, const v1::ListRunsRequest*,
                                                 v1::ListRunsResponse* response) {
  auto* call = new LookCall(engine_);
  if (!Allowed(*context, Method("BrokerAdmin.ListRuns"), call)) return call;
  engine_->SubmitInspection(
      call, [response](UnaryCall* answered, const core::Machine& machine, absl::Time now) {
        for (const core::RunPicture& run : machine.GetPicture(now).runs) {
          Write(run, response->add_runs());
        }
        answered->Complete(absl::OkStatus());
      });
  return call;
}

grpc::ServerUnaryReactor* AdminService::Drain(Context* context, const v1::DrainRequest*,
                                              v1::DrainResponse* response) {
  auto* call = new TypedCall<core::EmptyAnswer, v1::DrainResponse>(engine_, response);
  if (!Allowed(*context, Method("BrokerAdmin.Drain"), call)) return call;
  engine_->SubmitDrain(call);
  return call;
}

}  // namespace vrambroker::server
