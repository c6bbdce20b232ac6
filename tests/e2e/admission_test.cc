// Uses that wait, are given up, do not fit, race for the same bytes, or run while others want
// theirs.
#include <array>
#include <future>
#include <memory>
#include <string>

#include "tests/e2e/harness.h"
#include "tests/e2e/scripted_worker.h"

namespace vrambroker::e2e {
namespace {

class AdmissionTest : public E2eTest {
 protected:
  static WorkerSetup Small(double pass_seconds = 0) {
    return {.layers = 4, .layer_bytes = kMiB / 4, .pass_seconds = pass_seconds};
  }

  // 8 of the card's 20 MiB in use by somebody else, until it is let go.
  void HoldEight() {
    holder_ = std::make_unique<ScriptedWorker>(
        ScriptedWorker::Setup{broker_address(), "holder", card_uuid()});
    ASSERT_TRUE(holder_->Attach().ok());
    held_ = holder_->BeginUse("use", 7 * kMiB).get();
    ASSERT_TRUE(held_.status.ok()) << held_.status.error_message();
  }
  void LetGo() {
    v1::EndUseResponse end;
    EXPECT_TRUE(holder_->EndUse(held_, 0, &end).ok());
  }

  // `give_up` ends a waiting call of the first worker; the second, which could not pass it, goes on
  // at once.
  void GiveUpWhileWaiting(absl::Duration deadline, bool cancel, grpc::StatusCode code) {
    StartBroker();
    StageWorker& first = StartWorker("first", Small());
    StageWorker& second = StartWorker("second", Small());
    ASSERT_NO_FATAL_FAILURE(HoldEight());
    const std::unique_ptr<StageCall> first_call = first.Begin(Stage(14 * kMiB), deadline);
    ASSERT_TRUE(Eventually([&] { return Waits("first/first"); }));
    const std::unique_ptr<StageCall> second_call = second.Begin(Stage(8 * kMiB));
    ASSERT_TRUE(Eventually([&] { return second_call->done() || Waits("second/second"); }));

    if (cancel) first_call->Cancel();
    EXPECT_EQ(first_call->status().error_code(), code) << first_call->status().error_message();
    EXPECT_TRUE(Eventually([&] { return !Waits("first/first"); }, absl::Seconds(3)));
    EXPECT_TRUE(Eventually([&] { return second_call->done(); }, absl::Seconds(3)));
    EXPECT_TRUE(second_call->status().ok()) << second_call->status().error_message();
    EXPECT_EQ(Component("first/first").charge_bytes(), 0);
    EXPECT_EQ(Device().in_use_bytes(), 8 * kMiB);
    EXPECT_EQ(OnCard(first.pid()), 0);

    LetGo();
    EXPECT_EQ(first.Run(Stage(14 * kMiB)).activations().size(), Stage().activations().size());
  }

  std::unique_ptr<ScriptedWorker> holder_;
  ScriptedWorker::Begun held_;
};

TEST_F(AdmissionTest, RequestThatRunsOutOfTimeWhileWaitingLosesItsPlace) {
  GiveUpWhileWaiting(absl::Seconds(1), false, grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(AdmissionTest, RequestThatIsCancelledWhileWaitingLosesItsPlace) {
  GiveUpWhileWaiting(absl::Seconds(60), true, grpc::StatusCode::CANCELLED);
}

TEST_F(AdmissionTest, CancelledCallLosesItsPlaceWithoutAnotherWord) {
  StartBroker();
  StageWorker& second = StartWorker("second", Small());
  ASSERT_NO_FATAL_FAILURE(HoldEight());
  ScriptedWorker first({broker_address(), "first", card_uuid()});
  ASSERT_TRUE(first.Attach().ok());
  const std::shared_future<ScriptedWorker::Begun> begun = first.BeginUse("waits", 14 * kMiB);
  ASSERT_TRUE(Eventually([&] { return Waits("first/c"); }));
  const std::unique_ptr<StageCall> call = second.Begin(Stage(8 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("second/second"); }));

  first.CancelBegins();
  EXPECT_EQ(begun.get().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  EXPECT_FALSE(Waits("first/c"));
  EXPECT_EQ(Component("first/c").use_id(), 0u);
  LetGo();
}

TEST_F(AdmissionTest, RequestThatIsCancelledDuringItsUseEndsIt) {
  StartBroker();
  StageWorker& worker = StartWorker("worker", {.pass_seconds = 0.02});
  const std::unique_ptr<StageCall> call = worker.Begin(Stage(4 * kMiB, 100000));
  ASSERT_TRUE(Eventually([&] { return Device().in_use_bytes() == 12 * kMiB; }));
  call->Cancel();
  EXPECT_EQ(call->status().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return Device().in_use_bytes() == 0; }));
  EXPECT_TRUE(Eventually([&] { return worker.Component().failed_uses() == 1; }));
  // The activations are at most in the pool, and charged as such.
  EXPECT_TRUE(Eventually([&] {
    return Component("worker/worker").charge_bytes() + Session("worker").pool_bytes() ==
           OnCard(worker.pid());
  }));
  EXPECT_EQ(worker.Run(Stage(4 * kMiB)).activations().size(), Stage().activations().size());
}

TEST_F(AdmissionTest, UseThatCannotFitIsRefusedAtOnceAndMovesNothing) {
  StartBroker();
  StageWorker& holder = StartWorker("holder", {.fixed_bytes = 2 * kMiB});
  StageWorker& greedy = StartWorker("greedy", Small());
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);
  const int64_t moved = holder.Component().bytes_to_device();
  const int64_t on_card = UsedOnCard();

