// Uses of a session: asked for, granted, given up, ended, across sessions and without a broker.
#include "tests/unit/client/session_fixture.h"

namespace vrambroker::client {
namespace {

class SessionUses : public SessionFixture {};

TEST_F(SessionUses, AGrantIsATargetAndBindsUntilTheUseIsOver) {
  Settle(2, 1);
  const std::string request = RunUse(1, 6, 2);
  EXPECT_EQ(Last<UseGranted>().resident_layers, 6);
  EXPECT_EQ(Last<UseGranted>().activation_bytes, 300);
  EXPECT_TRUE(Last<UseGranted>().brokered);
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone) << "the use loads, nobody else";
  Direct(Target("m", 0, 3));
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone) << "targets bind between uses";
  Over(1, 6);
  const v1::EndUseRequest end = Last<SendEnd>().request;
  EXPECT_EQ(end.begin_request_id(), request);
  EXPECT_EQ(end.snapshot().components(0).held_layers(), 6);
  Step(Ended(end.request_id(), Target("m", 4, 4)));
  EXPECT_EQ(Last<UseClosed>().keep, 4);
}

TEST_F(SessionUses, ATargetThatIsOlderThanTheGrantIsNotFollowedOnceTheUseIsOver) {
  Settle();
  Ask(1);
  Step(Grant(Last<SendBegin>().request.request_id(), 2, 5));
  Direct(Target("m", 8, 4));  // sent before the grant, and late
  Step(UseOver{1, 2, {}, std::nullopt});
  Step(EndGivenUp{1});
  Step(HeldChanged{"m", 2, false, std::nullopt});
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
}

TEST_F(SessionUses, ARevocationThatOvertakesTheEndsAnswerStands) {
  Settle(0, 1);
  RunUse(1, 6, 2);
  Over(1, 6);
  Direct(Target("m", 1, 9));
  Step(Ended(Last<SendEnd>().request.request_id(), Target("m", 5, 8)));
  EXPECT_EQ(Last<UseClosed>().keep, 1);
}

TEST_F(SessionUses, ARunningUseIsListedAtAReattachAndGoesOnUnderItsNewId) {
  Settle(0, 1);
  const std::string request = RunUse(1, 6, 2);
  Lose();
  Step(Connect{});
  const v1::AttachRequest attach = Last<OpenStream>().request;
  ASSERT_EQ(attach.running_uses_size(), 1);
  EXPECT_EQ(attach.running_uses(0).request_id(), request);
  EXPECT_EQ(attach.running_uses(0).granted_layers(), 6);
  EXPECT_EQ(attach.running_uses(0).window_bytes(), 50);
  EXPECT_EQ(attach.running_uses(0).activation_bytes(), 300) << "as charged, not as asked for";
  EXPECT_EQ(attach.running_uses(0).generation(), 2u);
  EXPECT_TRUE(Of<UseClosed>(all_).empty());
}

TEST_F(SessionUses, TheIdsThatItHadGoWithEachReattach) {
  Settle(0, 1);
  const std::string request = RunUse(1, 6, 2);
  const auto former = [&] {
    Lose();
    Step(Connect{});
    const v1::AttachRequest attach = Last<OpenStream>().request;
    EXPECT_EQ(attach.running_uses_size(), 1);
    const auto& ids = attach.running_uses(0).former_use_ids();
    return std::vector<uint64_t>(ids.begin(), ids.end());
  };
  const std::vector<uint64_t> first = former();
  ASSERT_EQ(first.size(), 1u) << "as it was granted under";
  for (uint64_t i = 0; i < 100; ++i) {
    DirectiveReceived e;
    e.attach_number = session_->attach_number();
    v1::Welcome* welcome = e.directive.mutable_welcome();
    welcome->set_session_id(500 + i);
    v1::ResumedUse* resumed = welcome->add_resumed_uses();
    resumed->set_request_id(request);
    resumed->set_use_id(1000 + i);
    Step(e);
    const std::vector<uint64_t> ids = former();
    ASSERT_EQ(ids.front(), first.front());
    ASSERT_EQ(ids.back(), 1000 + i);
    ASSERT_LE(ids.size(), 64u);
  }
}

TEST_F(SessionUses, AUseThatEndsAfterTheAttachWasComposedIsEndedAfterTheWelcome) {
  Settle(0, 1);
  const std::string request = RunUse(1, 6, 2);
  Lose();
  Step(Connect{});
  ASSERT_EQ(Last<OpenStream>().request.running_uses_size(), 1);
  Over(1, 6);
  EXPECT_TRUE(Of<SendEnd>(all_).empty());
  EXPECT_TRUE(Of<UseClosed>(all_).empty());
  DirectiveReceived e;
  e.attach_number = session_->attach_number();
  e.directive.mutable_welcome()->set_session_id(77);
  *e.directive.add_targets() = Target("m", 6, 3);
  const std::vector<SendEnd> ends = Of<SendEnd>(Step(e));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].request.begin_request_id(), request);
  EXPECT_EQ(ends[0].request.session_id(), 77u);
}

