// A component whose layers live in host memory and, as far as it is allowed to, on the card.
//
// Between uses a prefix of the keep order is held. A use has a resident set, also a prefix; layers
// of it that are not held yet are loaded during the first pass, straight into their own place. All
// other layers pass through the streamed window: fixed slots that exist from BeginUse to the end of
// the use, filled ahead by the copy stream while the layers before compute.
//
//   component->PlaceFixed();
//   loop:  component->BeginUse({.resident_layers = granted, .passes = n, .activation_bytes = a});
//          n times: component->RunPass(activations, pass_time);
//          component->ReleaseAfterUse(keep);
//   between uses:  component->ReleaseTo(target) or component->LoadNext(pace), as targets say.
//
// Results are bit-identical whatever was resident, streamed, retained or revoked.
//
// Locking: every method except Lock(), LockUrgently() and Hurry() requires that the caller holds
// the component's lock. A use may keep it from BeginUse to ReleaseAfterUse, or take it for each
// call: what targets do (ReleaseTo, LoadNext) is refused with FAILED_PRECONDITION while a use runs.
// A thread that applies targets takes it for one layer at a time, so that a use waits for one layer
// at most.
#ifndef VRAMBROKER_STAGE_WORKERS_OFFLOAD_COMPONENT_H_
#define VRAMBROKER_STAGE_WORKERS_OFFLOAD_COMPONENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "stage_workers/card/card.h"
#include "stage_workers/offload/layers.h"
#include "stage_workers/offload/pool.h"

namespace vrambroker::offload {

enum class Lifetime {
  // A use decides what stays, and targets may take it away.
  kForward,
  // All layers are placed once (PlacePermanent) and no use or target releases them.
  kPermanent,
};

enum class HostTier { kPageable, kPinned };

struct ComponentOptions {
  std::string name = {};
  // The order in which layers are kept, and how many a use may have resident at most: `configured`.
  // With 0 configured nothing is ever retained. Not read for kPermanent: all layers are resident.
  KeepOrder keep = {};
  // Slots of the streamed window, each of the largest layer's size. 1 to 64; 2: one computes while
  // one is filled.
  int window_layers = 2;
  HostTier tier = HostTier::kPageable;
  // For kPinned: whether Create pins the host copy. False: PinHostCopy does, once somebody allows
  // it.
  bool pin_at_once = true;
  Lifetime lifetime = Lifetime::kForward;
  // For kPermanent only: false drops the host's copy of the layers once they are placed. It does
  // nothing for kForward, whose layers are loaded again.
  bool keep_host_copy = true;
};

struct UseOptions {
  // Layers of the keep order that stay on the device during the use: 0 to configured. Layers held
  // beyond them are released first. Of a permanent component all are resident, whatever this says.
  int resident_layers = 0;
  // RunPass calls at most, above 0: the window is filled ahead across passes, not past the last.
  int passes = 1;
  // Workspace during the use. 0: none.
  int64_t activation_bytes = 0;
};

struct PassStats {
  // Time in which the pass could not compute because a copy had not arrived.
  absl::Duration stall;
  // The whole pass.
  absl::Duration elapsed;
  // How long the link was busy with what arrived for layers of this pass. Zero: nothing did, or the
  // card does not tell.
  absl::Duration copying;
  // Bytes that arrived for layers of this pass.
  int64_t bytes_to_device = 0;
  // Layers loaded into their own place, and layers that passed through the window.
  int layers_faulted_in = 0;
  int layers_streamed = 0;
};

// Everything that a component has allocated from the pool now, in bytes.
struct ComponentBytes {
  int64_t fixed = 0;
  // Held layers, copies in flight and partly loaded ones included.
  int64_t held = 0;
  int64_t window = 0;
  int64_t activation = 0;

  int64_t total() const { return fixed + held + window + activation; }
};

struct ComponentCounters {
  // Bytes copied since the component was created.
  int64_t bytes_to_device = 0;
  int64_t bytes_to_host = 0;
};

class StreamedComponent {
 public:
  // `pool` outlives the component. Nothing is placed yet. A refused pin is not an error: see
  // tier(). INVALID_ARGUMENT for options out of range or a keep order that is not one of these
  // layers.
  static absl::StatusOr<std::unique_ptr<StreamedComponent>> Create(PoolAllocator* pool,
                                                                   LayerMap map,
                                                                   ComponentOptions options);
  // Gives everything back, without writing back.
  ~StreamedComponent();

