#include "broker/ctl/conformance_peer.h"

#include <unistd.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace vrambroker::ctl {
namespace {

// Rounds in which a worker that lets go follows the newest targets.
constexpr int kRounds = 20;

}  // namespace

std::string ConformanceBed::NewId() { return absl::StrCat(suffix, "-", ++last_id); }

v1::Component ConformanceBed::Component(const std::string& name) const {
  v1::Component component;
  component.set_name(name);
  component.set_device_uuid(device);
  component.set_lifetime(v1::LIFETIME_FORWARD);
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(kTestLayers);
  run->set_layer_bytes(kTestLayerBytes);
  return component;
}

v1::AttachRequest ConformanceBed::Attach(const std::string& worker, uint64_t number,
                                         const std::vector<v1::Component>& components) const {
  v1::AttachRequest request;
  request.set_worker(worker);
  request.set_pid(getpid());
  request.set_start_time_ticks(start_time_ticks);
  request.set_attach_number(number);
  request.set_min_version(1);
  request.set_max_version(1);
  for (const v1::Component& component : components) *request.add_components() = component;
  return request;
}

SessionStream::SessionStream(const ConformanceBed& bed, const v1::AttachRequest& request)
    : timeout_(bed.timeout), reader_(bed.broker->Attach(&context_, request)) {
  std::future<bool> read =
      std::async(std::launch::async, [this] { return reader_->Read(&first_); });
  if (read.wait_for(absl::ToChronoNanoseconds(timeout_)) != std::future_status::ready) {
    context_.TryCancel();
  }
  if (read.get()) return;
  opened_ = reader_->Finish();
  finished_ = true;
  if (opened_.ok()) opened_ = {grpc::StatusCode::OK, "the stream ended without a directive"};
}

SessionStream::~SessionStream() {
  context_.TryCancel();
  if (!finished_) End();
}

grpc::Status SessionStream::End() {
  if (finished_) return opened_;
  finished_ = true;
  std::future<grpc::Status> end = std::async(std::launch::async, [this] {
    v1::Directive ignored;
    while (reader_->Read(&ignored)) continue;
    return reader_->Finish();
  });
  if (end.wait_for(absl::ToChronoNanoseconds(timeout_)) != std::future_status::ready) {
    context_.TryCancel();
  }
  opened_ = end.get();
  return opened_;
}

TestWorker::TestWorker(ConformanceBed* bed, const std::string& name,
                       const std::vector<v1::Component>& components)
    : bed_(bed), request_(bed->Attach(name, 0, components)) {
  for (const v1::Component& component : components) held_[component.name()] = {};
}

TestWorker::~TestWorker() {
  for (auto& [name, held] : held_) held.layers = 0;
  for (int round = 0; round < kRounds && !held_.empty() && stream_ != nullptr; ++round) {
    v1::ReportResidencyResponse reached;
    v1::UpdateComponentsResponse removed;
    v1::UpdateComponentsRequest request = Update();
    for (const auto& [name, held] : held_) request.add_remove(name);
    const bool reported = Report(&reached).ok();
    *request.mutable_snapshot() = Snapshot();
    if (reported && bed_->Call(&BrokerStub::UpdateComponents, request, &removed).ok()) break;
    if (!Attach().ok()) break;  // uses that are not listed have ended
  }
}

grpc::Status TestWorker::Attach(const std::vector<v1::RunningUse>& running) {
  request_.set_attach_number(request_.attach_number() + 1);
  request_.mutable_running_uses()->Assign(running.begin(), running.end());
  if (!held_.empty() && stream_ != nullptr) *request_.mutable_snapshot() = Snapshot();
  former_ = std::move(stream_);
  stream_ = std::make_unique<SessionStream>(*bed_, request_);
  session_ = stream_->first().welcome().session_id();
  for (const v1::Target& target : stream_->first().targets()) {
    Complete(target.component(), target.generation());
  }
  return stream_->opened();
}

void TestWorker::Complete(const std::string& component, uint64_t generation) {
  if (const auto found = held_.find(component); found != held_.end()) {
    found->second.completed = std::max(found->second.completed, generation);
  }
}

v1::Snapshot TestWorker::Snapshot() {
  v1::Snapshot snapshot;
  snapshot.set_sequence(++sequence_);
  for (const auto& [name, held] : held_) {
    v1::ComponentResidency* one = snapshot.add_components();
    one->set_component(name);
    one->set_held_layers(held.layers);
    one->set_completed_generation(held.completed);
  }
  return snapshot;
}

grpc::Status TestWorker::Report(v1::ReportResidencyResponse* response) {
  grpc::Status status;
  for (int round = 0; round < 2 && status.ok(); ++round) {
    v1::ReportResidencyRequest request;
    request.set_session_id(session_);
    *request.mutable_snapshot() = Snapshot();
    response->Clear();
    status = bed_->Call(&BrokerStub::ReportResidency, request, response);
    for (const v1::Target& target : response->targets()) {
      Complete(target.component(), target.generation());
    }
  }
  return status;
}

v1::BeginUseRequest TestWorker::Use(const std::string& component) const {
  v1::BeginUseRequest request;
  request.set_session_id(session_);
  request.set_request_id(bed_->NewId());
  request.set_component(component);
  request.set_passes(1);
  request.set_min_resident_layers(1);
  return request;
}

v1::EndUseRequest TestWorker::End(uint64_t use_id) {
  v1::EndUseRequest request;
  request.set_session_id(session_);
  request.set_request_id(bed_->NewId());
  request.set_use_id(use_id);
  *request.mutable_snapshot() = Snapshot();
  return request;
}

v1::EndUseRequest TestWorker::End(const std::string& begin_request_id) {
  v1::EndUseRequest request = End(uint64_t{0});
  request.set_begin_request_id(begin_request_id);
  return request;
}

v1::UpdateComponentsRequest TestWorker::Update() {
  v1::UpdateComponentsRequest request;
  request.set_session_id(session_);
  request.set_request_id(bed_->NewId());
  *request.mutable_snapshot() = Snapshot();
  return request;
}

grpc::Status TestWorker::Begin(const v1::BeginUseRequest& request, v1::BeginUseResponse* response) {
  const grpc::Status status = bed_->Call(&BrokerStub::BeginUse, request, response);
  if (status.ok()) Complete(request.component(), response->generation());
  return status;
}

grpc::Status TestWorker::Finish(const v1::EndUseRequest& request, v1::EndUseResponse* response) {
  const grpc::Status status = bed_->Call(&BrokerStub::EndUse, request, response);
  if (status.ok()) Complete(response->target().component(), response->target().generation());
  return status;
}

std::future<grpc::Status> TestWorker::BeginLater(const v1::BeginUseRequest& request,
                                                 absl::Duration within) {
  return std::async(std::launch::async, [this, request, within] {
    v1::BeginUseResponse ignored;
    return Ask(bed_->broker, &BrokerStub::BeginUse, request, &ignored, within);
  });
}

}  // namespace vrambroker::ctl
