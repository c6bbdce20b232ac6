// The broker's own life: absent, killed, restarted, stopped, started twice.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/harness.h"

namespace vrambroker::e2e {
namespace {

class BrokerTest : public E2eTest {
 protected:
  static WorkerSetup Small() { return {.layers = 4, .layer_bytes = kMiB / 4}; }
  // What the stage gives where nobody interferes.
  std::string Reference(const std::string& name, const WorkerSetup& setup, int passes) {
    WorkerSetup alone = setup;
    alone.broker = "none";
    StageWorker& worker = StartWorker(name, alone);
    std::string result = worker.Run(Stage(0, passes)).activations();
    EXPECT_TRUE(worker.Terminate(absl::Seconds(10)).ok());
    return result;
  }
};

TEST_F(BrokerTest, WorkerWithoutABrokerRunsAsConfiguredAndReleasesAll) {
  MakeCard(CardSetup{});
  StageWorker& worker = StartWorker("worker", {.broker = "none", .flags = {"--resident=5"}});
  for (int i = 0; i < 2; ++i) {
    const v1::RunStageResponse response = worker.Run(Stage(2 * kMiB, 3));
    EXPECT_FALSE(response.brokered());
    EXPECT_EQ(response.resident_layers(), 5);
    EXPECT_EQ(response.kept_layers(), 0);
    // 5 once, 3 in each of 3 passes.
    EXPECT_EQ(response.bytes_to_device(), (5 + 3 * 3) * kMiB);
    EXPECT_EQ(OnCard(worker.pid()), 0);
  }
  EXPECT_FALSE(worker.GetStatus().attached());
}

TEST_F(BrokerTest, WorkerWhoseBrokerComesLaterIsBrokeredFromThenOn) {
  MakeCard(CardSetup{});
  StageWorker& worker = StartWorker("worker", {.flags = {"--resident=5"}});
  const v1::RunStageResponse alone = worker.Run(Stage(2 * kMiB));
  EXPECT_FALSE(alone.brokered());
  EXPECT_EQ(alone.resident_layers(), 5);
  EXPECT_EQ(alone.kept_layers(), 0);
  EXPECT_EQ(worker.Component().held_layers(), 0);

  StartBroker();
  ASSERT_TRUE(Eventually([&] { return worker.GetStatus().attached(); }));
  const v1::RunStageResponse brokered = worker.Run(Stage(2 * kMiB));
  EXPECT_TRUE(brokered.brokered());
  EXPECT_EQ(brokered.resident_layers(), 8);
  EXPECT_EQ(brokered.kept_layers(), 8);
  EXPECT_EQ(brokered.activations(), alone.activations());
  EXPECT_EQ(Device().retained_bytes(), 8 * kMiB);
}

TEST_F(BrokerTest, RestartedBrokerChargesAgainWhatItsWorkersHold) {
  StartBroker();
  StageWorker& holder = StartWorker("holder");
  StageWorker& other = StartWorker("other", Small());
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);
  const uint64_t epoch = Picture().broker_epoch();

  broker().Kill();
  EXPECT_EQ(OnCard(holder.pid()), 8 * kMiB);
  StartBroker();
  EXPECT_NE(Picture().broker_epoch(), epoch);
  ASSERT_TRUE(Eventually([&] {
    return Component("holder/holder").held_layers() == 8 &&
           Session("other").state() == v1::SESSION_STATE_ATTACHED;
  }));
  ASSERT_TRUE(Eventually([&] { return Device().external_known(); }));
  EXPECT_EQ(Device().retained_bytes(), 8 * kMiB);
  EXPECT_EQ(Device().overcommitted_bytes(), 0);

