// Workers that die: what they held is charged until death and the card agree, then those who wait
// go on.
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/scripted_worker.h"

namespace vrambroker::e2e {
namespace {

class DeathTest : public E2eTest {
 protected:
  // Looks until the waiter is seen in use. Up to then nothing that the card shows for the dead
  // process is free, and what its session is charged is draining from the moment its loss is known.
  void FollowUntilAdmitted(const std::string& dead, pid_t pid, int64_t charge,
                           const std::string& waiter) {
    bool lost = false;
    EXPECT_TRUE(Eventually([&] {
      const v1::Picture picture = Picture();
      const int64_t of_dead = OnCard(pid);
      const v1::DevicePicture& device = picture.devices(0);
      for (const v1::ComponentPicture& c : device.components()) {
        if (c.id() != waiter || c.use_id() == 0) continue;
        EXPECT_EQ(of_dead, 0) << "admitted before the card showed the bytes as free";
        return true;
      }
      EXPECT_LE(device.free_bytes(), device.capacity_bytes() - of_dead) << picture.DebugString();
      bool known = false;
      for (const v1::SessionPicture& s : picture.sessions()) {
        if (s.worker() != dead) continue;
        known = true;
        lost |= s.state() != v1::SESSION_STATE_ATTACHED;
        if (s.state() == v1::SESSION_STATE_ATTACHED) continue;
        EXPECT_EQ(device.retained_bytes(), 0) << picture.DebugString();
        EXPECT_GE(device.draining_bytes(), charge) << picture.DebugString();
      }
      if (!known) {
        EXPECT_GE(device.external_bytes(), of_dead) << picture.DebugString();
      }
      return false;
    }));
  }

  // A worker is killed while it holds a retained set that another's use waits for.
  void KillHolder(absl::Duration lag) {
    CardSetup card;
    card.capacity = 12 * kMiB;
    card.lag = lag;
    MakeCard(card);
    StartBroker();
    StageWorker& holder = StartWorker("holder");
    StageWorker& waiter =
        StartWorker("waiter", {.layers = 4, .layer_bytes = kMiB / 4, .pass_seconds = 0.3});
    EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);
    EXPECT_EQ(OnCard(holder.pid()), 8 * kMiB);

    // Stopped, it cannot release what it is asked for.
    holder.Freeze();
    const std::unique_ptr<StageCall> call = waiter.Begin(Stage(8 * kMiB));
    EXPECT_TRUE(
        Eventually([&] { return Waits("waiter/waiter") && Device().draining_bytes() > 0; }));
    EXPECT_EQ(Component("waiter/waiter").use_id(), 0u);

    const absl::Time killed = absl::Now();
    holder.Kill();
    FollowUntilAdmitted("holder", holder.pid(), 8 * kMiB, "waiter/waiter");
    EXPECT_GE(absl::Now() - killed, lag);
    EXPECT_EQ(call->response().activations().size(), Stage().activations().size());
    EXPECT_EQ(Session("holder").session_id(), 0u);
    EXPECT_EQ(OnCard(holder.pid()), 0);
  }
};

TEST_F(DeathTest, RetainedSetOfAKilledWorkerGoesToWhoWaits) { KillHolder(absl::ZeroDuration()); }

TEST_F(DeathTest, NothingIsGrantedBeforeALaggingCardShowsIt) {
  KillHolder(absl::Milliseconds(400));
}

TEST_F(DeathTest, PlaceOfAKilledWaiterIsGone) {
  StartBroker();
  StageWorker& first = StartWorker("first", {.layers = 4, .layer_bytes = kMiB / 4});
  StageWorker& second = StartWorker("second", {.layers = 4, .layer_bytes = kMiB / 4});
  ScriptedWorker holder({broker_address(), "holder", card_uuid()});
  ASSERT_TRUE(holder.Attach().ok());
  const ScriptedWorker::Begun held = holder.BeginUse("use", 7 * kMiB).get();
  ASSERT_TRUE(held.status.ok()) << held.status.error_message();

  // The first does not fit beside the holder; the second would, but not beside the first.
  const std::unique_ptr<StageCall> first_call = first.Begin(Stage(14 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("first/first"); }));
  const std::unique_ptr<StageCall> second_call = second.Begin(Stage(8 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("second/second"); }));
  EXPECT_FALSE(second_call->done());

  first.Kill();
  EXPECT_TRUE(second_call->status().ok()) << second_call->status().error_message();
  EXPECT_FALSE(Waits("first/first"));
  EXPECT_EQ(Component("holder/c").use_id(), held.response.use_id());
  EXPECT_FALSE(first_call->status().ok());
  v1::EndUseResponse end;
  EXPECT_TRUE(holder.EndUse(held, 0, &end).ok());
}

