#include "tests/e2e/scripted_worker.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/defaults.h"

namespace vrambroker::e2e {
namespace {

constexpr char kComponent[] = "c";

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
}

std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

ScriptedWorker::ScriptedWorker(const Setup& setup)
    : setup_(setup), stub_(v1::VramBroker::NewStub(OwnChannel(setup.broker))) {
  absl::StatusOr<std::unique_ptr<card::EmulatedCard>> card =
      card::EmulatedCard::Open(card::EmulatedCard::NameOfUuid(setup.card_uuid));
  if (card.ok()) card_ = *std::move(card);
}

ScriptedWorker::~ScriptedWorker() {
  CancelBegins();
  CloseStream();
}

void ScriptedWorker::CancelBegins() {
  for (const auto& context : begins_) context->TryCancel();
  for (const auto& future : futures_) future.wait();
}

v1::Snapshot ScriptedWorker::Snapshot(int held, uint64_t generation) {
  said_held_ = held;
  said_generation_ = generation;
  v1::Snapshot snapshot;
  snapshot.set_sequence(++sequence_);
  v1::ComponentResidency* residency = snapshot.add_components();
  residency->set_component(kComponent);
  residency->set_held_layers(held);
  residency->set_completed_generation(generation);
  residency->set_fixed_placed(true);
  return snapshot;
}

grpc::Status ScriptedWorker::Attach() {
  v1::AttachRequest request;
  request.set_worker(setup_.name);
  request.set_pid(getpid());
  request.set_start_time_ticks(client::OwnStartTimeTicks());
  request.set_attach_number(++attach_number_);
  v1::Component* component = request.add_components();
  component->set_name(kComponent);
  component->set_device_uuid(setup_.card_uuid);
  v1::LayerRun* run = component->add_layer_runs();
  run->set_count(setup_.layers);
  run->set_layer_bytes(setup_.layer_bytes);
  if (attach_number_ > 1) *request.mutable_snapshot() = Snapshot(said_held_, said_generation_);

  stream_ = std::make_unique<grpc::ClientContext>();
  std::shared_ptr<grpc::ClientReader<v1::Directive>> reader = stub_->Attach(stream_.get(), request);
  v1::Directive first;
  if (!reader->Read(&first)) return reader->Finish();
  session_ = first.welcome().session_id();
  for (const v1::Target& target : first.targets()) Take(target);
  reader_ = std::thread([this, reader] {
    v1::Directive directive;
    while (reader->Read(&directive)) {
      for (const v1::Target& target : directive.targets()) Take(target);
    }
    (void)reader->Finish();
  });
  return grpc::Status::OK;
}

void ScriptedWorker::CloseStream() {
  if (stream_ != nullptr) stream_->TryCancel();
  if (reader_.joinable()) reader_.join();
  stream_.reset();
}

std::shared_future<ScriptedWorker::Begun> ScriptedWorker::BeginUse(const std::string& request_id,
                                                                   int64_t activation_bytes,
                                                                   int min_layers) {
  v1::BeginUseRequest request;
  request.set_session_id(session_);
  request.set_request_id(request_id);
  request.set_component(kComponent);
  request.set_activation_bytes(activation_bytes);
  request.set_min_resident_layers(min_layers);
  auto context = std::make_shared<grpc::ClientContext>();
  begins_.push_back(context);
  std::shared_future<Begun> begun = std::async(std::launch::async, [this, context, request] {
                                      Begun result;
                                      result.status =
                                          stub_->BeginUse(context.get(), request, &result.response);
                                      return result;
                                    }).share();
  futures_.push_back(begun);
  return begun;
}

grpc::Status ScriptedWorker::EndUse(const Begun& begun, int held, v1::EndUseResponse* response) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::EndUseRequest request;
  request.set_session_id(session_);
  request.set_request_id(absl::StrCat("end-", ++ended_));
  request.set_use_id(begun.response.use_id());
  const bool converged = held == begun.response.resident_layers();
  *request.mutable_snapshot() =
      Snapshot(held, converged ? begun.response.generation() : said_generation_);
  const grpc::Status status = stub_->EndUse(&context, request, response);
  if (!status.ok()) return status;
  Take(response->target());
  if (response->target().layers() != held) return status;
  return Report(held, response->target().generation());
}

grpc::Status ScriptedWorker::Report(int held, uint64_t generation) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::ReportResidencyRequest request;
  request.set_session_id(session_);
  *request.mutable_snapshot() = Snapshot(held, generation);
  v1::ReportResidencyResponse response;
  return stub_->ReportResidency(&context, request, &response);
}

v1::Target ScriptedWorker::Target() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return target_;
}

void ScriptedWorker::Take(const v1::Target& target) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (target.generation() > target_.generation()) target_ = target;
}

absl::Status ScriptedWorker::Allocate(int64_t bytes) {
  if (card_ == nullptr) return absl::NotFoundError("no card " + setup_.card_uuid);
  absl::StatusOr<card::DeviceBuffer> buffer = card_->Allocate(bytes);
  if (buffer.ok()) buffers_.push_back(*buffer);
  return buffer.status();
}

void ScriptedWorker::FreeAll() {
  for (const card::DeviceBuffer& buffer : buffers_) (void)card_->Free(buffer);
  buffers_.clear();
}

}  // namespace vrambroker::e2e
