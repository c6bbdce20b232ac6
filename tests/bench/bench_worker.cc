#include "tests/bench/bench_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::bench {

BenchWorker::BenchWorker(std::shared_ptr<grpc::Channel> channel, const std::string& name,
                         const v1::Component& component)
    : stub_(v1::VramBroker::NewStub(std::move(channel))), name_(name), component_(component) {}

BenchWorker::~BenchWorker() {
  context_.TryCancel();
  if (thread_.joinable()) thread_.join();
}

absl::Status BenchWorker::Start() {
  v1::AttachRequest request;
  request.set_worker(name_);
  request.set_attach_number(1);
  if (!component_.name().empty()) *request.add_components() = component_;
  reader_ = stub_->Attach(&context_, request);
  v1::Directive first;
  if (!reader_->Read(&first) || !first.has_welcome()) {
    return absl::InternalError(
        absl::StrCat(name_, " was not welcomed: ", reader_->Finish().error_message()));
  }
  session_ = first.welcome().session_id();
  for (const v1::RefusedComponent& refused : first.welcome().refused_components()) {
    return absl::InternalError(absl::StrCat(name_, ": ", refused.message()));
  }
  thread_ = std::thread([this] { ReadDirectives(); });
  for (const v1::Target& target : first.targets()) ApplyTarget(target);
  return absl::OkStatus();
}

void BenchWorker::ReadDirectives() {
  v1::Directive directive;
  while (reader_->Read(&directive)) {
    for (const v1::Target& target : directive.targets()) ApplyTarget(target);
  }
  reader_->Finish();
}

void BenchWorker::ApplyTarget(const v1::Target& target) {
  grpc::ClientContext context;
  v1::ReportResidencyRequest request;
  v1::ReportResidencyResponse response;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (in_use_ || target.generation() <= completed_) return;
    held_ = std::min(held_, target.layers());
    completed_ = target.generation();
    request.set_session_id(session_);
    FillSnapshot(request.mutable_snapshot());
  }
  stub_->ReportResidency(&context, request, &response);
}

void BenchWorker::SetInUse(bool in_use) {
  std::lock_guard<std::mutex> lock(mutex_);
  in_use_ = in_use;
}

v1::EndUseRequest BenchWorker::MakeEnd(const v1::BeginUseResponse& begun) {
  v1::EndUseRequest request;
  request.set_session_id(session_);
  request.set_use_id(begun.use_id());
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = begun.resident_layers();
  completed_ = begun.generation();
  FillSnapshot(request.mutable_snapshot());
  return request;
}

void BenchWorker::Apply(const v1::EndUseResponse& ended) {
  SetInUse(false);
  if (ended.has_target()) ApplyTarget(ended.target());
}

void BenchWorker::FillSnapshot(v1::Snapshot* snapshot) {
  snapshot->set_sequence(++sequence_);
  v1::ComponentResidency* one = snapshot->add_components();
  one->set_component(component_.name());
  one->set_held_layers(held_);
  one->set_completed_generation(completed_);
  one->set_fixed_placed(true);
}

}  // namespace vrambroker::bench
