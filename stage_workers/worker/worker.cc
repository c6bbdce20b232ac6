#include "stage_workers/worker/worker.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "stage_workers/card/cuda_card.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/offload/layers.h"
#include "stage_workers/offload/safetensors.h"

namespace vrambroker::worker {
namespace {

absl::Status CheckOptions(const WorkerOptions& options) {
  const size_t count = options.components.size();
  if (count == 0 || count > kMaxComponents || options.weights.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--component names ", count, " components and --weights ", options.weights.size(),
        " files; 1 to ", kMaxComponents, " of each, as many of one as of the other, are needed"));
  }
  for (size_t i = 0; i < count; ++i) {
    if (std::count(options.components.begin(), options.components.end(), options.components[i]) >
        1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--component names ", options.components[i], " twice; names are unique"));
    }
  }
  if (!(options.pass_seconds >= 0) || options.pass_seconds > 1e6) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pass-seconds: ", options.pass_seconds, " given; 0 to 1000000 is allowed"));
  }
  if (!(options.time_scale > 0) || options.time_scale > 1e6) {
    return absl::InvalidArgumentError(absl::StrCat("--time-scale: ", options.time_scale,
                                                   " given; above 0, at most 1000000 is allowed"));
  }
  if (options.warm_up_uses < 0 || options.warm_up_uses > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--warm-up-uses: ", options.warm_up_uses, " given; 0 to 1000 is allowed"));
  }
  return absl::OkStatus();
}

double LinkRate(const card::Card& card) {
  const auto* emulated = dynamic_cast<const card::EmulatedCard*>(&card);
  return emulated == nullptr ? 0 : emulated->LinkBytesPerSecond();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const WorkerOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  std::unique_ptr<Worker> worker(new Worker(options));
  if (absl::Status status = worker->OpenCard(); !status.ok()) return status;
  for (size_t i = 0; i < options.components.size(); ++i) {
    absl::Status status = worker->AddStage(options.components[i], options.weights[i]);
    if (!status.ok()) return status;
  }
  std::vector<const ManagedOffload*> components;
  for (const auto& stage : worker->stages_) components.push_back(stage->component.get());
  worker->pool_adapter_ =
      std::make_unique<ManagedPoolAdapter>(worker->pool_.get(), std::move(components));
  return worker;
}

Worker::~Worker() = default;

absl::Status Worker::OpenCard() {
  absl::StatusOr<std::unique_ptr<card::Card>> card = card::OpenCard(options_.card_uuid);
  if (!card.ok()) return card.status();
  card_ = *std::move(card);
  pool_ = std::make_unique<offload::PoolAllocator>(
      card_.get(), offload::PoolOptions{.caching = options_.caching_allocator});
  return absl::OkStatus();
}

absl::Status Worker::AddStage(const std::string& name, const std::string& weights) {
  absl::StatusOr<std::shared_ptr<offload::SafetensorsFile>> file =
      offload::SafetensorsFile::Open(weights);
  if (!file.ok()) return file.status();
  absl::StatusOr<offload::LayerMap> map = offload::GroupLayers(*file, {});
  if (!map.ok()) return map.status();
  absl::StatusOr<offload::KeepOrder> keep = offload::MakeKeepOrder(map->lists, options_.resident);
  if (!keep.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--resident: of component ", name, ", which has ", map->layers.size(),
        " layers, more are configured: ", keep.status().message(), "; all stands for all of them"));
  }
  // A broker may grant and keep any number: the configured one is for when none lives.
  const int configured = keep->configured;
  if (brokered()) keep->configured = static_cast<int>(map->layers.size());

  offload::ComponentOptions options;
  options.name = name;
  options.keep = *std::move(keep);
  options.window_layers = options_.window_layers;
  options.tier = options_.tier;
  options.pin_at_once = !brokered();
  options.lifetime = options_.lifetime;
  options.keep_host_copy = options_.host_copy;
  absl::StatusOr<std::unique_ptr<offload::StreamedComponent>> component =
      offload::StreamedComponent::Create(pool_.get(), *std::move(map), std::move(options));
  if (!component.ok()) return component.status();
  if (!(*component)->pin_status().ok()) pin_status_ = (*component)->pin_status();

  absl::StatusOr<std::unique_ptr<ManagedOffload>> managed = ManagedOffload::Create(
      *std::move(component), {.device_uuid = card_->Uuid(),
                              .pass_seconds = options_.pass_seconds / options_.time_scale,
                              .link_bytes_per_second = LinkRate(*card_)});
  if (!managed.ok()) return managed.status();
  auto stage = std::make_unique<Stage>();
  stage->component = *std::move(managed);
  stage->configured = configured;
  if (!brokered()) {
    stage->runner = MakeLocalRunner(stage->component.get(), pool_.get(), options_.rules);
  }
  stages_.push_back(std::move(stage));
  return absl::OkStatus();
}

