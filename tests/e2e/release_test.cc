// Bytes that are asked back between uses: by when they come, and that nobody is given them before.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "tests/e2e/harness.h"
#include "tests/e2e/scripted_worker.h"

namespace vrambroker::e2e {
namespace {

class ReleaseTest : public E2eTest {
 protected:
  // Small, so that its activations are what counts.
  static WorkerSetup Small(double pass_seconds = 0) {
    return {.layers = 4, .layer_bytes = kMiB / 4, .pass_seconds = pass_seconds};
  }
  void MakeSmallCard() {
    CardSetup card;
    card.capacity = 12 * kMiB;
    MakeCard(card);
  }
};

TEST_F(ReleaseTest, StoppedWorkerIsNamedAndNothingOfItIsGrantedUntilItReleases) {
  MakeSmallCard();
  StartBroker({"--release-deadline=300ms"});
  StageWorker& holder = StartWorker("holder");
  StageWorker& waiter = StartWorker("waiter", Small());
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);

  holder.Freeze();
  const std::unique_ptr<StageCall> call = waiter.Begin(Stage(8 * kMiB));
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(Component("waiter/waiter").use_id(), 0u);
    return Session("holder").overdue_targets() == 1;
  }));
  EXPECT_FALSE(call->done());
  EXPECT_TRUE(Waits("waiter/waiter"));
  EXPECT_EQ(OnCard(holder.pid()), 8 * kMiB);
  EXPECT_EQ(Component("holder/holder").charge_bytes(), 8 * kMiB);
  EXPECT_GT(Device().draining_bytes(), 0);

  holder.Thaw();
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  EXPECT_LE(OnCard(holder.pid()), 4 * kMiB);
  EXPECT_EQ(Session("holder").overdue_targets(), 0);
}

TEST_F(ReleaseTest, IdleWorkerReleasesWithinTheDeadline) {
  MakeSmallCard();
  StartBroker();
  StageWorker& holder = StartWorker("holder");
  StageWorker& waiter = StartWorker("waiter", Small());
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);

  // 8 MiB of activations beside the window: at least 5 of the 8 layers have to go.
  const v1::RunStageResponse response = waiter.Run(Stage(8 * kMiB));
  EXPECT_LT(response.waited_seconds(), 2);
  EXPECT_LE(holder.Component().held_layers(), 3);
  EXPECT_LE(OnCard(holder.pid()), 3 * kMiB);
  EXPECT_EQ(Component("holder/holder").held_layers(), holder.Component().held_layers());
}

TEST_F(ReleaseTest, WorkerThatWaitsForAUseReleasesForAnOlderOne) {
  StartBroker();
  StageWorker& victim = StartWorker("victim");
  StageWorker& older = StartWorker("older", Small(0.2));
  EXPECT_EQ(victim.Run(Stage()).kept_layers(), 8);
  ScriptedWorker runner({broker_address(), "runner", card_uuid()});
  ASSERT_TRUE(runner.Attach().ok());
  const ScriptedWorker::Begun begun = runner.BeginUse("use", 7 * kMiB).get();
  ASSERT_TRUE(begun.status.ok()) << begun.status.error_message();

  // The victim's bytes would not do for the older use: it waits for the one that runs.
  const std::unique_ptr<StageCall> older_call = older.Begin(Stage(14 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("older/older"); }));
  const std::unique_ptr<StageCall> victim_call = victim.Begin(Stage(5 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("victim/victim"); }));
  EXPECT_EQ(victim.Component().held_layers(), 8);

  v1::EndUseResponse end;
  ASSERT_TRUE(runner.EndUse(begun, 0, &end).ok());
  ASSERT_TRUE(Eventually([&] { return Component("older/older").use_id() != 0; }, absl::Seconds(2)));
  EXPECT_LE(OnCard(victim.pid()), 5 * kMiB);
  EXPECT_TRUE(older_call->status().ok()) << older_call->status().error_message();
  EXPECT_TRUE(victim_call->status().ok()) << victim_call->status().error_message();
}

