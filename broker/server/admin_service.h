// The service for people and their tools.
#pragma once

#include <grpcpp/grpcpp.h>

#include "broker/server/callers.h"
#include "broker/server/decision_feed.h"
#include "broker/server/engine.h"
#include "broker/server/picture_feed.h"
#include "vrambroker/v1/admin.grpc.pb.h"

namespace vrambroker::server {

class AdminService final : public v1::BrokerAdmin::CallbackService {
 public:
  // All outlive the service.
  AdminService(Engine* engine, PictureFeed* feed, DecisionFeed* decisions, const Callers* callers)
      : engine_(engine), feed_(feed), decisions_(decisions), callers_(callers) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* GetPicture(Context* context, const v1::GetPictureRequest* request,
                      v1::Picture* response) override;
  grpc::ServerWriteReactor<v1::Picture>* WatchPicture(
      Context* context, const v1::WatchPictureRequest* request) override;
  Reactor* ListDecisions(Context* context, const v1::ListDecisionsRequest* request,
                         v1::ListDecisionsResponse* response) override;
  grpc::ServerWriteReactor<v1::Decision>* WatchDecisions(
      Context* context, const v1::WatchDecisionsRequest* request) override;
  Reactor* ExplainDecision(Context* context, const v1::ExplainDecisionRequest* request,
                           v1::ExplainDecisionResponse* response) override;
  Reactor* ListRuns(Context* context, const v1::ListRunsRequest* request,
                    v1::ListRunsResponse* response) override;
  Reactor* Drain(Context* context, const v1::DrainRequest* request,
                 v1::DrainResponse* response) override;

  // Whether the caller has the method's role; if not, the call has been refused.
  bool Allowed(const Context& context, const MethodRoles& method, UnaryCall* call) const;

  Engine* const engine_;
  PictureFeed* const feed_;
  DecisionFeed* const decisions_;
  const Callers* const callers_;
};

}  // namespace vrambroker::server
