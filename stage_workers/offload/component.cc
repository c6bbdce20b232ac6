// Placing, releasing and writing back. Uses and their passes are in component_use.cc.
#include "stage_workers/offload/component.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::offload {
namespace {

constexpr int kMaxWindowLayers = 64;

absl::Status CheckKeepOrder(const KeepOrder& keep, int layers) {
  std::vector<bool> seen(layers, false);
  bool good = static_cast<int>(keep.order.size()) == layers && keep.configured >= 0 &&
              keep.configured <= layers;
  for (int layer : keep.order) {
    good = good && layer >= 0 && layer < layers && !seen[layer];
    if (good) seen[layer] = true;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("keep: ", keep.order.size(), " layers in order, ", keep.configured,
                   " configured; each of the component's ", layers, " layers once is needed"));
}

// Layers in the order in which they are kept; all of them in execution order for permanent ones.
ComponentOptions Normalized(ComponentOptions options, int layers) {
  if (options.lifetime == Lifetime::kForward) return options;
  options.keep.order.resize(layers);
  for (int layer = 0; layer < layers; ++layer) options.keep.order[layer] = layer;
  options.keep.configured = layers;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamedComponent>> StreamedComponent::Create(
    PoolAllocator* pool, LayerMap map, ComponentOptions options) {
  const int layers = static_cast<int>(map.layers.size());
  options = Normalized(std::move(options), layers);
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat("component ", options.name, ": ", status.message()));
  };
  if (absl::Status status = CheckKeepOrder(options.keep, layers); !status.ok()) {
    return named(status);
  }
  if (options.window_layers < 1 || options.window_layers > kMaxWindowLayers) {
    return named(absl::InvalidArgumentError(absl::StrCat("window_layers: ", options.window_layers,
                                                         " given; 1 to ", kMaxWindowLayers,
                                                         " are allowed")));
  }
  std::unique_ptr<StreamedComponent> component(
      new StreamedComponent(pool, std::move(map), std::move(options)));
  if (component->options_.tier == HostTier::kPinned && component->options_.pin_at_once) {
    (void)component->PinHostCopy();  // a refusal is told by pin_status()
  }
  return component;
}

StreamedComponent::StreamedComponent(PoolAllocator* pool, LayerMap map, ComponentOptions options)
    : pool_(pool),
      card_(pool->card()),
      map_(std::move(map)),
      options_(std::move(options)),
      configured_(options_.keep.configured),
      rank_(map_.layers.size()),
      prefix_bytes_(map_.layers.size() + 1),
      places_(map_.layers.size()) {
  for (size_t rank = 0; rank < rank_.size(); ++rank) {
    const int layer = options_.keep.order[rank];
    rank_[layer] = static_cast<int>(rank);
    prefix_bytes_[rank + 1] = prefix_bytes_[rank] + map_.layers[layer].tensors.bytes;
  }
}

StreamedComponent::~StreamedComponent() {
  Drain();
  FreeUseBuffers();
  for (Place& place : places_) FreePlace(place);
  FreePlace(fixed_);
  UnpinHostCopy();
}

std::unique_lock<std::mutex> StreamedComponent::LockUrgently() {
  ++urgent_;
  Hurry();
  std::unique_lock<std::mutex> lock(mutex_);
  --urgent_;
  return lock;
}

void StreamedComponent::Hurry() {
  std::lock_guard<std::mutex> lock(hurry_mutex_);
  if (hurry_event_ != nullptr) hurry_event_->Hurry();
}

absl::Status StreamedComponent::CheckIdle(const char* operation) const {
  if (!in_use_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("component ", options_.name, ": ", operation,
                                                    " during a use: end the use first"));
}

absl::Status StreamedComponent::CheckRevocable(const char* operation) const {
  if (options_.lifetime == Lifetime::kPermanent) {
    return absl::FailedPreconditionError(
        absl::StrCat("component ", options_.name, ": ", operation, ": its layers are permanent"));
  }
  return CheckIdle(operation);
}

absl::Status StreamedComponent::CheckLayer(int layer) const {
  if (layer >= 0 && layer < layer_count()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("component ", options_.name, ": layer: ", layer,
                                                 " given; 0 to ", layer_count() - 1,
                                                 " are allowed"));
}