  std::string first_message;
  for (int i = 0; i < 2; ++i) {
    const std::unique_ptr<StageCall> call = greedy.Begin(Stage(64 * kMiB), absl::Seconds(30));
    EXPECT_TRUE(Eventually([&] { return call->done(); }, absl::Seconds(2)));
    EXPECT_EQ(call->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    const std::string& message = call->status().error_message();
    EXPECT_NE(message.find("64"), std::string::npos) << message;
    EXPECT_NE(message.find("18"), std::string::npos) << message;
    EXPECT_NE(message.find("20"), std::string::npos) << message;
    EXPECT_NE(message.find("holder/holder"), std::string::npos) << message;
    if (i == 0) first_message = message;
    EXPECT_EQ(message, first_message);
    EXPECT_EQ(Device().retained_bytes(), 8 * kMiB);
    EXPECT_EQ(Component("holder/holder").held_layers(), 8);
  }
  EXPECT_EQ(Decisions(v1::DECISION_KIND_REVOCATION).size(), 0u);
  EXPECT_EQ(Decisions(v1::DECISION_KIND_REFUSAL).size(), 2u);
  EXPECT_EQ(holder.Component().bytes_to_device(), moved);
  EXPECT_EQ(UsedOnCard(), on_card);
  EXPECT_EQ(greedy.Run(Stage()).activations().size(), Stage().activations().size());
}

TEST_F(AdmissionTest, PermanentSetIsNeverAskedForAndNamedWhereItIsInTheWay) {
  StartBroker();
  StageWorker& permanent =
      StartWorker("permanent", {.flags = {"--lifetime=permanent", "--host-copy=false"}});
  StageWorker& other = StartWorker("other", Small());
  EXPECT_EQ(Device().permanent_bytes(), 8 * kMiB);
  EXPECT_EQ(OnCard(permanent.pid()), 8 * kMiB);

  // 11 MiB and all of its own layers are just what is left beside it.
  EXPECT_EQ(other.Run(Stage(11 * kMiB)).resident_layers(), 4);
  const std::unique_ptr<StageCall> call = other.Begin(Stage(13 * kMiB));
  EXPECT_EQ(call->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(call->status().error_message().find("permanent/permanent"), std::string::npos)
      << call->status().error_message();

  const v1::RunStageResponse response = permanent.Run(Stage(2 * kMiB));
  EXPECT_EQ(response.bytes_to_device(), 0);
  EXPECT_EQ(response.kept_layers(), 8);
  v1::ReleaseAllResponse released;
  EXPECT_EQ(permanent.ReleaseAll(&released).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Component("permanent/permanent").held_layers(), 8);
  EXPECT_EQ(Device().permanent_bytes(), 8 * kMiB);
}

TEST_F(AdmissionTest, WorkersThatRaceForTheSameBytesNeverRunOut) {
  StartBroker();
  std::array<StageWorker*, 2> workers = {&StartWorker("left"), &StartWorker("right")};
  // Either fits whole, not both: 8 MiB of layers and 6 of activations each.
  std::array<std::string, 2> results;
  for (int round = 0; round < 25; ++round) {
    std::array<std::unique_ptr<StageCall>, 2> calls;
    for (int i = 0; i < 2; ++i) calls[i] = workers[i]->Begin(Stage(6 * kMiB, 2));
    ASSERT_TRUE(Eventually([&] {
      EXPECT_EQ(Device().overcommitted_bytes(), 0);
      return calls[0]->done() && calls[1]->done();
    }));
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(calls[i]->status().ok()) << calls[i]->status().error_message();
      if (round == 0) results[i] = calls[i]->response().activations();
      EXPECT_EQ(calls[i]->response().activations(), results[i]);
    }
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_EQ(workers[0]->Component().failed_uses(), 0);
  EXPECT_EQ(workers[1]->Component().failed_uses(), 0);
}

TEST_F(AdmissionTest, RetainedBytesGoForActivations) {
  StartBroker();
  StageWorker& holder = StartWorker("holder", {.layers = 16});
  StageWorker& decoder = StartWorker("decoder", Small(0.2));
  const v1::RunStageResponse before = holder.Run(Stage());
  EXPECT_EQ(before.kept_layers(), 16);

  const std::unique_ptr<StageCall> call = decoder.Begin(Stage(17 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Component("decoder/decoder").use_id() != 0; }));
  EXPECT_LE(OnCard(holder.pid()), 3 * kMiB);
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  EXPECT_GE(Decisions(v1::DECISION_KIND_REVOCATION).size(), 1u);
  EXPECT_EQ(holder.Run(Stage()).activations(), before.activations());
}

TEST_F(AdmissionTest, PoolIsTrimmedWhenSomebodyIsShortAndNotOtherwise) {
  StartBroker();
  StageWorker& pooled = StartWorker("pooled", Small());
  StageWorker& other = StartWorker("other", Small());
  EXPECT_EQ(pooled.Run(Stage(12 * kMiB)).kept_layers(), 4);
  ASSERT_TRUE(Eventually([&] { return Device().pooled_bytes() >= 12 * kMiB; }));
  EXPECT_EQ(OnCard(pooled.pid()), Device().pooled_bytes() + kMiB);

  // What fits beside it leaves it alone.
  other.Run(Stage(2 * kMiB));
  EXPECT_GE(Session("pooled").pool_bytes(), 12 * kMiB);
  EXPECT_EQ(pooled.GetStatus().pool_bytes(), Session("pooled").pool_bytes());

  // What does not has it trimmed, before any layer goes.
  const v1::RunStageResponse response = other.Run(Stage(12 * kMiB));
  EXPECT_LT(response.waited_seconds(), 2);
  EXPECT_EQ(Session("pooled").pool_bytes(), 0);
  EXPECT_EQ(pooled.GetStatus().pool_bytes(), 0);
  EXPECT_EQ(Component("pooled/pooled").held_layers(), 4);
  EXPECT_EQ(OnCard(pooled.pid()), kMiB);
}

TEST_F(AdmissionTest, RunningUseKeepsItsLayersWhileOthersWait) {
  StartBroker();
  StageWorker& running = StartWorker("running", {.pass_seconds = 0.02});
  StageWorker& other = StartWorker("other", Small());
  const std::unique_ptr<StageCall> long_call = running.Begin(Stage(2 * kMiB, 50));
  ASSERT_TRUE(Eventually([&] { return Component("running/running").use_id() != 0; }));
  const std::unique_ptr<StageCall> waiting = other.Begin(Stage(15 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("other/other"); }));
  ASSERT_TRUE(Eventually([&] { return OnCard(running.pid()) == 10 * kMiB; }));
  ASSERT_TRUE(Eventually([&] {
    const v1::ComponentPicture c = Component("running/running");
    const bool other_runs = Component("other/other").use_id() != 0;
    const int64_t on_card = OnCard(running.pid());
    // Said of the time in between only where the use went on after it.
    if (Component("running/running").use_id() != 0) {
      EXPECT_EQ(c.granted_layers(), 8);
      EXPECT_EQ(c.charge_bytes(), 10 * kMiB);
      EXPECT_EQ(on_card, 10 * kMiB);
      EXPECT_FALSE(other_runs);
    }
    return waiting->done();
  }));
  const v1::RunStageResponse& response = long_call->response();
  EXPECT_EQ(response.resident_layers(), 8);
  EXPECT_EQ(response.bytes_to_device(), 8 * kMiB);
  EXPECT_TRUE(waiting->status().ok()) << waiting->status().error_message();
  EXPECT_GT(waiting->response().waited_seconds(), 0);
}

}  // namespace
}  // namespace vrambroker::e2e
