// Uses of a component: the window, its filling ahead, and the passes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/card/compute.h"
#include "stage_workers/offload/component.h"

namespace vrambroker::offload {
namespace {

// Steps that copies may be queued ahead of the layer that computes. Resident layers need no slot,
// so this alone bounds how much is queued, and how long an abort waits.
constexpr int64_t kMaxStepsAhead = 64;

}  // namespace

absl::Status StreamedComponent::CheckUse(const UseOptions& use) const {
  if (absl::Status status = CheckIdle("BeginUse"); !status.ok()) return status;
  const auto invalid = [&](const char* field, int64_t given, int64_t least, int64_t most) {
    return absl::InvalidArgumentError(absl::StrCat("component ", options_.name, ": ", field, ": ",
                                                   given, " given; ", least, " to ", most,
                                                   " are allowed"));
  };
  if (use.resident_layers < 0 || use.resident_layers > configured_) {
    return invalid("resident_layers", use.resident_layers, 0, configured_);
  }
  if (use.passes < 1) return invalid("passes", use.passes, 1, INT32_MAX);
  if (use.activation_bytes < 0) {
    return invalid("activation_bytes", use.activation_bytes, 0, INT64_MAX);
  }
  if (!fixed_placed_) {
    return absl::FailedPreconditionError(
        absl::StrCat("component ", options_.name, ": BeginUse: its fixed weights are not placed"));
  }
  if (options_.lifetime == Lifetime::kPermanent && !permanent_placed_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "component ", options_.name, ": BeginUse: its permanent layers are not placed"));
  }
  return absl::OkStatus();
}

int StreamedComponent::ResidentLayers() const {
  return options_.lifetime == Lifetime::kPermanent ? layer_count() : use_.resident_layers;
}

absl::Status StreamedComponent::AllocateForUse() {
  const int slots = std::min(options_.window_layers, layer_count() - ResidentLayers());
  for (int i = 0; i < slots; ++i) {
    absl::StatusOr<card::DeviceBuffer> buffer = pool_->Allocate(map_.largest_layer_bytes);
    if (!buffer.ok()) return buffer.status();
    slots_.push_back({.buffer = *buffer});
  }
  if (use_.activation_bytes == 0) return absl::OkStatus();
  absl::StatusOr<card::DeviceBuffer> buffer = pool_->Allocate(use_.activation_bytes);
  if (!buffer.ok()) return buffer.status();
  activation_ = *buffer;
  return absl::OkStatus();
}

void StreamedComponent::FreeUseBuffers() {
  for (Slot& slot : slots_) (void)pool_->Free(slot.buffer);
  slots_.clear();
  if (activation_) (void)pool_->Free(activation_);
  activation_ = card::DeviceBuffer{};
}

absl::Status StreamedComponent::BeginUse(const UseOptions& use) {
  if (absl::Status status = CheckUse(use); !status.ok()) return status;
  use_ = use;
  if (absl::Status status = ReleaseFromRank(ResidentLayers()); !status.ok()) return status;
  if (absl::Status status = AllocateForUse(); !status.ok()) {
    FreeUseBuffers();
    return status;
  }
  in_use_ = true;
  use_failed_ = false;
  passes_begun_ = 0;
  streamed_issued_ = 0;
  streamed_done_ = 0;
  next_issue_ = 0;
  return absl::OkStatus();
}

void StreamedComponent::Drain() {
  for (Place& place : places_) (void)FinishLoad(place);
  for (Slot& slot : slots_) {
    if (slot.loading != nullptr) (void)slot.loading->Wait();
    slot.loading = nullptr;
  }
}

// Queues copies in the order in which their layers compute, until one needs a slot that is not
// free.
absl::Status StreamedComponent::IssueCopies(int64_t step) {
  const int layers = layer_count();
  const int64_t end = std::min(int64_t{use_.passes} * layers, step + kMaxStepsAhead);
  for (; next_issue_ < end; ++next_issue_) {
    const int layer = static_cast<int>(next_issue_ % layers);
    const TensorGroup& tensors = map_.layers[layer].tensors;
    if (rank_[layer] < ResidentLayers()) {
      Place& place = places_[layer];
      if (place.buffer) continue;
      if (absl::Status status = StartLoad(place, tensors, 0); !status.ok()) return status;
      continue;
    }
    const int64_t slots = static_cast<int64_t>(slots_.size());
    if (streamed_issued_ - streamed_done_ >= slots) break;
    Slot& slot = slots_[streamed_issued_ % slots];
    absl::StatusOr<card::Event> event = card_->CopyToDevice(slot.buffer, tensors.pieces, {});
    if (!event.ok()) return event.status();
    slot.loading = *std::move(event);
    ++streamed_issued_;
  }
  return absl::OkStatus();
}