absl::Status StreamedComponent::StartLoad(Place& place, const TensorGroup& tensors, double pace) {
  absl::StatusOr<card::DeviceBuffer> buffer = pool_->Allocate(tensors.bytes);
  if (!buffer.ok()) return buffer.status();
  place.buffer = *buffer;
  absl::StatusOr<card::Event> event =
      card_->CopyToDevice(place.buffer, tensors.pieces, {.pace_bytes_per_second = pace});
  if (!event.ok()) return event.status();
  place.loading = *std::move(event);
  return absl::OkStatus();
}

absl::Status StreamedComponent::FinishLoad(Place& place) {
  if (place.loading == nullptr) return absl::OkStatus();
  absl::Status status = AwaitCopy(place.loading);
  place.loading = nullptr;
  if (!status.ok()) return status;
  place.loaded = true;
  counters_.bytes_to_device += place.buffer.bytes;
  return absl::OkStatus();
}

absl::Status StreamedComponent::AwaitCopy(const card::Event& copy) const {
  if (absl::Status status = copy->Wait(); !status.ok() || map_.file == nullptr) return status;
  const absl::Status whole = map_.file->CheckWhole();
  if (whole.ok()) return whole;
  return absl::Status(whole.code(),
                      absl::StrCat("component ", options_.name, ": ", whole.message()));
}

void StreamedComponent::FreePlace(Place& place) {
  if (place.loading != nullptr) (void)place.loading->Wait();
  if (place.buffer) (void)pool_->Free(place.buffer);
  place = Place{};
}

absl::Status StreamedComponent::PlaceFixed() {
  if (fixed_placed_) return absl::OkStatus();
  if (map_.fixed.bytes > 0) {
    absl::Status status = StartLoad(fixed_, map_.fixed, 0);
    if (status.ok()) status = FinishLoad(fixed_);
    if (!status.ok()) {
      FreePlace(fixed_);
      return status;
    }
  }
  fixed_placed_ = true;
  return absl::OkStatus();
}

absl::Status StreamedComponent::RemoveFixed() {
  if (absl::Status status = CheckIdle("RemoveFixed"); !status.ok()) return status;
  FreePlace(fixed_);
  fixed_placed_ = false;
  return absl::OkStatus();
}

absl::Status StreamedComponent::LoadAllLayers() {
  for (int layer = 0; layer < layer_count(); ++layer) {
    absl::Status status = StartLoad(places_[layer], map_.layers[layer].tensors, 0);
    if (!status.ok()) return status;
  }
  for (Place& place : places_) {
    if (absl::Status status = FinishLoad(place); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StreamedComponent::PlacePermanent() {
  if (options_.lifetime != Lifetime::kPermanent) {
    return absl::FailedPreconditionError(
        absl::StrCat("component ", options_.name, ": PlacePermanent: its lifetime is FORWARD"));
  }
  if (permanent_placed_) return absl::OkStatus();
  if (absl::Status status = LoadAllLayers(); !status.ok()) {
    for (Place& place : places_) FreePlace(place);
    return status;
  }
  permanent_placed_ = true;
  if (!options_.keep_host_copy) DropHostCopy();
  return absl::OkStatus();
}

absl::Status StreamedComponent::WriteBack(int layer) {
  Place& place = places_[layer];
  if (!place.changed) return absl::OkStatus();
  for (const card::HostPiece& piece : map_.layers[layer].tensors.pieces) {
    if (piece.source == nullptr) continue;
    absl::Status status = card_->CopyToHost(const_cast<void*>(piece.source), place.buffer,
                                            piece.device_offset, piece.bytes);
    if (!status.ok()) return status;
    counters_.bytes_to_host += piece.bytes;
  }
  place.changed = false;
  return absl::OkStatus();
}

absl::Status StreamedComponent::ReleaseFromRank(int rank) {
  for (int at = layer_count() - 1; at >= rank; --at) {
    const int layer = options_.keep.order[at];
    if (absl::Status status = WriteBack(layer); !status.ok()) return status;
    FreePlace(places_[layer]);
  }
  return absl::OkStatus();
}

absl::Status StreamedComponent::ReleaseAll() {
  if (!has_host_copy_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "component ", options_.name, ": ReleaseAll: its layers have no copy on the host"));
  }
  Drain();
  for (int layer = 0; layer < layer_count(); ++layer) {
    if (absl::Status status = WriteBack(layer); !status.ok()) return status;
  }
  FreeUseBuffers();
  in_use_ = false;
  for (Place& place : places_) FreePlace(place);
  permanent_placed_ = false;
  return absl::OkStatus();
}

absl::Status StreamedComponent::ReleaseTo(int layers) {
  if (absl::Status status = CheckRevocable("ReleaseTo"); !status.ok()) return status;
  if (layers < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "component ", options_.name, ": layers: ", layers, " given; 0 or more is allowed"));
  }
  return ReleaseFromRank(layers);
}

