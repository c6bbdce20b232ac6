#include "stage_workers/worker/managed_offload.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/worker_test_util.h"

namespace vrambroker::worker {
namespace {

constexpr offload::KeepSpec kAll = {};
constexpr offload::KeepSpec kRatio = {.pattern = offload::KeepPattern::kRatioPerList, .ratio = 0.5};

std::vector<uint64_t> Pass(ManagedOffload& component) {
  std::vector<uint64_t> lanes(64, 7);
  const absl::StatusOr<offload::PassStats> stats =
      component.RunPass(absl::MakeSpan(lanes), absl::ZeroDuration());
  EXPECT_TRUE(stats.ok()) << stats.status();
  return lanes;
}

TEST(ManagedOffload, DescribesLayersInKeepOrderAsRuns) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kRatio);
  const v1::Component description = component->Describe();
  EXPECT_EQ(description.name(), "te");
  EXPECT_EQ(description.device_uuid(), rig.card()->Uuid());
  ASSERT_EQ(description.layer_runs_size(), 1);
  EXPECT_EQ(description.layer_runs(0).count(), kTestLayers);
  EXPECT_EQ(description.layer_runs(0).layer_bytes(), component->PrefixBytes(1));
  EXPECT_EQ(description.window_bytes(), 2 * component->PrefixBytes(1));
  EXPECT_EQ(description.lifetime(), v1::LIFETIME_FORWARD);
  EXPECT_FALSE(description.no_host_copy());
}

TEST(ManagedOffload, PlacesFixedWeightsWhenAskedTo) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kAll);
  EXPECT_FALSE(component->fixed_placed());
  EXPECT_EQ(rig.Used(), 0);
  const std::lock_guard<std::mutex> lock(component->lock());
  ASSERT_TRUE(component->PlaceFixed().ok());
  EXPECT_TRUE(component->fixed_placed());
  EXPECT_EQ(component->held_layers(), 0);
  EXPECT_EQ(rig.Used(), component->Describe().fixed_bytes());
}

TEST(ManagedOffload, PlacesAPermanentSetWhole) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component =
      rig.Component(kAll, offload::Lifetime::kPermanent);
  const std::lock_guard<std::mutex> lock(component->lock());
  EXPECT_FALSE(component->fixed_placed());
  ASSERT_TRUE(component->PlaceFixed().ok());
  EXPECT_TRUE(component->fixed_placed());
  EXPECT_EQ(component->held_layers(), kTestLayers);
  EXPECT_TRUE(absl::IsFailedPrecondition(component->ReleaseTo(3)));
  EXPECT_EQ(component->held_layers(), kTestLayers);
  EXPECT_EQ(component->Describe().lifetime(), v1::LIFETIME_PERMANENT);
}

TEST(ManagedOffload, AFailedPlacementLeavesNothingAndIsTold) {
  WorkerRig rig(/*capacity=*/kWeightBytes / 2);
  const std::unique_ptr<ManagedOffload> component =
      rig.Component(kAll, offload::Lifetime::kPermanent);
  const std::lock_guard<std::mutex> lock(component->lock());
  EXPECT_TRUE(absl::IsResourceExhausted(component->PlaceFixed()));
  EXPECT_FALSE(component->fixed_placed());
  EXPECT_EQ(component->held_layers(), 0);
}

TEST(ManagedOffload, LoadsOneLayerAtATimeAndReleasesFromTheEnd) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kAll);
  const std::lock_guard<std::mutex> lock(component->lock());
  ASSERT_TRUE(component->PlaceFixed().ok());
  for (int held = 1; held <= 3; ++held) {
    ASSERT_TRUE(component->LoadNext(0).ok());
    EXPECT_EQ(component->held_layers(), held);
  }
  ASSERT_TRUE(component->ReleaseTo(1).ok());
  EXPECT_EQ(component->held_layers(), 1);
  ASSERT_TRUE(component->ReleaseTo(5).ok());
  EXPECT_EQ(component->held_layers(), 1);
}

TEST(ManagedOffload, AnErrorOfLoadingLeavesHeldTrue) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kAll);
  const std::lock_guard<std::mutex> lock(component->lock());
  ASSERT_TRUE(component->PlaceFixed().ok());
  ASSERT_TRUE(component->LoadNext(0).ok());
  rig.card()->SetFaults({.failing_copies = 1});
  EXPECT_FALSE(component->LoadNext(0).ok());
  EXPECT_EQ(component->held_layers(), 1);
  ASSERT_TRUE(component->LoadNext(0).ok());
  EXPECT_EQ(component->held_layers(), 2);
}

