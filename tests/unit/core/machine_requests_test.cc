// Request ids: repeats, cancels, marks, and calls of sessions that are no more.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Requests : public MachineFixture {
 protected:
  void SetUp() override {
    Build(10 * kGiB);
    a_ = NewWorker("a", {Forward("m", 4, kGiB)});
    Attach(&a_);
  }
  Worker a_;
};

TEST_F(Requests, ARepeatOfAGrantedUseReturnsTheFirstAnswer) {
  const auto first = Granted(Begin(a_, "1", "m"), &a_, "m");
  const auto second = Granted(Begin(a_, "1", "m"), &a_, "m");
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->use, second->use);
  EXPECT_EQ(first->generation, second->generation);
  EXPECT_EQ(Decided(DecisionKind::kGrant), 1);
}

TEST_F(Requests, ARepeatOfAWaitingCallTakesOverItsPlace) {
  Granted(Begin(a_, "1", "m"), &a_, "m");
  const CallId first = Begin(a_, "2", "m");
  const CallId behind = Begin(a_, "3", "m");
  const CallId again = Begin(a_, "2", "m");
  EXPECT_EQ(Refused(first).code(), absl::StatusCode::kCancelled);
  End(&a_, "1", "m");
  EXPECT_TRUE(Granted(again, &a_, "m").has_value());
  EXPECT_FALSE(Answered(behind));
}

TEST_F(Requests, ARepeatOfAnEndedUseIsCancelled) {
  Granted(Begin(a_, "1", "m"), &a_, "m");
  End(&a_, "1", "m");
  EXPECT_EQ(Refused(Begin(a_, "1", "m")).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(Look("a/m").use);
}

TEST_F(Requests, ARepeatOfAnEndReturnsTheFirstTarget) {
  Granted(Begin(a_, "1", "m"), &a_, "m");
  EndUseEvent end;
  end.header = Header(a_, "end");
  end.begin_request_id = "1";
  end.snapshot = SnapshotOf(&a_);
  Step(end);
  const CallId first = end.header.call;
  end.header.call = CallId(++last_call_);
  Step(end);
  const auto target = [&](CallId call) {
    return std::get<EndAnswer>(answers_.at(call).result).target;
  };
  EXPECT_EQ(target(first).generation, target(end.header.call).generation);
  EXPECT_EQ(target(first).layers, target(end.header.call).layers);
}

TEST_F(Requests, AnIdThatComesAgainWithAnotherPayloadIsRefusedInEachState) {
  const auto other = [&](const std::string& request) {
    BeginUseEvent e;
    e.header = Header(a_, request);
    e.header.fingerprint += 1;
    e.use.component = "m";
    const CallId call = e.header.call;
    Step(e);
    return Refused(call);
  };
  Granted(Begin(a_, "1", "m"), &a_, "m");
  const CallId waiting = Begin(a_, "2", "m");
  EXPECT_EQ(other("1").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other("2").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Answered(waiting)) << "it keeps its place";
  End(&a_, "1", "m");
  EXPECT_EQ(other("1").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other("1").message()), testing::HasSubstr("request_id"));
}

