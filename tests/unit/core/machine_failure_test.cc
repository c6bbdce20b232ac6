// Processes that die, streams that end, drivers that go.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Failure : public MachineFixture {
 protected:
  // A worker of 18 layers of 1 GiB that holds them all, and one that wants as much.
  void HoldAndWait(bool probe) {
    Build(24 * kGiB, probe);
    a_ = NewWorker("a", {Forward("m", 18, kGiB)});
    b_ = NewWorker("b", {Forward("m", 18, kGiB)});
    Attach(&a_);
    Attach(&b_);
    Granted(Begin(a_, "1", "m"), &a_, "m");
    waits_ = Begin(b_, "1", "m", 0, [](UseSpec* u) { u->min_resident = 18; });
    ASSERT_FALSE(Answered(waits_));
  }
  Worker a_, b_;
  CallId waits_;
};

TEST_F(Failure, AKilledHolderDrainsAtOnceAndIsFreeOnlyByAReadingBegunAfterItsDeath) {
  HoldAndWait(true);
  Read({{a_.pid, Bytes(18 * kGiB)}});
  Close(&a_);
  EXPECT_EQ(ledger().draining, Bytes(18 * kGiB));
  EXPECT_EQ(LookAt("a").phase, SessionPhase::kLost);
  BeginReading();
  Die(a_);
  EXPECT_EQ(ledger().draining, Bytes(18 * kGiB));
  EndReading({});
  EXPECT_FALSE(Answered(waits_)) << "that reading had begun before the death was known";
  EXPECT_EQ(ledger().draining, Bytes(18 * kGiB));
  Read({{a_.pid, Bytes(18 * kGiB)}});
  EXPECT_FALSE(Answered(waits_)) << "the driver still shows its bytes, external now";
  EXPECT_EQ(ledger().draining, Bytes());
  EXPECT_EQ(ledger().external, Bytes(18 * kGiB));
  Read({});
  EXPECT_TRUE(Granted(waits_, &b_, "m").has_value());
}

TEST_F(Failure, AClosedStreamIsNoProof) {
  HoldAndWait(true);
  Close(&a_);
  Read({});
  Pass(absl::Hours(1));
  Read({});
  EXPECT_FALSE(Answered(waits_));
  EXPECT_EQ(ledger().draining, Bytes(18 * kGiB));
}

TEST_F(Failure, WithoutReadingsDeathCountsAfterTheSettlingTime) {
  HoldAndWait(false);
  Die(a_);
  EXPECT_FALSE(Answered(waits_));
  Pass(config_.settling_time - absl::Seconds(1));
  EXPECT_FALSE(Answered(waits_));
  Pass(absl::Seconds(1));
  EXPECT_TRUE(Granted(waits_, &b_, "m").has_value());
}

TEST_F(Failure, ReadingsThatFailForTheSettlingTimeCountAsNone) {
  HoldAndWait(true);
  Die(a_);
  const auto fail = [&] {
    BeginReading();
    ReadingEvent e;
    e.device_uuid = "GPU-0";
    e.reading = last_reading_;
    e.status = absl::UnavailableError("no driver");
    Step(e);
  };
  fail();
  Pass(config_.settling_time / 2);
  fail();
  EXPECT_FALSE(Answered(waits_));
  Pass(config_.settling_time / 2);
  EXPECT_TRUE(Granted(waits_, &b_, "m").has_value());
}

TEST_F(Failure, AWorkerKilledBetweenAttachAndItsFirstReportIsCoveredTheSame) {
  Build(10 * kGiB, true);
  Worker a = NewWorker("a", {Forward("m", 4, kGiB, 5 * kGiB)});
  const AttachEvent attach = AttachOf(&a);
  a.connection = attach.connection.value();
  by_connection_[a.connection] = &a;
  Step(attach);
  ASSERT_TRUE(a.welcome.has_value());
  EXPECT_EQ(ledger().permanent, Bytes(5 * kGiB)) << "admitted: it may be placing them";
  Die(a);
  EXPECT_EQ(ledger().Charged(), Bytes(5 * kGiB));
  Read({{a.pid, Bytes(2 * kGiB)}});
  EXPECT_EQ(ledger().Charged(), Bytes());
  EXPECT_EQ(ledger().external, Bytes(2 * kGiB));
}

TEST_F(Failure, ALateAttachOfADeadProcessIsRefused) {
  HoldAndWait(true);
  Die(a_);
  Worker late = a_;
  Attach(&late);
  EXPECT_EQ(late.closed.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ledger().Charged(), Bytes(18 * kGiB));
}