absl::Status Worker::Connect() {
  if (!brokered()) return absl::OkStatus();
  client::ClientOptions options;
  options.address = options_.broker;
  options.tls = options_.tls;
  options.worker = options_.name;
  options.pool = pool_adapter_.get();
  options.lock_dir = options_.lock_dir;
  options.device_uuid = card_->Uuid();
  options.notice = options_.notice;
  for (const auto& stage : stages_) {
    options.components.push_back(stage->component.get());
    options.configured_resident.emplace_back(stage->component->name(), stage->configured);
  }
  absl::StatusOr<std::unique_ptr<client::BrokerClient>> client =
      client::BrokerClient::Create(std::move(options));
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  for (const auto& stage : stages_) {
    stage->runner = MakeBrokeredRunner(client_.get(), stage->component.get(), pool_.get(),
                                       options_.warm_up_uses);
  }
  return absl::OkStatus();
}

absl::Status Worker::Start(absl::Time deadline) {
  if (client_ == nullptr) {
    if (absl::Status status = Connect(); !status.ok()) return status;
  }
  const absl::Status status = brokered() ? client_->WaitReady(deadline) : Place();
  if (status.ok()) started_ = true;
  return status;
}

absl::Status Worker::Place() {
  for (const auto& stage : stages_) {
    const std::lock_guard<std::mutex> lock(stage->component->lock());
    if (absl::Status status = stage->component->PlaceFixed(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string Worker::WaitingFor() const {
  if (started_) return "";
  const std::string waiting = client_ == nullptr ? "" : client_->WaitingFor();
  return waiting.empty() ? "placing its components" : waiting;
}

absl::Status Worker::CheckStarted() const {
  const std::string waiting = WaitingFor();
  if (waiting.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("worker ", options_.name, " runs no stages yet: ", waiting));
}

absl::StatusOr<Worker::Stage*> Worker::Find(const std::string& component) {
  if (component.empty() && stages_.size() == 1) return stages_[0].get();
  for (const auto& stage : stages_) {
    if (stage->component->name() == component) return stage.get();
  }
  return absl::NotFoundError(absl::StrCat("component: '", component, "' given; ", options_.name,
                                          " serves ", absl::StrJoin(options_.components, ", ")));
}

absl::StatusOr<StageResult> Worker::RunStage(const std::string& component,
                                             const StageRequest& request, int* layers) {
  if (absl::Status status = CheckStarted(); !status.ok()) return status;
  const absl::StatusOr<Stage*> stage = Find(component);
  if (!stage.ok()) return stage.status();
  *layers = (*stage)->component->layer_count();
  absl::StatusOr<StageResult> result = (*stage)->runner->Run(request);
  ++(result.ok() ? (*stage)->uses : (*stage)->failed_uses);
  return result;
}

absl::StatusOr<int64_t> Worker::ReleaseAll() {
  if (absl::Status status = CheckStarted(); !status.ok()) return status;
  for (const auto& stage : stages_) {
    if (stage->component->permanent() && !options_.host_copy) {
      return absl::FailedPreconditionError(
          absl::StrCat("component ", stage->component->name(),
                       ": its permanent layers have no host copy; releasing them would lose them"));
    }
  }
  int64_t released = 0;
  for (const auto& stage : stages_) {
    ManagedOffload& component = *stage->component;
    const std::lock_guard<std::mutex> lock(component.lock());
    const int64_t held = component.PrefixBytes(component.held_layers());
    if (absl::Status status = component.ReleaseAll(); !status.ok()) return status;
    released += held;
  }
  pool_->Trim();
  // Tells the broker.
  if (client_ != nullptr) {
    if (absl::Status status = client_->ReleaseAll(); !status.ok()) return status;
  }
  return released;
}

v1::StageWorkerStatus Worker::Status() {
  v1::StageWorkerStatus status;
  status.set_worker(options_.name);
  status.set_pid(getpid());
  for (const auto& stage : stages_) {
    v1::ComponentStatus* component = status.add_components();
    *component = stage->component->Status();
    if (component->pageable_because().empty() && client_ != nullptr) {
      component->set_pageable_because(client_->WhyPageable(stage->component->name()));
    }
    component->set_uses(stage->uses);
    component->set_failed_uses(stage->failed_uses);
  }
  status.set_pool_bytes(pool_adapter_->pool_bytes());
  status.set_pinned_host_bytes(pool_adapter_->pinned_host_bytes());
  status.set_device_uuid(card_->Uuid());
  status.set_device_capacity_bytes(card_->CapacityBytes());
  if (const absl::StatusOr<card::Usage> usage = card_->ReadUsage(); usage.ok()) {
    status.set_device_used_bytes(usage->total_used);
    status.set_device_peak_bytes(usage->peak_used);
  }
  status.set_attached(client_ != nullptr && client_->attached());
  status.set_waiting_for(WaitingFor());
  return status;
}

}  // namespace vrambroker::worker