TEST_F(Requests, AnEndThatComesBeforeItsBeginLeavesAMark) {
  const CallId end = SendEnd(&a_, "late");
  ASSERT_TRUE(Answered(end));
  EXPECT_TRUE(Refused(end).ok());
  EXPECT_EQ(Refused(Begin(a_, "late", "m")).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(Look("a/m").use);
  EXPECT_EQ(Refused(Begin(a_, "late", "m")).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Granted(Begin(a_, "next", "m"), &a_, "m").has_value());
}

TEST_F(Requests, ACancelWhileWaitingWithdrawsAndOneAfterTheDecisionDoesNot) {
  const CallId granted = Begin(a_, "1", "m");
  Granted(granted, &a_, "m");
  Step(CallCancelledEvent{granted});
  EXPECT_TRUE(Look("a/m").use) << "what is decided stays decided";
  const CallId waiting = Begin(a_, "2", "m");
  Step(CallCancelledEvent{waiting});
  EXPECT_EQ(Refused(waiting).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(machine_->GetPicture(now_).waiting.empty());
  EXPECT_EQ(Refused(Begin(a_, "2", "m")).code(), absl::StatusCode::kCancelled);
}

TEST_F(Requests, AnEndByRequestIdWithdrawsAUseThatWaits) {
  Granted(Begin(a_, "1", "m"), &a_, "m");
  const CallId waiting = Begin(a_, "2", "m");
  SendEnd(&a_, "2");
  EXPECT_EQ(Refused(waiting).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Look("a/m").use) << "the use that runs goes on";
}

TEST_F(Requests, AnEndWithAnOlderSnapshotStillEndsItsUse) {
  Granted(Begin(a_, "1", "m"), &a_, "m");
  EndUseEvent end;
  end.header = Header(a_, "end");
  end.begin_request_id = "1";
  end.snapshot = SnapshotOf(&a_);
  end.snapshot.components[0].held = 1;  // what it was once
  Step(ReportEvent{Header(a_, ""), SnapshotOf(&a_)});
  Step(end);
  EXPECT_FALSE(Look("a/m").use);
  EXPECT_EQ(Look("a/m").held, 4);
}

TEST_F(Requests, CallsOfASessionThatIsNoMoreAreAborted) {
  const Worker old = a_;
  Attach(&a_);
  EXPECT_EQ(Refused(Begin(old, "1", "m")).code(), absl::StatusCode::kAborted);
  const CallHeader header = Header(old, "");
  Snapshot snapshot = SnapshotOf(&a_);
  Step(ReportEvent{header, snapshot});
  EXPECT_EQ(Refused(header.call).code(), absl::StatusCode::kAborted);
}

TEST_F(Requests, WaitingCallsAreAnsweredWhenTheirSessionIsLost) {
  Granted(Begin(a_, "1", "m"), &a_, "m");
  const CallId waiting = Begin(a_, "2", "m");
  Close(&a_);
  EXPECT_EQ(Refused(waiting).code(), absl::StatusCode::kAborted);
}

TEST_F(Requests, TheQueueHasABound) {
  config_.max_waiting = 2;
  SetUp();
  Granted(Begin(a_, "1", "m"), &a_, "m");
  EXPECT_FALSE(Answered(Begin(a_, "2", "m")));
  EXPECT_FALSE(Answered(Begin(a_, "3", "m")));
  const absl::Status refused = Refused(Begin(a_, "4", "m"));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("2"));
}

TEST_F(Requests, ComponentsChangeOnlyWhileNothingOfThemIsHeld) {
  UpdateComponentsEvent e;
  e.upsert = {Forward("m", 6, kGiB)};
  const auto update = [&] {
    e.header = Header(a_, absl::StrCat("update-", ++last_request_));
    Step(e);
    return Refused(e.header.call);
  };
  Granted(Begin(a_, "1", "m"), &a_, "m");
  EXPECT_EQ(update().code(), absl::StatusCode::kFailedPrecondition);
  End(&a_, "1", "m");
  EXPECT_EQ(update().code(), absl::StatusCode::kFailedPrecondition);
  a_.held["m"] = 0;
  a_.placed = false;
  Step(ReportEvent{Header(a_, ""), SnapshotOf(&a_)});
  Report(&a_);  // has heard that it is not asked to hold anything
  EXPECT_TRUE(update().ok()) << update();
  EXPECT_EQ(Look("a/m").layers, 6);
  EXPECT_EQ(ledger().Charged(), Bytes());
}

TEST_F(Requests, ACopyOfARefusedBeginThatComesLaterBeginsNothing) {
  Build(4 * kGiB);
  Worker holder = NewWorker("holder", {Forward("m", 1, kGiB, 3 * kGiB)});
  Worker w = NewWorker("w", {Forward("m", 1, kGiB, 2 * kGiB)});
  w.placed = false;
  AttachAll({&holder, &w});
  EXPECT_TRUE(absl::IsFailedPrecondition(Refused(Begin(w, "1", "m"))));
  Close(&holder);
  Die(holder);
  Pass(config_.settling_time);
  EXPECT_TRUE(absl::IsCancelled(Refused(Begin(w, "1", "m"))));
  EXPECT_TRUE(Granted(Begin(w, "2", "m"), &w, "m").has_value());
}

}  // namespace
}  // namespace vrambroker::core