TEST_F(SessionUses, AnEndGivenUpWhileItsAttachIsUnderWayIsToldAfterTheWelcome) {
  Settle(0, 1);
  const std::string request = RunUse(1, 6, 2);
  Lose();
  Step(Connect{});
  Over(1, 6);
  Step(EndGivenUp{1});
  EXPECT_EQ(Last<UseClosed>().keep, 0);
  DirectiveReceived e;
  e.attach_number = session_->attach_number();
  e.directive.mutable_welcome()->set_session_id(77);
  *e.directive.add_targets() = Target("m", 6, 3);
  const std::vector<SendEnd> ends = Of<SendEnd>(Step(e));
  ASSERT_EQ(ends.size(), 1u) << "the broker takes it to run for ever";
  EXPECT_EQ(ends[0].request.begin_request_id(), request);
  EXPECT_EQ(ends[0].request.session_id(), 77u);
}

TEST_F(SessionUses, AnEndWhoseAnswerWasLostIsClosedByTheNextWelcome) {
  Settle(0, 1);
  RunUse(1, 6, 2);
  Over(1, 6);
  Lose();
  Step(Connect{});
  EXPECT_EQ(Last<OpenStream>().request.running_uses_size(), 0);
  Lose();
  Welcome({Target("m", 4, 5)});
  EXPECT_EQ(Last<UseClosed>().ticket, 1u);
  EXPECT_EQ(Last<UseClosed>().keep, 4);
}

TEST_F(SessionUses, AUseThatWaitsIsAskedForAgainInTheNextSessionUnderANewId) {
  Settle(0, 1);
  Ask(1);
  const std::string first = Last<SendBegin>().request.request_id();
  const uint64_t old = session_->attach_number();
  Lose();
  Welcome({Target("m", 0, 2)});
  const SendBegin again = Last<SendBegin>();
  EXPECT_NE(again.request.request_id(), first);
  EXPECT_EQ(again.request.session_id(), session_->session_id());
  BeginAnswered late = Grant(first, 6, 9);
  late.attach_number = old;
  Step(late);
  EXPECT_TRUE(Of<UseGranted>(all_).empty()) << "an answer of the session before";
}

TEST_F(SessionUses, ACallThatFailsOnTheWayIsSentAgainUnderTheSameId) {
  Settle(0, 1);
  Ask(1);
  const std::string request = Last<SendBegin>().request.request_id();
  Step(Refusal(request, absl::UnavailableError("reset")));
  const std::vector<SendBegin> again = Of<SendBegin>(Pass(absl::Milliseconds(100)));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].request.request_id(), request);
}

TEST_F(SessionUses, ACancelledCallIsEndedAndAskedForUnderANewId) {
  Settle(0, 1);
  Ask(1);
  const std::string request = Last<SendBegin>().request.request_id();
  const Effects cancelled = Step(Refusal(request, absl::CancelledError("a repeat took its place")));
  ASSERT_EQ(Of<SendEnd>(cancelled).size(), 1u);
  EXPECT_EQ(Of<SendEnd>(cancelled)[0].request.begin_request_id(), request);
  EXPECT_TRUE(Of<UseRefused>(cancelled).empty());
  const std::vector<SendBegin> again = Of<SendBegin>(Pass(absl::Milliseconds(100)));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].request.request_id(), request);
}

TEST_F(SessionUses, AUseGivenUpIsEndedUntilThatIsAnsweredAndItsGrantIsNobodys) {
  Settle(0, 1);
  Ask(1);
  const std::string request = Last<SendBegin>().request.request_id();
  const Effects given_up = Step(UseGivenUp{1});
  ASSERT_EQ(Of<CancelBegin>(given_up).size(), 1u);
  ASSERT_EQ(Of<SendEnd>(given_up).size(), 1u);
  const v1::EndUseRequest end = Of<SendEnd>(given_up)[0].request;
  EXPECT_EQ(end.begin_request_id(), request);
  Step(Grant(request, 6, 9));
  EXPECT_TRUE(Of<UseGranted>(all_).empty());
  for (int i = 0; i < 3; ++i) {
    EndAnswered failed;
    failed.attach_number = session_->attach_number();
    failed.request_id = end.request_id();
    failed.status = absl::UnavailableError("reset");
    Step(failed);
    const std::vector<SendEnd> again = Of<SendEnd>(Pass(absl::Milliseconds(100)));
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].request.request_id(), end.request_id());
  }
  Step(Ended(end.request_id(), Target("m", 0, 10)));
  EXPECT_TRUE(Of<SendEnd>(Pass(absl::Seconds(1))).empty());
  Ask(2);
  EXPECT_NE(Last<SendBegin>().request.request_id(), request);
}