absl::StatusOr<int> StreamedComponent::LoadNext(double pace) {
  if (absl::Status status = CheckRevocable("LoadNext"); !status.ok()) return status;
  const int held = held_layers();
  if (held >= configured_) {
    return absl::OutOfRangeError(absl::StrCat("component ", options_.name, ": all ", configured_,
                                              " configured layers are held"));
  }
  const int layer = options_.keep.order[held];
  Place& place = places_[layer];
  absl::Status status = StartLoad(place, map_.layers[layer].tensors, pace);
  if (status.ok()) {
    {
      std::lock_guard<std::mutex> lock(hurry_mutex_);
      hurry_event_ = place.loading;
    }
    // Somebody may have asked for the lock before the event was there to hurry.
    if (urgent_ > 0) Hurry();
    status = FinishLoad(place);
    std::lock_guard<std::mutex> lock(hurry_mutex_);
    hurry_event_ = nullptr;
  }
  if (!status.ok()) {
    FreePlace(place);
    return status;
  }
  return held + 1;
}

absl::Status StreamedComponent::WriteLayer(int layer, absl::Span<const char> bytes) {
  if (absl::Status status = CheckIdle("WriteLayer"); !status.ok()) return status;
  if (absl::Status status = CheckLayer(layer); !status.ok()) return status;
  const TensorGroup& tensors = map_.layers[layer].tensors;
  if (static_cast<int64_t>(bytes.size()) != tensors.bytes) {
    return absl::InvalidArgumentError(absl::StrCat("component ", options_.name, ": layer ", layer,
                                                   ": ", bytes.size(), " bytes given; its ",
                                                   tensors.bytes, " are needed"));
  }
  Place& place = places_[layer];
  if (!place.loaded && !has_host_copy_) {
    return absl::FailedPreconditionError(
        absl::StrCat("component ", options_.name, ": layer ", layer, " is nowhere to be written"));
  }
  std::vector<card::HostPiece> pieces = tensors.pieces;
  for (card::HostPiece& piece : pieces) {
    if (piece.source == nullptr) continue;
    const char* source = bytes.data() + piece.device_offset;
    if (!place.loaded) std::memcpy(const_cast<void*>(piece.source), source, piece.bytes);
    piece.source = source;
  }
  if (!place.loaded) return absl::OkStatus();
  // From the first byte on the device's copy is the one that counts.
  place.changed = true;
  absl::StatusOr<card::Event> event = card_->CopyToDevice(place.buffer, pieces, {});
  if (!event.ok()) return event.status();
  return (*event)->Wait();
}

absl::Status StreamedComponent::MarkChanged(int layer) {
  if (absl::Status status = CheckIdle("MarkChanged"); !status.ok()) return status;
  if (absl::Status status = CheckLayer(layer); !status.ok()) return status;
  if (!places_[layer].loaded) {
    return absl::FailedPreconditionError(
        absl::StrCat("component ", options_.name, ": layer ", layer, " is not held"));
  }
  places_[layer].changed = true;
  return absl::OkStatus();
}

card::DeviceBuffer StreamedComponent::LayerBuffer(int layer) const {
  if (!CheckLayer(layer).ok() || !places_[layer].loaded) return {};
  return places_[layer].buffer;
}

int64_t StreamedComponent::WindowBytes(int resident_layers) const {
  const int slots = std::min(options_.window_layers, layer_count() - resident_layers);
  return slots > 0 ? slots * map_.largest_layer_bytes : 0;
}

int StreamedComponent::held_layers() const {
  int held = layer_count();
  while (held > 0 && !places_[options_.keep.order[held - 1]].buffer) --held;
  return held;
}

int StreamedComponent::LoadedPrefix() const {
  int loaded = 0;
  while (loaded < layer_count() && places_[options_.keep.order[loaded]].loaded) ++loaded;
  return loaded;
}

ComponentBytes StreamedComponent::bytes() const {
  ComponentBytes bytes;
  bytes.fixed = fixed_.buffer.bytes;
  for (const Place& place : places_) bytes.held += place.buffer.bytes;
  for (const Slot& slot : slots_) bytes.window += slot.buffer.bytes;
  bytes.activation = activation_.bytes;
  return bytes;
}

}  // namespace vrambroker::offload