  [[nodiscard]] std::unique_lock<std::mutex> Lock() { return std::unique_lock<std::mutex>(mutex_); }
  // The same for a use: a LoadNext that another thread is in, or begins before the lock is had,
  // runs at the link's rate.
  [[nodiscard]] std::unique_lock<std::mutex> LockUrgently();
  // Lifts the pace of a LoadNext that another thread is in, so that it ends soon.
  void Hurry();

  // Fixed weights on the device. Placing twice, or removing what is not there, changes nothing;
  // after an error nothing of them stays. Removing is FAILED_PRECONDITION during a use.
  absl::Status PlaceFixed();
  absl::Status RemoveFixed();
  // Places all layers of a kPermanent component, then drops the host copy if it is not to be kept.
  // Where it fails, what was placed is released again. FAILED_PRECONDITION for kForward.
  absl::Status PlacePermanent();

  // Pins the host copy as a whole. A refusal leaves it pageable, and is told by pin_status() as
  // well. Pinned already: OK. FAILED_PRECONDITION during a use and without a host copy.
  absl::Status PinHostCopy();
  // Host bytes that this takes: of whole pages.
  int64_t pin_bytes() const;

  // Begins a use: releases layers held beyond its resident set, allocates window (unless all layers
  // are resident) and activations. Where that fails nothing of it stays and no use has begun.
  // FAILED_PRECONDITION during another use, without fixed weights, or with a permanent set that is
  // not placed; INVALID_ARGUMENT for options out of range.
  absl::Status BeginUse(const UseOptions& use);
  // One pass over all layers in execution order, taking `pass_time` if no copy is waited for
  // (spread over layers by their bytes). After an error the use can only be ended; what it had
  // loaded is still counted in bytes(). DATA_LOSS where the weights file was cut short.
  absl::StatusOr<PassStats> RunPass(card::Activations activations, absl::Duration pass_time);
  // Ends the use, after an error too: window and activations go to the pool, and of the use's
  // resident set exactly the first min(keep, resident_layers) layers stay, or fewer where not all
  // of them were loaded. The default is a full release of the layers, and so is any `keep` of a use
  // without a resident set. Layers that changed on the device and do not stay are written back
  // first. A permanent set stays whatever `keep` says. Without a use: OK, changes nothing.
  absl::Status ReleaseAfterUse(int keep = 0);
  // Full reset: ends a use if there is one, writes changed layers back to the host, then releases
  // all layers, retained or permanent. Fixed weights stay. FAILED_PRECONDITION, with nothing
  // changed, for a permanent set that has no host copy.
  absl::Status ReleaseAll();

  // Releases down to the first `layers`, writing changed ones back first. Holding fewer already:
  // OK. FAILED_PRECONDITION during a use and for a permanent set.
  absl::Status ReleaseTo(int layers);
  // Loads the next layer of the keep order and returns when it is on the device, at most at `pace`
  // bytes a second (0: the link's rate). Returns how many are held then. OUT_OF_RANGE when all
  // configured layers are held; otherwise as for ReleaseTo. After an error nothing of it stays.
  absl::StatusOr<int> LoadNext(double pace);

  // Writes a layer's bytes, exactly its size and laid out as on the device (`layer` is an execution
  // index): on the device if it is held, to be written back when it is released; else in the host
  // copy. FAILED_PRECONDITION during a use.
  absl::Status WriteLayer(int layer, absl::Span<const char> bytes);
  // Says that a held layer's bytes were changed on the device by other means. FAILED_PRECONDITION
  // during a use and for a layer that is not held.
  absl::Status MarkChanged(int layer);
  // Where a held layer lies on the device; no buffer for one that is not held. For MarkChanged's
  // callers; it stays the component's.
  card::DeviceBuffer LayerBuffer(int layer) const;

  const ComponentOptions& options() const { return options_; }
  const LayerMap& map() const { return map_; }
  int layer_count() const { return static_cast<int>(map_.layers.size()); }
  // Most layers that a use may have resident.
  int configured_layers() const { return configured_; }
  // Bytes of the first `layers` of the keep order.
  int64_t PrefixBytes(int layers) const { return prefix_bytes_[layers]; }
  // Bytes of the window that a use with so many resident layers allocates. 0: all are resident.
  int64_t WindowBytes(int resident_layers) const;