TEST_F(SessionUses, AGrantForLayersThatWereDroppedMeanwhileIsGivenBack) {
  Settle(4, 1);
  Ask(1);
  const std::string request = Last<SendBegin>().request.request_id();
  Step(HeldChanged{"m", 0, false, std::nullopt});
  const Effects granted = Step(Grant(request, 4, 2));
  EXPECT_TRUE(Of<UseGranted>(granted).empty());
  ASSERT_EQ(Of<SendEnd>(granted).size(), 1u);
  AnswerReport({Target("m", 0, 3)});
  const std::vector<SendBegin> again = Of<SendBegin>(Pass(absl::Milliseconds(100)));
  ASSERT_EQ(again.size(), 1u);
  Step(Grant(again[0].request.request_id(), 4, 5));
  EXPECT_EQ(Last<UseGranted>().resident_layers, 4);
}

TEST_F(SessionUses, ARefusalReachesTheCallerAsItIs) {
  Settle(0, 1);
  Ask(1);
  Step(Refusal(Last<SendBegin>().request.request_id(), absl::ResourceExhaustedError("too large")));
  EXPECT_EQ(Last<UseRefused>().status, absl::ResourceExhaustedError("too large"));
}

TEST_F(SessionUses, WhereNoBrokerLivesAUseRunsAsConfiguredAndEndsWithAFullRelease) {
  Ask(1);
  EXPECT_TRUE(Of<UseGranted>(all_).empty());
  Step(NoBrokerLives{});
  EXPECT_EQ(Last<UseGranted>().resident_layers, 3);
  EXPECT_FALSE(Last<UseGranted>().brokered);
  Over(1, 3);
  EXPECT_EQ(Last<UseClosed>().keep, 0);
  EXPECT_TRUE(Of<SendEnd>(all_).empty());
}

TEST_F(SessionUses, ALocalUseIsListedToABrokerThatComes) {
  Ask(1);
  Step(NoBrokerLives{});
  Welcome({Target("m", 3, 1)}, {{"use-7-70-1", 12}});
  const v1::AttachRequest attach = Last<OpenStream>().request;
  ASSERT_EQ(attach.running_uses_size(), 1);
  EXPECT_EQ(attach.running_uses(0).granted_layers(), 3);
  Over(1, 3);
  EXPECT_EQ(Last<SendEnd>().request.begin_request_id(), attach.running_uses(0).request_id());
}

TEST_F(SessionUses, NoLocalUseBeginsWhileAnAttachIsUnderWay) {
  Ask(1);
  Step(Connect{});
  Step(NoBrokerLives{});
  EXPECT_TRUE(Of<UseGranted>(all_).empty());
}

TEST_F(SessionUses, AnEndThatItsCallerNoLongerWaitsForIsStillTold) {
  Settle(0, 1);
  RunUse(1, 6, 2);
  Over(1, 6);
  const std::string end = Last<SendEnd>().request.request_id();
  Step(EndGivenUp{1});
  EXPECT_EQ(Last<UseClosed>().keep, 0);
  EndAnswered failed;
  failed.attach_number = session_->attach_number();
  failed.request_id = end;
  failed.status = absl::DeadlineExceededError("slow");
  Step(failed);
  const std::vector<SendEnd> again = Of<SendEnd>(Pass(absl::Milliseconds(100)));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].request.request_id(), end);
}

TEST_F(SessionUses, ATimeThatPassedWithoutASessionHidesNoLaterOne) {
  Settle(0, 1);
  RunUse(1, 6, 2);
  Over(1, 6);
  EndAnswered failed;
  failed.attach_number = session_->attach_number();
  failed.request_id = Last<SendEnd>().request.request_id();
  failed.status = absl::UnavailableError("reset");
  Step(failed);  // to be sent again at a time that comes without a session
  Lose();
  Pass(absl::Seconds(1));
  Settle(6, 3);
  Step(HeldChanged{"m", 6, false, std::nullopt});
  ReportAnswered report;
  report.attach_number = session_->attach_number();
  report.status = absl::UnavailableError("reset");
  const Effects effects = Step(report);
  ASSERT_EQ(Of<WakeAt>(effects).size(), 1u);
  EXPECT_EQ(Of<WakeAt>(effects)[0].time, now_ + absl::Milliseconds(100));
}

}  // namespace
}  // namespace vrambroker::client