  EXPECT_TRUE(other.Run(Stage(15 * kMiB)).brokered());
  EXPECT_LE(OnCard(holder.pid()), 5 * kMiB);
  EXPECT_TRUE(holder.Run(Stage()).brokered());
}

TEST_F(BrokerTest, RestartedBrokerGrantsNothingOfAWorkerThatIsStopped) {
  StartBroker();
  StageWorker& holder = StartWorker("holder");
  StageWorker& other = StartWorker("other", Small());
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);
  holder.Freeze();
  broker().Kill();
  StartBroker();
  // It cannot attach; it is charged from the record meanwhile, and none of it twice.
  ASSERT_TRUE(Eventually([&] {
    return Session("other").state() == v1::SESSION_STATE_ATTACHED && Device().external_known();
  }));
  EXPECT_EQ(Session("holder").state(), v1::SESSION_STATE_LOST);
  EXPECT_EQ(Session("holder").recorded_bytes(), 8 * kMiB);
  EXPECT_EQ(Device().draining_bytes(), 8 * kMiB);
  EXPECT_EQ(Device().external_bytes(), 0);
  EXPECT_TRUE(Picture().has_recovery_left());
  const std::unique_ptr<StageCall> call = other.Begin(Stage(15 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("other/other"); }));
  EXPECT_EQ(Component("other/other").use_id(), 0u);
  EXPECT_EQ(OnCard(holder.pid()), 8 * kMiB);

  holder.Thaw();
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  EXPECT_LE(OnCard(holder.pid()), 5 * kMiB);
  EXPECT_EQ(Session("holder").state(), v1::SESSION_STATE_ATTACHED);
  EXPECT_EQ(Session("holder").recorded_bytes(), 0);
  EXPECT_FALSE(Picture().has_recovery_left());
}

TEST_F(BrokerTest, AWorkerThatDiedWhileTheBrokerWasAwayIsGoneOnceTheCardShowsIt) {
  StartBroker();
  StageWorker& holder = StartWorker("holder");
  StageWorker& other = StartWorker("other", Small());
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);
  broker().Kill();
  holder.Kill();
  StartBroker();
  // Nobody is missing any more, so that the window is not waited for.
  EXPECT_TRUE(other.Run(Stage(15 * kMiB)).brokered());
  EXPECT_EQ(Device().external_bytes(), 0);
}

TEST_F(BrokerTest, WhoeverNeverAttachesAgainStaysChargedPastTheWindow) {
  StartBroker({"--recovery-window=200ms"});
  StageWorker& holder = StartWorker("holder");
  StageWorker& other = StartWorker("other", Small());
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);
  holder.Freeze();
  broker().Kill();
  StartBroker({"--recovery-window=200ms"});
  ASSERT_TRUE(Eventually([&] { return !Picture().has_recovery_left(); }));
  ASSERT_TRUE(Eventually([&] { return Session("other").state() == v1::SESSION_STATE_ATTACHED; }));
  // What fits beside it begins.
  EXPECT_TRUE(other.Run(Stage()).brokered());
  EXPECT_EQ(Session("holder").recorded_bytes(), 8 * kMiB);
  const std::unique_ptr<StageCall> call = other.Begin(Stage(15 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("other/other"); }));
  holder.Kill();
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
}

TEST_F(BrokerTest, UseGoesOnAcrossARestartOfTheBroker) {
  MakeCard(CardSetup{});
  const WorkerSetup setup = {.pass_seconds = 0.02};
  const std::string reference = Reference("worker", setup, 50);
  StartBroker();
  StageWorker& worker = StartWorker("worker", setup);
  StageWorker& other = StartWorker("other", Small());
  const std::unique_ptr<StageCall> call = worker.Begin(Stage(0, 50));
  ASSERT_TRUE(Eventually([&] {
    return Component("worker/worker").use_id() != 0 && OnCard(worker.pid()) == 8 * kMiB;
  }));
  broker().Kill();
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Component("worker/worker").use_id() != 0; }));
  EXPECT_FALSE(call->done());
  EXPECT_EQ(Component("worker/worker").granted_layers(), 8);
  EXPECT_EQ(Device().in_use_bytes(), 8 * kMiB);

  // It is charged as before: what needs its bytes waits for its end.
  const std::unique_ptr<StageCall> waiting = other.Begin(Stage(15 * kMiB));
  EXPECT_EQ(call->response().activations(), reference);
  EXPECT_TRUE(call->response().brokered());
  EXPECT_EQ(call->response().bytes_to_device(), 8 * kMiB);
  EXPECT_TRUE(waiting->status().ok()) << waiting->status().error_message();
}

TEST_F(BrokerTest, WaitingUseGoesOnAcrossARestartOfTheBroker) {
  StartBroker();
  StageWorker& running = StartWorker("running", {.pass_seconds = 0.02});
  StageWorker& waiter = StartWorker("waiter", Small());
  const std::unique_ptr<StageCall> call = running.Begin(Stage(0, 75));
  ASSERT_TRUE(Eventually([&] { return Component("running/running").use_id() != 0; }));
  const std::unique_ptr<StageCall> waiting = waiter.Begin(Stage(15 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("waiter/waiter"); }));
  broker().Kill();
  StartBroker();
  EXPECT_TRUE(waiting->status().ok()) << waiting->status().error_message();
  EXPECT_TRUE(waiting->response().brokered());
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
}