TEST_F(Failure, ARunningUseGoesOnAcrossAReattachUnderANewId) {
  HoldAndWait(true);
  const UseId before = Look("a/m").use;
  Close(&a_);
  a_.running = {{"1", "m", 18, Bytes(), Bytes(), Generation(a_.completed["m"]), {}}};
  Attach(&a_);
  ASSERT_TRUE(a_.welcome.has_value());
  ASSERT_EQ(a_.welcome->resumed_uses.size(), 1u);
  EXPECT_EQ(a_.welcome->resumed_uses[0].first, "1");
  EXPECT_NE(a_.welcome->resumed_uses[0].second, before);
  EXPECT_EQ(Look("a/m").use, a_.welcome->resumed_uses[0].second);
  EXPECT_EQ(ledger().in_use, Bytes(18 * kGiB));
  EXPECT_FALSE(Answered(waits_));
  a_.running.clear();
  End(&a_, "1", "m");
  EXPECT_FALSE(Look("a/m").use);
  Report(&a_);
  Read({});
  EXPECT_TRUE(Granted(waits_, &b_, "m").has_value());
}

TEST_F(Failure, AUseThatAnAttachDoesNotListHasEnded) {
  HoldAndWait(false);
  Close(&a_);
  Attach(&a_);
  EXPECT_FALSE(Look("a/m").use);
  Report(&a_);
  EXPECT_TRUE(Granted(waits_, &b_, "m").has_value());
}

TEST_F(Failure, AnOlderAttachIsAbortedWhole) {
  HoldAndWait(false);
  Worker old = a_;
  old.attach_number -= 1;  // the same number again
  old.held["m"] = 0;
  old.sequence += 10;
  Attach(&old);
  EXPECT_EQ(old.closed.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Look("a/m").held, 0);
  EXPECT_EQ(ledger().in_use, Bytes(18 * kGiB)) << "nothing of it was taken";
}

TEST_F(Failure, ANameInUseByALivingProcessIsRefusedToAnother) {
  Build(10 * kGiB);
  Worker a = NewWorker("same", {Forward("m", 4, kGiB)});
  Worker b = NewWorker("same", {Forward("m", 4, kGiB)});
  Attach(&a);
  Attach(&b);
  EXPECT_EQ(b.closed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(b.closed.message()), testing::HasSubstr(absl::StrCat(a.pid)));
  Close(&a);
  Attach(&b);
  EXPECT_TRUE(b.welcome.has_value());
}

class Drivers : public MachineFixture {
 protected:
  void KeepForTenRuns() {
    Build(10 * kGiB);
    driver_ = NewWorker("driver", {});
    a_ = NewWorker("a", {Forward("m", 4, kGiB)});
    Attach(&driver_);
    Attach(&a_);
    runs_ = Declare(driver_, {Stage("a/m")}, 10);
    Granted(Begin(a_, "1", "m", 0, [&](UseSpec* u) { u->run = runs_[0]; }), &a_, "m");
    End(&a_, "1", "m");
    ASSERT_EQ(Look("a/m").held, 4);
  }
  int Runs() const { return static_cast<int>(machine_->GetPicture(now_).runs.size()); }
  Worker driver_, a_;
  std::vector<RunId> runs_;
};

TEST_F(Drivers, RunsOfAKilledDriverEndAfterTheirGraceAndNothingIsKeptForThem) {
  KeepForTenRuns();
  Die(driver_);
  EXPECT_EQ(Runs(), 10);
  EXPECT_EQ(Look("a/m").target, 4);
  Pass(config_.run_grace);
  EXPECT_EQ(Runs(), 0);
  EXPECT_EQ(Look("a/m").target, 0);
  EXPECT_EQ(Decided(DecisionKind::kRevocation), 1);
}

TEST_F(Drivers, ADriverThatComesBackWithinTheGraceKeepsItsRunsAndPipelines) {
  KeepForTenRuns();
  Close(&driver_);
  Pass(config_.run_grace / 2);
  Attach(&driver_);
  ASSERT_TRUE(driver_.welcome.has_value());
  Pass(config_.run_grace * 2);
  EXPECT_EQ(Runs(), 10);
  const CallHeader header = Header(driver_, "more");
  Step(DeclareRunEvent{header, "p", absl::ZeroDuration()});
  EXPECT_TRUE(Refused(header.call).ok()) << Refused(header.call);
  const CallHeader finish = Header(driver_, "finish");
  Step(FinishRunEvent{finish, runs_[1]});
  EXPECT_TRUE(Refused(finish.call).ok()) << Refused(finish.call);
}

TEST_F(Drivers, ADriverThatAttachesWhileItsStreamLivesGoesOn) {
  KeepForTenRuns();
  Attach(&driver_);
  ASSERT_TRUE(driver_.welcome.has_value());
  EXPECT_EQ(Runs(), 10);
  EXPECT_EQ(machine_->GetPicture(now_).sessions.size(), 2u);
}

TEST_F(Drivers, AnotherDriversRunIsNotOnesOwnToFinish) {
  KeepForTenRuns();
  Worker other = NewWorker("other", {});
  Attach(&other);
  const CallHeader header = Header(other, "finish");
  Step(FinishRunEvent{header, runs_[0]});
  EXPECT_EQ(Refused(header.call).code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace vrambroker::core