TEST_F(ReleaseTest, BytesThatALiarKeepsAreGrantedToNobody) {
  CardSetup card;
  card.capacity = 192 * kMiB;
  MakeCard(card);
  StartBroker({"--settling-time=400ms"});
  StageWorker& waiter = StartWorker("waiter", Small());
  ScriptedWorker liar({broker_address(), "liar", card_uuid(), 8, 16 * kMiB});
  ASSERT_TRUE(liar.Attach().ok());
  ASSERT_TRUE(liar.Report(0, liar.Target().generation()).ok());
  // A little that belongs to no layer, as a process has: seen at rest it is taken for that.
  ASSERT_TRUE(liar.Allocate(kMiB).ok());
  ASSERT_TRUE(Eventually([&] { return Session("liar").unexplained_bytes() == kMiB; }));
  const ScriptedWorker::Begun begun = liar.BeginUse("use", 0).get();
  ASSERT_TRUE(begun.status.ok()) << begun.status.error_message();
  // A little more than its layers, so that the picture shows when the card has been read.
  ASSERT_TRUE(liar.Allocate(129 * kMiB).ok());
  v1::EndUseResponse end;
  ASSERT_TRUE(liar.EndUse(begun, 8, &end).ok());
  ASSERT_EQ(end.target().layers(), 8);
  ASSERT_TRUE(Eventually([&] { return Session("liar").unexplained_bytes() == 2 * kMiB; }));
  EXPECT_FALSE(Session("liar").under_released());

  const std::unique_ptr<StageCall> call = waiter.Begin(Stage(140 * kMiB));
  ASSERT_TRUE(Eventually([&] { return liar.Target().layers() < 8; }));
  uint64_t said = 0;
  ASSERT_TRUE(Eventually([&] {
    // Whatever it is asked for it says it has done.
    const v1::Target target = liar.Target();
    if (target.generation() > said) {
      EXPECT_TRUE(liar.Report(target.layers(), target.generation()).ok());
      said = target.generation();
    }
    EXPECT_EQ(Component("waiter/waiter").use_id(), 0u);
    EXPECT_LE(Device().free_bytes(), 62 * kMiB);
    return Session("liar").under_released();
  }));
  EXPECT_FALSE(call->done());
  EXPECT_TRUE(Waits("waiter/waiter"));
  EXPECT_GE(Session("liar").unexplained_bytes(), 82 * kMiB);
  EXPECT_TRUE(Eventually([&] {
    const v1::DevicePicture device = Device();
    return device.external_bytes() + device.retained_bytes() + device.draining_bytes() ==
           130 * kMiB;
  }));
  EXPECT_EQ(OnCard(getpid()), 130 * kMiB);

  liar.FreeAll();
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  EXPECT_TRUE(Eventually([&] { return !Session("liar").under_released(); }));
}

TEST_F(ReleaseTest, FullResetDropsRetainedLayersToo) {
  StartBroker();
  StageWorker& worker = StartWorker("worker", {.fixed_bytes = kMiB});
  const v1::RunStageResponse before = worker.Run(Stage(2 * kMiB));
  EXPECT_EQ(before.kept_layers(), 8);
  EXPECT_EQ(Device().retained_bytes(), 8 * kMiB);

  v1::ReleaseAllResponse released;
  const grpc::Status status = worker.ReleaseAll(&released);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(released.released_bytes(), 8 * kMiB);
  EXPECT_EQ(Component("worker/worker").held_layers(), 0);
  EXPECT_EQ(worker.Component().held_layers(), 0);
  // Fixed bytes may stay, layers and pool may not.
  EXPECT_LE(OnCard(worker.pid()), kMiB);
  EXPECT_TRUE(Eventually([&] {
    return Device().pooled_bytes() == 0 && Component("worker/worker").charge_bytes() <= kMiB;
  }));

  const v1::RunStageResponse after = worker.Run(Stage(2 * kMiB));
  EXPECT_EQ(after.activations(), before.activations());
  EXPECT_EQ(after.bytes_to_device(), before.bytes_to_device());
}

}  // namespace
}  // namespace vrambroker::e2e