TEST(ManagedOffload, FreeNeedsGivesWindowAndActivationsBackAndKeepsTheSet) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kAll);
  const std::lock_guard<std::mutex> lock(component->lock());
  ASSERT_TRUE(component->PlaceFixed().ok());
  ASSERT_TRUE(component->BeginUse({.resident_layers = 5, .activation_bytes = 1 << 20}).ok());
  (void)Pass(*component);
  EXPECT_EQ(component->held_layers(), 5);
  component->FreeNeeds();
  EXPECT_EQ(component->held_layers(), 5);
  // What was the window and the workspace is pooled, and goes when it is trimmed.
  rig.pool()->Trim();
  EXPECT_EQ(rig.Used(), component->Describe().fixed_bytes() + component->PrefixBytes(5));
  ASSERT_TRUE(component->ReleaseTo(2).ok());
  EXPECT_EQ(component->held_layers(), 2);
  component->FreeNeeds();
  EXPECT_EQ(component->held_layers(), 2);
}

TEST(ManagedOffload, ResultsDoNotDependOnWhatStayed) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kRatio);
  const std::lock_guard<std::mutex> lock(component->lock());
  ASSERT_TRUE(component->PlaceFixed().ok());
  std::vector<uint64_t> first;
  for (const int resident : {0, 3, component->configured_layers(), 1}) {
    ASSERT_TRUE(component->BeginUse({.resident_layers = resident}).ok());
    const std::vector<uint64_t> lanes = Pass(*component);
    if (first.empty()) first = lanes;
    EXPECT_EQ(lanes, first) << resident;
    component->FreeNeeds();
  }
}

TEST(ManagedOffload, AUseThatIsWaitedForHurriesLoadingAhead) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kAll);
  {
    const std::lock_guard<std::mutex> lock(component->lock());
    ASSERT_TRUE(component->PlaceFixed().ok());
  }
  // At this pace one layer takes an hour.
  const double pace = static_cast<double>(kLayerBytes) / 3600;
  std::thread loader([&] {
    const std::lock_guard<std::mutex> lock(component->lock());
    EXPECT_TRUE(component->LoadNext(pace).ok());
    EXPECT_TRUE(component->LoadNext(pace).ok());
  });
  const ManagedOffload::HurryGuard hurry(component.get());
  loader.join();
  EXPECT_EQ(component->held_layers(), 2);
}

TEST(ManagedOffload, StatusTellsWhatIsHeldAndCopied) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kAll);
  const std::lock_guard<std::mutex> lock(component->lock());
  ASSERT_TRUE(component->PlaceFixed().ok());
  ASSERT_TRUE(component->LoadNext(0).ok());
  const v1::ComponentStatus status = component->Status();
  EXPECT_EQ(status.component(), "te");
  EXPECT_EQ(status.layers(), kTestLayers);
  EXPECT_EQ(status.held_layers(), 1);
  EXPECT_EQ(status.held_bytes(), component->PrefixBytes(1));
  EXPECT_EQ(status.bytes_to_device(), rig.Used());
  EXPECT_FALSE(status.in_use());
}

TEST(ManagedOffload, WishesToBePinnedAndTellsOnceItIs) {
  WorkerRig rig;
  EXPECT_EQ(rig.Component(kAll)->Describe().pin_host_bytes(), 0);
  const std::unique_ptr<ManagedOffload> component =
      rig.Component(kAll, offload::Lifetime::kForward, offload::HostTier::kPinned);
  ManagedPoolAdapter pool(rig.pool(), {component.get()});
  const int64_t wish = component->Describe().pin_host_bytes();
  EXPECT_GT(wish, kWeightBytes);
  EXPECT_EQ(wish % sysconf(_SC_PAGESIZE), 0);
  EXPECT_EQ(component->Describe().host_tier(), v1::HOST_TIER_PAGEABLE);
  EXPECT_EQ(pool.pinned_host_bytes(), 0);
  const std::lock_guard<std::mutex> lock(component->lock());
  rig.card()->SetFaults({.refuse_pin = true});
  EXPECT_FALSE(component->PinHostCopy().ok());
  EXPECT_EQ(pool.pinned_host_bytes(), 0);
  EXPECT_THAT(component->Status().pageable_because(), testing::HasSubstr("fault injected"));
  rig.card()->SetFaults({});
  ASSERT_TRUE(component->PinHostCopy().ok());
  EXPECT_EQ(pool.pinned_host_bytes(), wish);
  EXPECT_EQ(component->Status().pinned_host_bytes(), wish);
  EXPECT_EQ(component->Status().pageable_because(), "");
}

TEST(ManagedPool, TellsAndTrimsWhatIsPooled) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component(kAll);
  ManagedPoolAdapter pool(rig.pool(), {component.get()});
  EXPECT_EQ(pool.pool_bytes(), 0);
  EXPECT_EQ(pool.pinned_host_bytes(), 0);
  const std::lock_guard<std::mutex> lock(component->lock());
  ASSERT_TRUE(component->PlaceFixed().ok());
  ASSERT_TRUE(component->LoadNext(0).ok());
  ASSERT_TRUE(component->ReleaseTo(0).ok());
  EXPECT_EQ(pool.pool_bytes(), component->PrefixBytes(1));
  pool.Trim();
  EXPECT_EQ(pool.pool_bytes(), 0);
  EXPECT_EQ(rig.Used(), component->Describe().fixed_bytes());
}

}  // namespace
}  // namespace vrambroker::worker
