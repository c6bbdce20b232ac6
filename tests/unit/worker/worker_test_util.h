// What the worker tests share: a card, weights of twelve layers, components and workers on it.
#ifndef VRAMBROKER_TESTS_UNIT_WORKER_WORKER_TEST_UTIL_H_
#define VRAMBROKER_TESTS_UNIT_WORKER_WORKER_TEST_UTIL_H_

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/offload/component.h"
#include "stage_workers/offload/pool.h"
#include "stage_workers/offload/weights_writer.h"
#include "stage_workers/worker/managed_offload.h"
#include "stage_workers/worker/stage.h"
#include "stage_workers/worker/worker.h"

namespace vrambroker::worker {

inline constexpr int kTestLayers = 12;
inline constexpr int64_t kLayerBytes = 64 << 10;
inline constexpr int64_t kFixedBytes = 32 << 10;
inline constexpr int64_t kWeightBytes = kTestLayers * kLayerBytes + kFixedBytes;

inline std::string UniqueName(const std::string& what) {
  static std::atomic<int> serial{0};
  return absl::StrCat("test-", what, "-", getpid(), "-", ++serial);
}

// A card, and a folder with weights files of block lists of 6, 4 and 2 layers.
class WorkerRig {
 public:
  explicit WorkerRig(int64_t capacity = 16 << 20)
      : card_name_(UniqueName("worker")), folder_(testing::TempDir() + UniqueName("folder")) {
    std::filesystem::create_directories(folder_);
    absl::StatusOr<std::unique_ptr<card::EmulatedCard>> made =
        card::EmulatedCard::Create(card_name_, {.capacity_bytes = capacity});
    EXPECT_TRUE(made.ok()) << made.status();
    card_ = *std::move(made);
    pool_ = std::make_unique<offload::PoolAllocator>(card_.get(), offload::PoolOptions{});
  }
  ~WorkerRig() {
    pool_.reset();
    card_.reset();
    (void)card::EmulatedCard::Remove(card_name_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  WorkerRig(const WorkerRig&) = delete;
  WorkerRig& operator=(const WorkerRig&) = delete;

  std::string Weights(const std::string& component) {
    v1::WorkloadComponent spec;
    spec.set_name(component);
    v1::LayerGroup* group = spec.add_layer_groups();
    group->set_count(kTestLayers);
    group->set_layer_bytes(kLayerBytes);
    spec.set_fixed_bytes(kFixedBytes);
    const absl::StatusOr<offload::WeightsPlan> plan = offload::PlanWeights(spec, {6, 4, 2}, 1);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const std::string path = offload::WeightsPath(folder_, component);
    EXPECT_TRUE(offload::WriteWeights(path, *plan, [](int64_t) {}).ok());
    return path;
  }

  // With `configured` layers at most resident, or all as a permanent set. Its copy on the host is
  // not pinned yet.
  std::unique_ptr<ManagedOffload> Component(
      offload::KeepSpec keep, offload::Lifetime lifetime = offload::Lifetime::kForward,
      offload::HostTier tier = offload::HostTier::kPageable) {
    absl::StatusOr<std::shared_ptr<offload::SafetensorsFile>> file =
        offload::SafetensorsFile::Open(Weights("te"));
    EXPECT_TRUE(file.ok()) << file.status();
    absl::StatusOr<offload::LayerMap> map = offload::GroupLayers(*file, {});
    EXPECT_TRUE(map.ok()) << map.status();
    absl::StatusOr<offload::KeepOrder> order = offload::MakeKeepOrder(map->lists, keep);
    EXPECT_TRUE(order.ok()) << order.status();
    offload::ComponentOptions options;
    options.name = "te";
    options.keep = *std::move(order);
    options.lifetime = lifetime;
    options.tier = tier;
    options.pin_at_once = false;
    absl::StatusOr<std::unique_ptr<offload::StreamedComponent>> component =
        offload::StreamedComponent::Create(pool_.get(), *std::move(map), std::move(options));
    EXPECT_TRUE(component.ok()) << component.status();
    absl::StatusOr<std::unique_ptr<ManagedOffload>> managed =
        ManagedOffload::Create(*std::move(component), {.device_uuid = card_->Uuid()});
    EXPECT_TRUE(managed.ok()) << managed.status();
    return *std::move(managed);
  }

  WorkerOptions Options(const std::string& component) {
    WorkerOptions options;
    options.name = component;
    options.components = {component};
    options.weights = {Weights(component)};
    options.card_uuid = card_->Uuid();
    options.broker = "none";
    return options;
  }

  int64_t Used() const {
    const absl::StatusOr<card::Usage> usage = card_->ReadUsage();
    EXPECT_TRUE(usage.ok()) << usage.status();
    return usage->total_used;
  }

  card::EmulatedCard* card() const { return card_.get(); }
  offload::PoolAllocator* pool() const { return pool_.get(); }
  const std::string& folder() const { return folder_; }

 private:
  const std::string card_name_;
  const std::string folder_;
  std::unique_ptr<card::EmulatedCard> card_;
  std::unique_ptr<offload::PoolAllocator> pool_;
};

inline StageRequest Request(int passes = 2, int64_t activation_bytes = 128 << 10) {
  StageRequest request;
  request.passes = passes;
  request.activation_bytes = activation_bytes;
  request.activations.assign(64, 7);
  return request;
}

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_TESTS_UNIT_WORKER_WORKER_TEST_UTIL_H_
