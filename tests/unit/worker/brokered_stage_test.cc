// The runner with a broker's client where no broker lives: the device's lock is free.
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "stage_workers/worker/stage.h"
#include "tests/poll.h"
#include "tests/unit/worker/worker_test_util.h"

namespace vrambroker::worker {
namespace {

// A worker whose broker does not live.
WorkerOptions Alone(WorkerRig& rig, int resident) {
  WorkerOptions options = rig.Options("te");
  options.broker = absl::StrCat("unix:", rig.folder(), "/no-broker");
  options.lock_dir = rig.folder() + "/locks";
  std::filesystem::create_directories(options.lock_dir);
  options.resident = {.count = resident};
  return options;
}

std::unique_ptr<Worker> Started(const WorkerOptions& options) {
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create(options);
  EXPECT_TRUE(worker.ok()) << worker.status();
  const absl::Status started = (*worker)->Start(absl::Now() + absl::Seconds(60));
  EXPECT_TRUE(started.ok()) << started;
  return *std::move(worker);
}

StageResult RunWell(Worker& worker) {
  int layers = 0;
  absl::StatusOr<StageResult> result = worker.RunStage("te", Request(), &layers);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(layers, kTestLayers);
  return result.ok() ? *std::move(result) : StageResult();
}

TEST(BrokeredStage, WithoutALivingBrokerTheConfiguredSetAppliesAndGoes) {
  WorkerRig rig;
  const std::unique_ptr<Worker> worker = Started(Alone(rig, 5));
  const StageResult result = RunWell(*worker);
  EXPECT_FALSE(result.brokered);
  EXPECT_EQ(result.resident_layers, 5);
  EXPECT_EQ(result.kept_layers, 0);
  EXPECT_EQ(worker->Status().components(0).held_layers(), 0);
  EXPECT_FALSE(worker->Status().attached());
}

TEST(BrokeredStage, WithoutALivingBrokerTheHostCopyIsPinnedAsConfigured) {
  WorkerRig rig;
  WorkerOptions options = Alone(rig, 5);
  options.tier = offload::HostTier::kPinned;
  const std::unique_ptr<Worker> worker = Started(options);
  EXPECT_TRUE(WaitFor([&] { return worker->Status().pinned_host_bytes() > kWeightBytes; }));
  EXPECT_EQ(worker->Status().components(0).pageable_because(), "");
  EXPECT_FALSE(RunWell(*worker).brokered);
}

TEST(BrokeredStage, WithoutALivingBrokerASetThatDoesNotFitIsCut) {
  WorkerRig roomy;
  const std::vector<uint64_t> expected = RunWell(*Started(Alone(roomy, 12))).activations;
  // Room for six layers beside fixed weights, window and activations.
  WorkerRig rig(kFixedBytes + 8 * kLayerBytes + (128 << 10) + (60 << 10));
  const std::unique_ptr<Worker> worker = Started(Alone(rig, 12));
  const StageResult result = RunWell(*worker);
  EXPECT_EQ(result.resident_layers, 6);
  EXPECT_EQ(result.kept_layers, 0);
  EXPECT_EQ(result.activations, expected);
}

TEST(BrokeredStage, RunningOutOfMemoryIsTriedAgainAfterARelease) {
  WorkerRig rig;
  const std::unique_ptr<ManagedOffload> component = rig.Component({});
  client::ClientOptions options;
  options.address = absl::StrCat("unix:", rig.folder(), "/no-broker");
  options.worker = "te";
  options.components = {component.get()};
  options.configured_resident = {{"te", 5}};
  options.lock_dir = rig.folder() + "/locks";
  options.device_uuid = rig.card()->Uuid();
  std::filesystem::create_directories(options.lock_dir);
  absl::StatusOr<std::unique_ptr<client::BrokerClient>> client =
      client::BrokerClient::Create(options);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->WaitReady(absl::Now() + absl::Seconds(60)).ok());
  const auto runner = MakeBrokeredRunner(client->get(), component.get(), rig.pool());
  const absl::StatusOr<StageResult> well = runner->Run(Request());
  ASSERT_TRUE(well.ok()) << well.status();

  // Somebody else was faster: what is allocated next does not fit any more, and nothing is pooled
  // that could be trimmed.
  rig.pool()->Trim();
  rig.card()->SetFaults({.failing_allocations = 1});
  const absl::StatusOr<StageResult> again = runner->Run(Request());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->resident_layers, 0);
  EXPECT_EQ(again->activations, well->activations);
  EXPECT_EQ(again->passes, 2);
}

TEST(BrokeredStage, AFullResetWithoutALivingBrokerReleasesAPermanentSetToo) {
  WorkerRig rig;
  WorkerOptions options = Alone(rig, 0);
  options.lifetime = offload::Lifetime::kPermanent;
  const std::unique_ptr<Worker> worker = Started(options);
  const StageResult first = RunWell(*worker);
  EXPECT_EQ(first.kept_layers, kTestLayers);
  const absl::StatusOr<int64_t> released = worker->ReleaseAll();
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_GE(*released, kTestLayers * kLayerBytes);
  EXPECT_EQ(worker->Status().components(0).held_layers(), 0);
  EXPECT_EQ(RunWell(*worker).activations, first.activations);
}

}  // namespace
}  // namespace vrambroker::worker