// Waits until the layer of a step is on the device; returns where.
absl::StatusOr<card::DeviceBuffer> StreamedComponent::AwaitLayer(int64_t step, PassStats& stats) {
  const int layer = static_cast<int>(step % layer_count());
  const int64_t bytes = map_.layers[layer].tensors.bytes;
  const bool resident = rank_[layer] < ResidentLayers();
  Place& place = places_[layer];
  Slot* slot = resident ? nullptr : &slots_[streamed_done_ % slots_.size()];
  const card::Event loading = resident ? place.loading : slot->loading;
  if (loading != nullptr) {
    const int64_t begin = card::MonotonicNanos();
    const bool stalled = !loading->Done();
    absl::Status status = resident ? FinishLoad(place) : AwaitCopy(loading);
    if (stalled) stats.stall += absl::Nanoseconds(card::MonotonicNanos() - begin);
    if (!status.ok()) return status;
    stats.copying += loading->Took();
    stats.bytes_to_device += bytes;
    ++(resident ? stats.layers_faulted_in : stats.layers_streamed);
  }
  if (resident) return place.buffer;
  slot->loading = nullptr;
  counters_.bytes_to_device += bytes;
  return card::DeviceBuffer{.id = slot->buffer.id, .bytes = bytes};
}

absl::Status StreamedComponent::RunLayer(int64_t step, card::Activations activations, int64_t due,
                                         PassStats& stats) {
  if (absl::Status status = IssueCopies(step); !status.ok()) return status;
  absl::StatusOr<card::DeviceBuffer> buffer = AwaitLayer(step, stats);
  if (!buffer.ok()) return buffer.status();
  const int64_t left = due + absl::ToInt64Nanoseconds(stats.stall) - card::MonotonicNanos();
  absl::Status status =
      card_->ComputeLayer(*buffer, activations, absl::Nanoseconds(std::max<int64_t>(left, 0)));
  if (rank_[step % layer_count()] >= ResidentLayers()) ++streamed_done_;
  return status;
}

absl::Status StreamedComponent::RunLayers(card::Activations activations, absl::Duration pass_time,
                                          PassStats& stats) {
  const int layers = layer_count();
  const int64_t first_step = int64_t{passes_begun_ - 1} * layers;
  // Copies run while the fixed weights compute.
  if (absl::Status status = IssueCopies(first_step); !status.ok()) return status;
  if (fixed_.buffer) {
    // A component without layers computes on nothing else.
    const absl::Duration time = layers == 0 ? pass_time : absl::ZeroDuration();
    absl::Status status = card_->ComputeLayer(fixed_.buffer, activations, time);
    if (!status.ok()) return status;
  }
  // Layers end by one clock, moved on by every wait for a copy: one that the host was late for does
  // not make the rest late, as on a device that works on its own.
  const int64_t begin = card::MonotonicNanos();
  int64_t bytes_done = 0;
  for (int layer = 0; layer < layers; ++layer) {
    bytes_done += map_.layers[layer].tensors.bytes;
    const double share = static_cast<double>(bytes_done) / map_.layer_bytes_total;
    const int64_t due = begin + absl::ToInt64Nanoseconds(pass_time * share);
    absl::Status status = RunLayer(first_step + layer, activations, due, stats);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StreamedComponent::CheckPass(card::Activations activations) const {
  const auto refused = [&](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("component ", options_.name, ": RunPass: ", why));
  };
  if (!in_use_) return refused("no use has begun");
  if (use_failed_) return refused("the use has failed: end it");
  if (passes_begun_ >= use_.passes) {
    return refused(absl::StrCat("all ", use_.passes, " passes of the use have run"));
  }
  return card::CheckActivations(activations);
}

absl::StatusOr<PassStats> StreamedComponent::RunPass(card::Activations activations,
                                                     absl::Duration pass_time) {
  if (absl::Status status = CheckPass(activations); !status.ok()) return status;
  ++passes_begun_;
  PassStats stats;
  const int64_t begin = card::MonotonicNanos();
  absl::Status status = RunLayers(activations, pass_time, stats);
  stats.elapsed = absl::Nanoseconds(card::MonotonicNanos() - begin);
  if (!status.ok()) {
    Drain();
    use_failed_ = true;
    return status;
  }
  return stats;
}

absl::Status StreamedComponent::ReleaseAfterUse(int keep) {
  if (!in_use_) return absl::OkStatus();
  Drain();
  FreeUseBuffers();
  in_use_ = false;
  if (options_.lifetime == Lifetime::kPermanent) return absl::OkStatus();
  return ReleaseFromRank(std::clamp(keep, 0, std::min(use_.resident_layers, LoadedPrefix())));
}

}  // namespace vrambroker::offload
