// The engine's stream and calls: asynchronous, each counted until its last callback has returned.
#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/engine.h"

namespace vrambroker::client {

// The session's stream: one read in flight; ends itself.
class Engine::Stream : public grpc::ClientReadReactor<v1::Directive> {
 public:
  Stream(Engine* engine, const v1::AttachRequest& request) : engine_(engine), request_(request) {}

  void Start() {
    engine_->stub_->async()->Attach(&context_, &request_, this);
    StartRead(&directive_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    engine_->Deliver(DirectiveReceived{request_.attach_number(), directive_});
    StartRead(&directive_);
  }
  void OnDone(const grpc::Status& status) override {
    Engine* engine = engine_;
    {
      const std::lock_guard<std::mutex> lock(engine->mutex_);
      if (engine->stream_ == this) engine->stream_ = nullptr;
    }
    engine->Deliver(StreamEnded{request_.attach_number(), FromGrpc(status)});
    delete this;
    engine->CallEnded();
  }

 private:
  Engine* const engine_;
  const v1::AttachRequest request_;
  v1::Directive directive_;
  grpc::ClientContext context_;
};

// One unary call, from sending to its answer's event.
template <typename Request, typename Response, typename Answered>
struct UnaryCall {
  Engine* engine;
  uint64_t attach_number;
  Request request;
  Response response = {};
  grpc::ClientContext context = {};

  void Answer(const grpc::Status& status, const std::string& request_id) {
    Answered e;
    e.attach_number = attach_number;
    if constexpr (!std::is_same_v<Answered, ReportAnswered>) e.request_id = request_id;
    e.status = Engine::FromGrpc(status);
    e.response = std::move(response);
    Engine* to = engine;
    delete this;
    to->Deliver(std::move(e));
    to->CallEnded();
  }
};

absl::Status Engine::FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

void Engine::CallStarted() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++calls_;
}

void Engine::CallEnded() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --calls_;
  changed_.notify_all();
}

void Engine::Do(const OpenStream& e) {
  auto* stream = new Stream(this, e.request);  // deletes itself when done
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) {
      delete stream;
      return;
    }
    if (stream_ != nullptr) stream_->Cancel();
    stream_ = stream;
    ++calls_;
  }
  stream->Start();
}

void Engine::Do(const SendBegin& e) {
  auto* call = new UnaryCall<v1::BeginUseRequest, v1::BeginUseResponse, BeginAnswered>{
      this, e.attach_number, e.request};
  const std::string id = e.request.request_id();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) {
      delete call;
      return;
    }
    begins_[id] = &call->context;
    ++calls_;
  }
  stub_->async()->BeginUse(&call->context, &call->request, &call->response,
                           [this, call, id](const grpc::Status& status) {
                             {
                               const std::lock_guard<std::mutex> lock(mutex_);
                               const auto it = begins_.find(id);
                               if (it != begins_.end() && it->second == &call->context) {
                                 begins_.erase(it);
                               }
                             }
                             call->Answer(status, id);
                           });
}

void Engine::Do(const SendEnd& e) {
  auto* call = new UnaryCall<v1::EndUseRequest, v1::EndUseResponse, EndAnswered>{
      this, e.attach_number, e.request};
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  CallStarted();
  stub_->async()->EndUse(
      &call->context, &call->request, &call->response,
      [call](const grpc::Status& status) { call->Answer(status, call->request.request_id()); });
}

void Engine::Do(const SendReport& e) {
  auto* call =
      new UnaryCall<v1::ReportResidencyRequest, v1::ReportResidencyResponse, ReportAnswered>{
          this, e.attach_number, e.request};
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  CallStarted();
  stub_->async()->ReportResidency(&call->context, &call->request, &call->response,
                                  [call](const grpc::Status& status) { call->Answer(status, ""); });
}

void Engine::Do(const SendUpdate& e) {
  auto* call =
      new UnaryCall<v1::UpdateComponentsRequest, v1::UpdateComponentsResponse, UpdateAnswered>{
          this, e.attach_number, e.request};
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  CallStarted();
  stub_->async()->UpdateComponents(
      &call->context, &call->request, &call->response,
      [call](const grpc::Status& status) { call->Answer(status, call->request.request_id()); });
}

void Engine::Do(const CancelBegin& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = begins_.find(e.request_id); it != begins_.end()) it->second->TryCancel();
}

// Requires the lock.
void Engine::CancelCalls() {
  if (stream_ != nullptr) stream_->Cancel();
  for (auto& [id, context] : begins_) context->TryCancel();
}

}  // namespace vrambroker::client
