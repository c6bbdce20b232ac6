// Sessions: attaching, targets, reports, and times without a broker.
#include "tests/unit/client/session_fixture.h"

namespace vrambroker::client {
namespace {

class SessionTest : public SessionFixture {};

TEST_F(SessionTest, NothingCountsBeforeTheWelcomeNorAfterTheStream) {
  Step(Connect{});
  Direct(Target("m", 5, 1));
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
  EXPECT_FALSE(session_->attached());
  Lose();
  DirectiveReceived late;
  late.attach_number = session_->attach_number();
  late.directive.mutable_welcome()->set_session_id(9);
  Step(late);
  EXPECT_FALSE(session_->attached());
}

TEST_F(SessionTest, DirectivesAndAnswersOfAnEarlierSessionAreIgnored) {
  Settle(4, 3);
  const uint64_t old = session_->attach_number();
  Lose();
  Welcome({Target("m", 4, 4)});
  DirectiveReceived late;
  late.attach_number = old;
  *late.directive.add_targets() = Target("m", 0, 99);
  Step(late);
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
  ReportAnswered report;
  report.attach_number = old;
  *report.response.add_targets() = Target("m", 0, 99);
  Step(report);
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
  Direct(Target("m", 1, 5));
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kRelease);
}

TEST_F(SessionTest, TheNewestGenerationWinsInWhateverOrder) {
  Settle(4, 3);
  Direct(Target("m", 1, 7));
  Direct(Target("m", 8, 6));
  const Work work = session_->NextWork("m");
  EXPECT_EQ(work.kind, Work::Kind::kRelease);
  EXPECT_EQ(work.layers, 1);
}

TEST_F(SessionTest, AGenerationIsCompletedOnlyByExactlyItsLayersWithNoCopyInFlight) {
  Settle(0, 1);
  Direct(Target("m", 3, 2));
  const auto completed = [&] {
    return Last<SendReport>().request.snapshot().components(0).completed_generation();
  };
  for (int held = 1; held <= 3; ++held) {
    Step(HeldChanged{"m", held, true, std::nullopt});
    EXPECT_NE(completed(), 2u) << "a copy is in flight";
    Step(HeldChanged{"m", held, false, std::nullopt});
    AnswerReport();
    if (held < 3) {
      EXPECT_EQ(completed(), 1u) << held << " of 3 are held";
    }
  }
  EXPECT_EQ(completed(), 2u);
  Direct(Target("m", 5, 3));
  Direct(Target("m", 4, 4));
  AnswerReport();
  EXPECT_EQ(completed(), 2u) << "3 are held, not 4";
}

TEST_F(SessionTest, EverySnapshotHasAllComponentsUnderARisingNumber) {
  Build({Spec("m", 10), Spec("n", 4)});
  Welcome({Target("m", 2, 1), Target("n", 1, 1)});
  Step(PoolChanged{300, 0});
  Step(HeldChanged{"m", 1, false, std::nullopt});
  AnswerReport();
  Step(HeldChanged{"n", 1, false, 200});
  AnswerReport();
  RunUse(1, 2, 5);
  Over(1, 2);
  std::vector<v1::Snapshot> snapshots;
  for (const Effect& effect : all_) {
    if (const auto* e = std::get_if<OpenStream>(&effect))
      snapshots.push_back(e->request.snapshot());
    if (const auto* e = std::get_if<SendReport>(&effect))
      snapshots.push_back(e->request.snapshot());
    if (const auto* e = std::get_if<SendEnd>(&effect)) snapshots.push_back(e->request.snapshot());
  }
  ASSERT_GE(snapshots.size(), 4u);
  uint64_t last = 0;
  for (const v1::Snapshot& s : snapshots) {
    EXPECT_EQ(s.components_size(), 2);
    EXPECT_GT(s.sequence(), last);
    last = s.sequence();
  }
  EXPECT_EQ(snapshots.back().pool_bytes(), 200);
}

TEST_F(SessionTest, LoadingAheadNeedsASessionAndReleasingToAKnownTargetDoesNotOutliveIt) {
  Settle(2, 1);
  Direct(Target("m", 5, 2));
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kLoad);
  Lose();
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
  Step(Connect{});
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
}

TEST_F(SessionTest, LoadingAheadStartsNoEarlierThanItIsToldAndAtItsPace) {
  Settle(0, 1);
  v1::Target target = Target("m", 2, 2);
  target.set_pace_bytes_per_second(1234);
  target.mutable_start_after()->set_seconds(3);
  const Effects told = Direct(target);
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
  ASSERT_EQ(Of<WakeAt>(told).size(), 1u);
  EXPECT_EQ(Of<WakeAt>(told)[0].time, now_ + absl::Seconds(3));
  EXPECT_TRUE(Of<WorkChanged>(Pass(absl::Seconds(2))).empty());
  const Effects due = Pass(absl::Seconds(1));
  ASSERT_EQ(Of<WorkChanged>(due).size(), 1u);
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kLoad);
  EXPECT_EQ(session_->NextWork("m").pace, 1234);
}