TEST_F(BrokerTest, WorkerGoesOnWithoutABrokerThatDoesNotComeBack) {
  StartBroker();
  StageWorker& worker = StartWorker("worker", {.flags = {"--resident=5"}});
  const v1::RunStageResponse brokered = worker.Run(Stage());
  EXPECT_EQ(brokered.kept_layers(), 8);
  broker().Kill();
  // Retained bytes stay for a while, uses wait for a restart for a shorter one.
  EXPECT_EQ(worker.Component().held_layers(), 8);
  const v1::RunStageResponse alone = worker.Run(Stage());
  EXPECT_FALSE(alone.brokered());
  EXPECT_GT(alone.waited_seconds(), 1);
  EXPECT_EQ(alone.resident_layers(), 5);
  EXPECT_EQ(alone.kept_layers(), 0);
  EXPECT_EQ(alone.activations(), brokered.activations());
  EXPECT_EQ(OnCard(worker.pid()), 0);  // the pool as well: others have nobody to ask for it
  // The next one has nothing to wait for.
  EXPECT_LT(worker.Run(Stage()).waited_seconds(), 1);
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return worker.GetStatus().attached(); }));
  EXPECT_TRUE(worker.Run(Stage()).brokered());
}

TEST_F(BrokerTest, StopsWithinTwoSecondsWhileAUseWaits) {
  StartBroker();
  StageWorker& running = StartWorker("running", {.pass_seconds = 0.02});
  StageWorker& waiter = StartWorker("waiter", Small());
  const std::unique_ptr<StageCall> call = running.Begin(Stage(0, 100000));
  ASSERT_TRUE(Eventually([&] { return Component("running/running").use_id() != 0; }));
  const std::unique_ptr<StageCall> waiting = waiter.Begin(Stage(15 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("waiter/waiter"); }));

  const absl::Status stopped = broker().Terminate(absl::Seconds(2));
  EXPECT_TRUE(stopped.ok()) << stopped.ToString();
  // The use that runs goes on; it is its caller who ends it.
  EXPECT_EQ(OnCard(running.pid()), 8 * kMiB);
  EXPECT_FALSE(call->done());
}

TEST_F(BrokerTest, WorkerThatIsStoppedGivesAllBackAtOnce) {
  StartBroker();
  StageWorker& worker = StartWorker("worker", {.fixed_bytes = kMiB});
  EXPECT_EQ(worker.Run(Stage(2 * kMiB)).kept_layers(), 8);
  const absl::Time asked = absl::Now();
  const absl::Status stopped = worker.Terminate(absl::Seconds(10));
  EXPECT_TRUE(stopped.ok()) << stopped.ToString();
  EXPECT_LT(absl::Now() - asked, absl::Seconds(2));
  EXPECT_EQ(UsedOnCard(), 0);
  EXPECT_TRUE(Eventually(
      [&] { return Session("worker").session_id() == 0 && Device().free_bytes() == 20 * kMiB; }));
}

TEST_F(BrokerTest, SecondBrokerOnTheSameSocketOrDeviceIsRefusedAndNamesTheFirst) {
  StartBroker();
  const std::string first = absl::StrCat(broker().pid());
  const std::string device =
      absl::StrCat(card_uuid().substr(std::string("emulated:").size()), "=", 20 * kMiB);
  const std::string other_device = absl::StrCat("e2e-other-", broker().pid(), "=", kMiB);
  const std::unique_ptr<Process> same_device =
      StartProgram("same-device", BrokerCommand(folder() + "/other", device, {}));
  const std::unique_ptr<Process> same_socket =
      StartProgram("same-socket", BrokerCommand(folder() + "/broker", other_device, {}));
  for (Process* second : {same_device.get(), same_socket.get()}) {
    const absl::Status ended = second->Join(absl::Seconds(10));
    EXPECT_NE(ended.message().find("status 2"), std::string::npos) << ended.ToString();
    EXPECT_NE(second->Log().find(first), std::string::npos) << second->Log();
  }
  // The first is as it was.
  EXPECT_TRUE(StartWorker("worker", Small()).Run(Stage()).brokered());
}

}  // namespace
}  // namespace vrambroker::e2e