TEST_F(DeathTest, WorkerKilledBetweenItsGrantAndItsFirstReportIsCovered) {
  CardSetup card;
  card.capacity = 12 * kMiB;
  MakeCard(card);
  StartBroker();
  StageWorker& waiter =
      StartWorker("waiter", {.layers = 4, .layer_bytes = kMiB / 4, .pass_seconds = 0.3});
  const std::string marker = folder() + "/allocated";
  const std::unique_ptr<Process> silent =
      StartProgram("silent", {Program("scripted-worker"), broker_address(), card_uuid(), "silent",
                              absl::StrCat(10 * kMiB), marker});
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(marker); }));
  EXPECT_EQ(OnCard(silent->pid()), 10 * kMiB);
  EXPECT_EQ(Component("silent/c").held_layers(), 0);
  EXPECT_EQ(Component("silent/c").charge_bytes(), 10 * kMiB);

  const std::unique_ptr<StageCall> call = waiter.Begin(Stage(6 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Waits("waiter/waiter"); }));
  silent->Kill();
  FollowUntilAdmitted("silent", silent->pid(), 10 * kMiB, "waiter/waiter");
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();
}

TEST_F(DeathTest, ClosedStreamIsNoProof) {
  CardSetup card;
  card.capacity = 12 * kMiB;
  MakeCard(card);
  StartBroker();
  StageWorker& waiter = StartWorker("waiter", {.layers = 4, .layer_bytes = kMiB / 4});
  ScriptedWorker holder({broker_address(), "holder", card_uuid(), 8});
  ASSERT_TRUE(holder.Attach().ok());
  const ScriptedWorker::Begun begun = holder.BeginUse("use", 0).get();
  ASSERT_TRUE(begun.status.ok()) << begun.status.error_message();
  ASSERT_TRUE(holder.Allocate(8 * kMiB).ok());
  v1::EndUseResponse end;
  ASSERT_TRUE(holder.EndUse(begun, 8, &end).ok());
  EXPECT_EQ(end.target().layers(), 8);
  EXPECT_EQ(Device().retained_bytes(), 8 * kMiB);

  holder.CloseStream();
  ASSERT_TRUE(Eventually([&] { return Session("holder").state() == v1::SESSION_STATE_LOST; }));
  EXPECT_EQ(Device().retained_bytes(), 0);
  EXPECT_EQ(Device().draining_bytes(), 8 * kMiB);
  const std::unique_ptr<StageCall> call = waiter.Begin(Stage(8 * kMiB), absl::Seconds(1));
  EXPECT_EQ(call->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Device().draining_bytes(), 8 * kMiB);

  // It comes back and gives up what it is asked for.
  ASSERT_TRUE(holder.Attach().ok());
  EXPECT_EQ(Component("holder/c").held_layers(), 8);
  const std::unique_ptr<StageCall> again = waiter.Begin(Stage(8 * kMiB));
  ASSERT_TRUE(Eventually([&] { return holder.Target().layers() < 8; }));
  holder.FreeAll();
  EXPECT_TRUE(holder.Report(0, holder.Target().generation()).ok());
  EXPECT_TRUE(again->status().ok()) << again->status().error_message();
}

}  // namespace
}  // namespace vrambroker::e2e