  // The smallest k such that all layers allocated now, loaded or not, are among the first k of the
  // keep order. Between uses these are exactly the first k, all loaded.
  int held_layers() const;
  bool in_use() const { return in_use_; }
  bool fixed_placed() const { return fixed_placed_; }
  bool has_host_copy() const { return has_host_copy_; }
  ComponentBytes bytes() const;
  ComponentCounters counters() const { return counters_; }
  // What the host copy is; kPageable where pinning was refused, and then why.
  HostTier tier() const { return tier_; }
  const absl::Status& pin_status() const { return pin_status_; }

 private:
  // Weights in a buffer of their own on the device.
  struct Place {
    card::DeviceBuffer buffer;
    // A copy that has not been waited for.
    card::Event loading = nullptr;
    bool loaded = false;
    bool changed = false;
  };
  // A slot of the window.
  struct Slot {
    card::DeviceBuffer buffer;
    card::Event loading = nullptr;
  };

  StreamedComponent(PoolAllocator* pool, LayerMap map, ComponentOptions options);
  void UnpinHostCopy();

  absl::Status CheckIdle(const char* operation) const;
  absl::Status CheckRevocable(const char* operation) const;
  absl::Status CheckLayer(int layer) const;
  absl::Status CheckUse(const UseOptions& use) const;
  absl::Status CheckPass(card::Activations activations) const;
  // How many layers of the keep order are resident during the use at hand.
  int ResidentLayers() const;

  // Loading into places: start, and wait for the end. A place that was started holds its buffer
  // until FreePlace, loaded or not.
  absl::Status StartLoad(Place& place, const TensorGroup& tensors, double pace);
  absl::Status FinishLoad(Place& place);
  // Waits for a copy from the host's, and whether what it copied was the file's.
  absl::Status AwaitCopy(const card::Event& copy) const;
  void FreePlace(Place& place);
  absl::Status LoadAllLayers();

  absl::Status AllocateForUse();
  void FreeUseBuffers();
  // Waits for all copies in flight.
  void Drain();
  absl::Status IssueCopies(int64_t step);
  // `due`: when the layer ends, in nanoseconds of the monotonic clock, if no copy of this pass is
  // waited for.
  absl::Status RunLayer(int64_t step, card::Activations activations, int64_t due, PassStats& stats);
  absl::StatusOr<card::DeviceBuffer> AwaitLayer(int64_t step, PassStats& stats);
  absl::Status RunLayers(card::Activations activations, absl::Duration pass_time, PassStats& stats);

  absl::Status WriteBack(int layer);
  // Writes back and frees all layers from a rank of the keep order on, the last first.
  absl::Status ReleaseFromRank(int rank);
  int LoadedPrefix() const;
  void DropHostCopy();

  std::mutex mutex_;
  PoolAllocator* const pool_;
  card::Card* const card_;
  const LayerMap map_;
  const ComponentOptions options_;
  int configured_ = 0;
  // Rank in the keep order of each execution index.
  std::vector<int> rank_;
  // prefix_bytes_[k]: bytes of the first k of the keep order.
  std::vector<int64_t> prefix_bytes_;

  HostTier tier_ = HostTier::kPageable;
  absl::Status pin_status_;
  bool has_host_copy_ = true;
  bool fixed_placed_ = false;
  bool permanent_placed_ = false;
  Place fixed_;
  // By execution index.
  std::vector<Place> places_;
  ComponentCounters counters_;

  bool in_use_ = false;
  bool use_failed_ = false;
  UseOptions use_;
  int passes_begun_ = 0;
  card::DeviceBuffer activation_;
  std::vector<Slot> slots_;
  // Layers streamed since the use began: whose copy was queued, and that were computed.
  int64_t streamed_issued_ = 0;
  int64_t streamed_done_ = 0;
  // The next step of the use (pass * layers + execution index) whose copy was not queued yet.
  int64_t next_issue_ = 0;

  // Threads in LockUrgently, and the load that they are waiting for.
  std::atomic<int> urgent_{0};
  std::mutex hurry_mutex_;
  card::Event hurry_event_;
};

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_STAGE_WORKERS_OFFLOAD_COMPONENT_H_