TEST_F(SessionTest, WhatIsDroppedByItselfIsNotLoadedAgainBeforeItsReportIsAnswered) {
  Settle(4, 1);
  const Effects dropped = Step(HeldChanged{"m", 0, false, std::nullopt});
  ASSERT_EQ(Of<SendReport>(dropped).size(), 1u);
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
  AnswerReport({Target("m", 0, 2)});
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone) << "nobody asks for it any more";
  Direct(Target("m", 2, 3));
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kLoad);
}

TEST_F(SessionTest, AFailedReportOfADropIsSentAgainWhateverCarriesItsSnapshotMeanwhile) {
  Settle(4, 1);
  Step(HeldChanged{"m", 0, false, std::nullopt});
  ReportAnswered failed;
  failed.attach_number = session_->attach_number();
  failed.status = absl::UnavailableError("lost");
  Step(failed);
  Step(UseAsked{1, {}});
  Step(UseGivenUp{1});  // its EndUse has a snapshot
  ASSERT_EQ(Of<SendReport>(Pass(absl::Milliseconds(100))).size(), 1u);
  AnswerReport({Target("m", 4, 2)});
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kLoad);
}

TEST_F(SessionTest, AReportThatFailsIsSentAgain) {
  Settle(4, 1);
  Direct(Target("m", 1, 2));
  Step(HeldChanged{"m", 1, false, std::nullopt});
  ReportAnswered failed;
  failed.attach_number = session_->attach_number();
  failed.status = absl::UnavailableError("lost");
  Step(failed);
  const uint64_t before = Last<SendReport>().request.snapshot().sequence();
  const std::vector<SendReport> again = Of<SendReport>(Pass(absl::Milliseconds(100)));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_GT(again[0].request.snapshot().sequence(), before);
  EXPECT_EQ(again[0].request.snapshot().components(0).completed_generation(), 2u);
}

TEST_F(SessionTest, RetainedLayersAreDroppedOnceTheBrokerIsAwayForLong) {
  Settle(4, 1);
  Lose();
  Pass(absl::Seconds(59));
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
  EXPECT_EQ(Last<WakeAt>().time, absl::FromUnixSeconds(1000) + absl::Seconds(60));
  const Effects due = Pass(absl::Seconds(1));
  EXPECT_EQ(Of<WorkChanged>(due).size(), 1u);
  const Work work = session_->NextWork("m");
  EXPECT_EQ(work.kind, Work::Kind::kRelease);
  EXPECT_EQ(work.layers, 0);
  Welcome({Target("m", 4, 2)});
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone) << "a welcome ends it";
}

TEST_F(SessionTest, PermanentLayersStayHoweverLongTheBrokerIsAway) {
  v1::Component spec = Spec("m", 10);
  spec.set_lifetime(v1::LIFETIME_PERMANENT);
  Build({spec});
  Settle(10, 1);
  Lose();
  Pass(absl::Hours(1));
  EXPECT_EQ(session_->NextWork("m").kind, Work::Kind::kNone);
}

TEST_F(SessionTest, FixedBytesArePlacedOnceAndOnlyWhereAdmitted) {
  Step(Connect{});
  DirectiveReceived e;
  e.attach_number = session_->attach_number();
  e.directive.mutable_welcome()->set_session_id(1);
  v1::RefusedComponent* refused = e.directive.mutable_welcome()->add_refused_components();
  refused->set_component("m");
  refused->set_message("no room");
  EXPECT_TRUE(Of<PlaceFixed>(Step(e)).empty());
  EXPECT_EQ(session_->refused().at("m"), "no room");
  EXPECT_EQ(Of<PlaceFixed>(Direct(Target("m", 0, 1))).size(), 1u);
  EXPECT_TRUE(session_->refused().empty());
  EXPECT_TRUE(Of<PlaceFixed>(Direct(Target("m", 2, 2))).empty());
}

TEST_F(SessionTest, AttachNumbersRiseAndTriesBackOff) {
  Step(Connect{});
  EXPECT_EQ(Last<OpenStream>().request.attach_number(), 1u);
  absl::Duration pause = absl::ZeroDuration();
  for (uint64_t number = 2; number < 8; ++number) {
    Lose();
    const absl::Duration next = Last<ConnectAt>().time - now_;
    EXPECT_GE(next, pause);
    EXPECT_LE(next, absl::Seconds(1));
    pause = next;
    now_ += next;
    Step(Connect{});
    EXPECT_EQ(Last<OpenStream>().request.attach_number(), number);
  }
}

TEST_F(SessionTest, ARefusalForGoodIsNotTriedAgain) {
  Step(Connect{});
  Ask(1);
  const Effects ended = Step(
      StreamEnded{session_->attach_number(), absl::InvalidArgumentError("components: too many")});
  EXPECT_TRUE(Of<ConnectAt>(ended).empty());
  ASSERT_EQ(Of<UseRefused>(ended).size(), 1u);
  EXPECT_TRUE(Of<OpenStream>(Step(Connect{})).empty());
}

}  // namespace
}  // namespace vrambroker::client
