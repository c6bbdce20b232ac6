// The offload path as the broker's client sees it.
#ifndef VRAMBROKER_STAGE_WORKERS_WORKER_MANAGED_OFFLOAD_H_
#define VRAMBROKER_STAGE_WORKERS_WORKER_MANAGED_OFFLOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/managed_component.h"
#include "stage_workers/offload/component.h"
#include "stage_workers/offload/pool.h"
#include "vrambroker/v1/stage.pb.h"

namespace vrambroker::worker {

// What Describe() adds to what the component knows of itself.
struct DescribeOptions {
  std::string device_uuid;
  // Seconds that one pass computes. 0: not known.
  double pass_seconds = 0;
  // Rate of copies to the device in bytes a second. 0: the device's own.
  double link_bytes_per_second = 0;
};

// One component. lock() is held for a whole use; the component's own lock is taken for each call on
// top of it, so that Status() can look in between two passes.
class ManagedOffload : public client::ManagedComponent {
 public:
  // INVALID_ARGUMENT where the layers do not fit the contract's bounds (256 runs of equal size).
  static absl::StatusOr<std::unique_ptr<ManagedOffload>> Create(
      std::unique_ptr<offload::StreamedComponent> component, const DescribeOptions& options);

  v1::Component Describe() const override { return description_; }
  std::mutex& lock() override { return lock_; }
  // Needs the lock of the class, as all that follow, and reads what the last change left.
  int held_layers() const override { return held_.load(std::memory_order_acquire); }
  bool fixed_placed() const override { return fixed_placed_.load(std::memory_order_acquire); }
  // Places fixed weights, then a permanent component's layers. Again: places what is missing.
  absl::Status PlaceFixed() override;
  // Ends the use of the component, if there is one, and keeps all of its resident set.
  void FreeNeeds() override;
  // FAILED_PRECONDITION where layers of a permanent set would go: only ReleaseAll drops those.
  absl::Status ReleaseTo(int layers) override;
  // Ignores the pace while somebody waits for a use (see HurryGuard).
  absl::Status LoadNext(double pace) override;
  absl::Status PinHostCopy() override;

  // A use, within the broker's: also with the lock held. As StreamedComponent says.
  absl::Status BeginUse(const offload::UseOptions& use);
  absl::StatusOr<offload::PassStats> RunPass(card::Activations activations, absl::Duration time);
  // Ends a use and keeps the first `layers` of its resident set.
  absl::Status ReleaseAfterUse(int layers);
  absl::Status ReleaseAll();

  // While one exists nobody paces loading ahead: a use is waiting for it. Needs no lock.
  class HurryGuard {
   public:
    explicit HurryGuard(ManagedOffload* component);
    ~HurryGuard() { component_->hurrying_.fetch_sub(1); }
    HurryGuard(const HurryGuard&) = delete;
    HurryGuard& operator=(const HurryGuard&) = delete;

   private:
    ManagedOffload* const component_;
  };

  // Needs no lock; waits for the pass or copy at hand. Leaves uses and failed_uses alone.
  v1::ComponentStatus Status();

  const std::string& name() const { return description_.name(); }
  int layer_count() const { return component_->layer_count(); }
  int configured_layers() const { return component_->configured_layers(); }
  bool permanent() const { return component_->options().lifetime == offload::Lifetime::kPermanent; }
  int64_t PrefixBytes(int layers) const { return component_->PrefixBytes(layers); }
  int64_t WindowBytes(int layers) const { return component_->WindowBytes(layers); }
  // Workspace that is allocated now: 0 without a use.
  int64_t activation_bytes() const { return component_->bytes().activation; }
  double pass_seconds() const { return description_.pass_seconds(); }
  // Host bytes that this component has pinned. Needs no lock.
  int64_t pinned_host_bytes() const { return pinned_.load(std::memory_order_acquire); }

 private:
  ManagedOffload(std::unique_ptr<offload::StreamedComponent> component, v1::Component description);
  // After every change, with both locks held.
  void Publish();

  const std::unique_ptr<offload::StreamedComponent> component_;
  const v1::Component description_;
  std::mutex lock_;
  std::atomic<int> hurrying_{0};
  std::atomic<int> held_{0};
  std::atomic<bool> fixed_placed_{false};
  std::atomic<int64_t> pinned_{0};
};

// The allocator that a worker's components share.
class ManagedPoolAdapter : public client::ManagedPool {
 public:
  // All outlive the adapter.
  ManagedPoolAdapter(offload::PoolAllocator* pool, std::vector<const ManagedOffload*> components)
      : pool_(pool), components_(std::move(components)) {}

  int64_t pool_bytes() const override { return pool_->Stats().pooled_bytes; }
  void Trim() override { pool_->Trim(); }
  int64_t pinned_host_bytes() const override;

 private:
  offload::PoolAllocator* const pool_;
  const std::vector<const ManagedOffload*> components_;
};

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_STAGE_WORKERS_WORKER_MANAGED_OFFLOAD_H_
