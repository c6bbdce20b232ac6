#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/worker/stage.h"
#include "tests/unit/worker/worker_test_util.h"

namespace vrambroker::worker {
namespace {

using ::testing::HasSubstr;

constexpr offload::KeepSpec kEight = {.count = 8};
constexpr int64_t kActivation = 128 << 10;

StageResult RunWell(StageRunner& runner, const StageRequest& request = Request()) {
  absl::StatusOr<StageResult> result = runner.Run(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : StageResult();
}

TEST(LocalStage, ReleasesTheSetAfterEachUse) {
  WorkerRig rig;
  const auto component = rig.Component(kEight);
  const auto runner = MakeLocalRunner(component.get(), rig.pool(), {});
  const StageResult first = RunWell(*runner);
  EXPECT_EQ(first.resident_layers, 8);
  EXPECT_EQ(first.kept_layers, 0);
  EXPECT_EQ(first.passes, 2);
  EXPECT_FALSE(first.brokered);
  // Trimmed: only fixed weights are left on the card.
  EXPECT_EQ(rig.Used(), component->Describe().fixed_bytes());
  // Eight layers once, four streamed in each of two passes.
  EXPECT_EQ(first.bytes_to_device, 16 * component->PrefixBytes(1));
  EXPECT_GT(first.copying, absl::ZeroDuration());
  EXPECT_LE(first.copying, first.seconds);
  EXPECT_GT(first.compute, absl::ZeroDuration());
  EXPECT_LE(first.compute + first.stall, first.seconds);
  EXPECT_EQ(first.peak_activation_bytes, 128 << 10);
  EXPECT_EQ(RunWell(*runner).bytes_to_device, first.bytes_to_device);
}

TEST(LocalStage, KeepsTheSetWhereItIsToldTo) {
  WorkerRig rig;
  const auto component = rig.Component(kEight);
  const auto runner =
      MakeLocalRunner(component.get(), rig.pool(), {.retain = {.mode = RetainMode::kAll}});
  EXPECT_EQ(RunWell(*runner).kept_layers, 8);
  const StageResult second = RunWell(*runner);
  EXPECT_EQ(second.kept_layers, 8);
  EXPECT_EQ(second.bytes_to_device, 8 * component->PrefixBytes(1));
}

TEST(LocalStage, KeepsTheSetOnlyIfEnoughIsFreeBesideIt) {
  WorkerRig rig;
  const auto component = rig.Component(kEight);
  const int64_t beside =
      rig.card()->CapacityBytes() - component->Describe().fixed_bytes() - component->PrefixBytes(8);
  const auto keeps = MakeLocalRunner(
      component.get(), rig.pool(), {.retain = {.mode = RetainMode::kIfFree, .free_bytes = beside}});
  EXPECT_EQ(RunWell(*keeps).kept_layers, 8);
  const auto drops =
      MakeLocalRunner(component.get(), rig.pool(),
                      {.retain = {.mode = RetainMode::kIfFree, .free_bytes = beside + 1}});
  EXPECT_EQ(RunWell(*drops).kept_layers, 0);
}

TEST(LocalStage, LeavesThePoolWhereItIsToldTo) {
  WorkerRig rig;
  const auto component = rig.Component(kEight);
  const auto runner = MakeLocalRunner(component.get(), rig.pool(), {.trim_after_use = false});
  const StageResult result = RunWell(*runner);
  EXPECT_EQ(rig.Used(), result.peak_bytes);
  EXPECT_GT(rig.pool()->Stats().pooled_bytes, kActivation);
}

TEST(LocalStage, OutOfMemoryIsTheCardsErrorAndTheNextUseRuns) {
  // Room for six layers beside fixed weights, window and activations.
  WorkerRig rig(kFixedBytes + 8 * kLayerBytes + kActivation + (60 << 10));
  const auto component = rig.Component(kEight);
  const auto whole =
      MakeLocalRunner(component.get(), rig.pool(), {.retain = {.mode = RetainMode::kAll}});
  const absl::Status status = whole->Run(Request()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("out of memory"));
  EXPECT_EQ(component->held_layers(), 0);
  EXPECT_EQ(rig.Used(), component->Describe().fixed_bytes());

  const auto fit =
      MakeLocalRunner(component.get(), rig.pool(),
                      {.retain = {.mode = RetainMode::kAll}, .allocate = Allocate::kFit});
  const StageResult result = RunWell(*fit);
  EXPECT_EQ(result.resident_layers, 6);
  EXPECT_EQ(result.kept_layers, 6);
  // What it holds itself counts as room.
  EXPECT_EQ(RunWell(*fit).resident_layers, 6);
}

TEST(LocalStage, ResultsAreTheSameUnderEveryRule) {
  WorkerRig rig;
  std::vector<uint64_t> expected;
  for (const offload::KeepSpec& keep :
       {offload::KeepSpec{.count = 0}, kEight, offload::KeepSpec{}}) {
    const auto component = rig.Component(keep);
    for (const RetainMode mode : {RetainMode::kNone, RetainMode::kAll}) {
      const auto runner = MakeLocalRunner(component.get(), rig.pool(), {.retain = {.mode = mode}});
      for (int use = 0; use < 2; ++use) {
        const StageResult result = RunWell(*runner);
        if (expected.empty()) expected = result.activations;
        EXPECT_EQ(result.activations, expected);
      }
    }
  }
}

TEST(LocalStage, ACallerThatGivesUpEndsTheUseBetweenPasses) {
  WorkerRig rig;
  const auto component = rig.Component(kEight);
  const auto runner = MakeLocalRunner(component.get(), rig.pool(), {});
  StageRequest request = Request(/*passes=*/1000);
  int asked = 0;
  request.cancelled = [&asked] { return ++asked > 4; };
  EXPECT_TRUE(absl::IsCancelled(runner->Run(request).status()));
  EXPECT_EQ(asked, 5);
  EXPECT_EQ(rig.Used(), component->Describe().fixed_bytes());
  EXPECT_EQ(RunWell(*runner).passes, 2);
}

TEST(LocalStage, AUseThatFoundTheComponentBusyUntilItsDeadlineDoesNotRun) {
  WorkerRig rig;
  const auto component = rig.Component(kEight);
  const auto runner = MakeLocalRunner(component.get(), rig.pool(), {});
  StageRequest request = Request();
  request.wait_until = absl::Now() - absl::Seconds(1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(runner->Run(request).status()));
}

TEST(LocalStage, APermanentSetStaysAndIsPlacedAgainAfterAFullReset) {
  WorkerRig rig;
  const auto component = rig.Component({}, offload::Lifetime::kPermanent);
  const auto runner = MakeLocalRunner(component.get(), rig.pool(), {});
  const StageResult first = RunWell(*runner);
  EXPECT_EQ(first.kept_layers, kTestLayers);
  EXPECT_EQ(RunWell(*runner).bytes_to_device, 0);
  {
    const std::lock_guard<std::mutex> lock(component->lock());
    ASSERT_TRUE(component->ReleaseAll().ok());
  }
  EXPECT_EQ(component->held_layers(), 0);
  const StageResult again = RunWell(*runner);
  EXPECT_EQ(again.kept_layers, kTestLayers);
  EXPECT_EQ(again.activations, first.activations);
}

TEST(LocalStage, UsesOfManyThreadsTakeTurns) {
  WorkerRig rig;
  const auto component = rig.Component(kEight);
  const auto runner = MakeLocalRunner(component.get(), rig.pool(), {});
  const std::vector<uint64_t> expected = RunWell(*runner).activations;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int use = 0; use < 5; ++use) EXPECT_EQ(RunWell(*runner).activations, expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rig.Used(), component->Describe().fixed_bytes());
}

}  // namespace
}  // namespace vrambroker::worker
