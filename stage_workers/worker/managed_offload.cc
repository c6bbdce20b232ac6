#include "stage_workers/worker/managed_offload.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::worker {
namespace {

// Bound of the contract: Component.layer_runs.
constexpr int kMaxLayerRuns = 256;

// Equal neighbours of the keep order as one run.
absl::Status AddLayerRuns(const offload::StreamedComponent& component, v1::Component* description) {
  for (int layer : component.options().keep.order) {
    const int64_t bytes = component.map().layers[layer].tensors.bytes;
    const int runs = description->layer_runs_size();
    if (runs > 0 && description->layer_runs(runs - 1).layer_bytes() == bytes) {
      v1::LayerRun* last = description->mutable_layer_runs(runs - 1);
      last->set_count(last->count() + 1);
      continue;
    }
    if (runs == kMaxLayerRuns) {
      return absl::InvalidArgumentError(absl::StrCat(
          "component ", component.options().name, ": more than ", kMaxLayerRuns,
          " changes of layer size along the keep order; at most ", kMaxLayerRuns, " are allowed"));
    }
    v1::LayerRun* run = description->add_layer_runs();
    run->set_count(1);
    run->set_layer_bytes(bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ManagedOffload>> ManagedOffload::Create(
    std::unique_ptr<offload::StreamedComponent> component, const DescribeOptions& options) {
  v1::Component description;
  description.set_name(component->options().name);
  description.set_device_uuid(options.device_uuid);
  if (absl::Status status = AddLayerRuns(*component, &description); !status.ok()) return status;
  description.set_fixed_bytes(component->map().fixed.bytes);
  description.set_window_bytes(component->WindowBytes(0));
  const bool permanent = component->options().lifetime == offload::Lifetime::kPermanent;
  description.set_lifetime(permanent ? v1::LIFETIME_PERMANENT : v1::LIFETIME_FORWARD);
  description.set_no_host_copy(permanent && !component->options().keep_host_copy);
  description.set_pass_seconds(options.pass_seconds);
  description.set_host_tier(component->tier() == offload::HostTier::kPinned
                                ? v1::HOST_TIER_PINNED
                                : v1::HOST_TIER_PAGEABLE);
  // What is not pinned yet, though it is to be, waits for the broker's word.
  if (component->options().tier == offload::HostTier::kPinned &&
      !component->options().pin_at_once && !description.no_host_copy()) {
    description.set_pin_host_bytes(component->pin_bytes());
  }
  description.set_link_bytes_per_second(options.link_bytes_per_second);
  return std::unique_ptr<ManagedOffload>(
      new ManagedOffload(std::move(component), std::move(description)));
}

ManagedOffload::ManagedOffload(std::unique_ptr<offload::StreamedComponent> component,
                               v1::Component description)
    : component_(std::move(component)), description_(std::move(description)) {
  Publish();
}

void ManagedOffload::Publish() {
  held_.store(component_->held_layers(), std::memory_order_release);
  fixed_placed_.store(component_->fixed_placed() &&
                          (!permanent() || component_->held_layers() == component_->layer_count()),
                      std::memory_order_release);
  const bool pinned = component_->tier() == offload::HostTier::kPinned;
  pinned_.store(pinned ? component_->pin_bytes() : 0, std::memory_order_release);
}

absl::Status ManagedOffload::PlaceFixed() {
  const auto own = component_->Lock();
  absl::Status status = component_->PlaceFixed();
  if (status.ok() && permanent() && component_->held_layers() < component_->layer_count()) {
    status = component_->PlacePermanent();
  }
  Publish();
  return status;
}

void ManagedOffload::FreeNeeds() {
  // Keeping as many layers as there are keeps all of the use's resident set. It cannot fail: layers
  // are written back only where they do not stay.
  (void)ReleaseAfterUse(component_->layer_count());
}

absl::Status ManagedOffload::ReleaseTo(int layers) {
  const auto own = component_->Lock();
  if (component_->held_layers() <= layers) return absl::OkStatus();
  const absl::Status status = component_->ReleaseTo(layers);
  Publish();
  return status;
}

absl::Status ManagedOffload::LoadNext(double pace) {
  const auto own = component_->Lock();
  const absl::Status status = component_->LoadNext(hurrying_.load() > 0 ? 0 : pace).status();
  Publish();
  return status;
}

absl::Status ManagedOffload::PinHostCopy() {
  const auto own = component_->Lock();
  absl::Status status = component_->PinHostCopy();
  Publish();
  return status;
}

absl::Status ManagedOffload::BeginUse(const offload::UseOptions& use) {
  const auto own = component_->Lock();
  const absl::Status status = component_->BeginUse(use);
  Publish();
  return status;
}

absl::StatusOr<offload::PassStats> ManagedOffload::RunPass(card::Activations activations,
                                                           absl::Duration time) {
  const auto own = component_->Lock();
  absl::StatusOr<offload::PassStats> stats = component_->RunPass(activations, time);
  Publish();
  return stats;
}

absl::Status ManagedOffload::ReleaseAfterUse(int layers) {
  const auto own = component_->Lock();
  const absl::Status status = component_->ReleaseAfterUse(layers);
  Publish();
  return status;
}

absl::Status ManagedOffload::ReleaseAll() {
  const auto own = component_->Lock();
  const absl::Status status = component_->ReleaseAll();
  Publish();
  return status;
}

ManagedOffload::HurryGuard::HurryGuard(ManagedOffload* component) : component_(component) {
  component_->hurrying_.fetch_add(1);
  // Waits for the load at hand, which it hurries; those after it see that somebody waits.
  const auto own = component_->component_->LockUrgently();
}

v1::ComponentStatus ManagedOffload::Status() {
  v1::ComponentStatus status;
  status.set_component(name());
  status.set_layers(layer_count());
  const auto own = component_->Lock();
  status.set_held_layers(component_->held_layers());
  const offload::ComponentBytes bytes = component_->bytes();
  status.set_held_bytes(bytes.held);
  status.set_fixed_bytes(bytes.fixed);
  status.set_in_use(component_->in_use());
  const offload::ComponentCounters counters = component_->counters();
  status.set_bytes_to_device(counters.bytes_to_device);
  status.set_bytes_to_host(counters.bytes_to_host);
  status.set_pinned_host_bytes(pinned_host_bytes());
  if (!component_->pin_status().ok()) {
    status.set_pageable_because(
        absl::StrCat("pinning was refused: ", component_->pin_status().ToString()));
  }
  return status;
}

int64_t ManagedPoolAdapter::pinned_host_bytes() const {
  int64_t bytes = 0;
  for (const ManagedOffload* component : components_) bytes += component->pinned_host_bytes();
  return bytes;
}

}  // namespace vrambroker::worker
