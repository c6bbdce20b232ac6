#include "tests/bench/bench_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::bench {

BenchWorker::BenchWorker(std::shared_ptr<grpc::Channel> channel, const std::string& name,
                         std::vector<v1::Component> components)
    : stub_(v1::VramBroker::NewStub(std::move(channel))),
      name_(name),
      components_(std::move(components)) {
  for (const v1::Component& component : components_) residency_[component.name()] = {};
}

BenchWorker::~BenchWorker() {
  context_.TryCancel();
  if (thread_.joinable()) thread_.join();
}

absl::Status BenchWorker::Start() {
  v1::AttachRequest request;
  request.set_worker(name_);
  request.set_attach_number(1);
  for (const v1::Component& component : components_) *request.add_components() = component;
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
    Residency& its = residency_[target.component()];
    if (its.in_use || target.generation() <= its.completed) return;
    its.held = target.layers();
    its.completed = target.generation();
    request.set_session_id(session_);
    FillSnapshot(request.mutable_snapshot());
  }
  stub_->ReportResidency(&context, request, &response);
}

void BenchWorker::SetInUse(const std::string& component, bool in_use) {
  std::lock_guard<std::mutex> lock(mutex_);
  residency_[component].in_use = in_use;
}

v1::EndUseRequest BenchWorker::MakeEnd(const std::string& component,
                                       const v1::BeginUseResponse& begun) {
  v1::EndUseRequest request;
  request.set_session_id(session_);
  request.set_use_id(begun.use_id());
  std::lock_guard<std::mutex> lock(mutex_);
  Residency& its = residency_[component];
  its.held = begun.resident_layers();
  its.completed = begun.generation();
  FillSnapshot(request.mutable_snapshot());
  return request;
}

void BenchWorker::Apply(const std::string& component, const v1::EndUseResponse& ended) {
  SetInUse(component, false);
  if (ended.has_target()) ApplyTarget(ended.target());
}

void BenchWorker::FillSnapshot(v1::Snapshot* snapshot) {
  snapshot->set_sequence(++sequence_);
  for (const auto& [name, its] : residency_) {
    v1::ComponentResidency* one = snapshot->add_components();
    one->set_component(name);
    one->set_held_layers(its.held);
    one->set_completed_generation(its.completed);
    one->set_fixed_placed(true);
  }
}

}  // namespace vrambroker::bench
