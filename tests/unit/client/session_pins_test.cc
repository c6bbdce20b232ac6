// What a session pins of its components' copies on the host, and what it tells of that.
#include "tests/unit/client/session_fixture.h"

namespace vrambroker::client {
namespace {

using testing::HasSubstr;

class SessionPins : public SessionFixture {
 protected:
  // Components "a" and "b", which wish to pin 100 and 40 bytes.
  SessionPins() {
    v1::Component a = Spec("a", 2);
    a.set_pin_host_bytes(100);
    v1::Component b = Spec("b", 2);
    b.set_pin_host_bytes(40);
    Build({a, b});
  }
  Effects Open() { return Welcome({Target("a", 0, 1), Target("b", 0, 1)}); }
  Effects Allow(int64_t bytes) {
    DirectiveReceived e;
    e.attach_number = session_->attach_number();
    e.directive.set_pin_allowance_bytes(bytes);
    return Step(e);
  }
  bool MayPin(const std::string& component) {
    return session_->NextWork(component).kind == Work::Kind::kPin;
  }
  Effects Pin(const std::string& component, absl::Status status = absl::OkStatus()) {
    Step(PinBegins{component});
    EXPECT_TRUE(session_->pinning(component));
    return Step(PinEnded{component, std::move(status), std::nullopt});
  }
  Effects AnswerUpdate(absl::Status status = absl::OkStatus()) {
    return Step(UpdateAnswered{
        session_->attach_number(), Last<SendUpdate>().request.request_id(), std::move(status), {}});
  }
  int64_t Reported() const { return Last<SendReport>().request.snapshot().pinned_host_bytes(); }
};

TEST_F(SessionPins, AnAttachSaysWhatItsProcessMayUseAndWhatItWishes) {
  SessionOptions options;
  options.worker = "w";
  options.components = {Spec("m", 1)};
  options.components[0].set_pin_host_bytes(7);
  options.host_memory.set_limit_bytes(9);
  options.host_memory.set_domain("cgroup:1");
  session_.emplace(options);
  Step(Connect{});
  const v1::AttachRequest attach = Last<OpenStream>().request;
  EXPECT_EQ(attach.host_memory().limit_bytes(), 9);
  EXPECT_EQ(attach.host_memory().domain(), "cgroup:1");
  EXPECT_EQ(attach.components(0).pin_host_bytes(), 7);
}

TEST_F(SessionPins, NothingIsPinnedBeforeTheBrokerAllowsIt) {
  EXPECT_FALSE(MayPin("a"));
  Open();
  EXPECT_FALSE(MayPin("a"));
  EXPECT_THAT(session_->WhyPageable("a"), HasSubstr("no broker has allowed it"));
  Step(PinBegins{"a"});
  EXPECT_FALSE(session_->pinning("a"));
  const Effects allowed = Allow(140);
  EXPECT_EQ(Of<WorkChanged>(allowed).size(), 2u);
  EXPECT_TRUE(MayPin("a"));
  EXPECT_TRUE(MayPin("b"));
}

TEST_F(SessionPins, WholeComponentsArePinnedAsFarAsTheAllowanceReaches) {
  Open();
  Allow(99);
  EXPECT_FALSE(MayPin("a"));
  EXPECT_TRUE(MayPin("b"));
  Pin("b");
  EXPECT_FALSE(MayPin("b"));
  EXPECT_EQ(session_->WhyPageable("b"), "");
  EXPECT_THAT(session_->WhyPageable("a"),
              AllOf(HasSubstr("takes 100 bytes"), HasSubstr("of the 99"), HasSubstr("40 are")));
  EXPECT_FALSE(session_->pins_due());
  Allow(140);
  EXPECT_TRUE(MayPin("a"));
}

TEST_F(SessionPins, WhatIsBeingPinnedCountsAsPinned) {
  Open();
  Allow(139);
  Step(PinBegins{"a"});
  EXPECT_FALSE(MayPin("b"));
  // An attach meanwhile tells of it.
  Lose();
  Step(Connect{});
  EXPECT_EQ(Last<OpenStream>().request.snapshot().pinned_host_bytes(), 100);
}

TEST_F(SessionPins, NothingIsPinnedDuringAUse) {
  Open();
  Ask(1, "a");
  Step(Grant(Last<SendBegin>().request.request_id(), 2, 2));
  Allow(100);
  EXPECT_FALSE(MayPin("a"));
  EXPECT_FALSE(MayPin("b")) << "what is allowed is for the first";
  Allow(140);
  EXPECT_FALSE(MayPin("a"));
  EXPECT_TRUE(session_->pins_due());
  EXPECT_TRUE(MayPin("b"));
  Over(1, 0);
  const SendEnd end = Last<SendEnd>();
  EXPECT_FALSE(MayPin("a"));
  Step(Ended(end.request.request_id(), Target("a", 0, 3)));
  EXPECT_TRUE(MayPin("a"));
}

TEST_F(SessionPins, ReleasesGoFirstAndLoadsLast) {
  Open();
  Allow(140);
  Direct(Target("a", 2, 2));
  EXPECT_TRUE(MayPin("a"));
  Step(HeldChanged{"a", 2, false, std::nullopt});
  Direct(Target("a", 1, 3));
  EXPECT_EQ(session_->NextWork("a").kind, Work::Kind::kRelease);
}

TEST_F(SessionPins, WhatIsPinnedIsReportedAndItsTierTold) {
  Open();
  AnswerReport();
  Allow(140);
  Pin("a");
  const v1::UpdateComponentsRequest update = Last<SendUpdate>().request;
  ASSERT_EQ(update.upsert_size(), 1);
  EXPECT_EQ(update.upsert(0).name(), "a");
  EXPECT_EQ(update.upsert(0).host_tier(), v1::HOST_TIER_PINNED);
  EXPECT_EQ(update.upsert(0).pin_host_bytes(), 100);
  EXPECT_EQ(Reported(), 100);
  // One call at a time; the next one has what came meanwhile.
  EXPECT_TRUE(Of<SendUpdate>(Pin("b")).empty());
  const Effects next = AnswerUpdate();
  ASSERT_EQ(Of<SendUpdate>(next).size(), 1u);
  EXPECT_EQ(Of<SendUpdate>(next)[0].request.upsert(0).name(), "b");
  AnswerReport();
  EXPECT_EQ(Reported(), 140);
  EXPECT_TRUE(Of<SendUpdate>(AnswerUpdate()).empty());
}

TEST_F(SessionPins, AnUpdateThatDidNotArriveIsSentAgainUnderItsId) {
  Open();
  Allow(140);
  Pin("a");
  const std::string id = Last<SendUpdate>().request.request_id();
  EXPECT_TRUE(Of<SendUpdate>(AnswerUpdate(absl::UnavailableError("lost"))).empty());
  const Effects again = Pass(absl::Milliseconds(100));
  ASSERT_EQ(Of<SendUpdate>(again).size(), 1u);
  EXPECT_EQ(Of<SendUpdate>(again)[0].request.request_id(), id);
}

TEST_F(SessionPins, ARefusedPinGivesItsWishUp) {
  Open();
  Allow(150);
  Pin("a", absl::ResourceExhaustedError("no more locked memory"));
  const v1::UpdateComponentsRequest update = Last<SendUpdate>().request;
  EXPECT_EQ(update.upsert(0).pin_host_bytes(), 0);
  EXPECT_EQ(update.upsert(0).host_tier(), v1::HOST_TIER_PAGEABLE);
  AnswerReport();
  EXPECT_EQ(Reported(), 0);
  EXPECT_THAT(session_->WhyPageable("a"), HasSubstr("no more locked memory"));
  EXPECT_FALSE(MayPin("a"));
  // What was allowed for it serves no other of this worker, whatever is on its way still.
  EXPECT_TRUE(MayPin("b"));
  Allow(39);
  EXPECT_FALSE(MayPin("b"));
  Allow(150);
  EXPECT_FALSE(MayPin("b"));
  Lose();
  Open();
  Allow(40);
  EXPECT_TRUE(MayPin("b"));
}

TEST_F(SessionPins, ARefusedPinWithoutABrokerConcernsItAlone) {
  Step(NoBrokerLives{});
  Pin("a", absl::ResourceExhaustedError("no more locked memory"));
  EXPECT_FALSE(MayPin("a"));
  EXPECT_TRUE(MayPin("b"));
}

TEST_F(SessionPins, ANewSessionBeginsWithoutAnAllowance) {
  Open();
  Allow(140);
  Pin("a");
  Lose();
  EXPECT_FALSE(MayPin("b"));
  Open();
  EXPECT_FALSE(MayPin("b"));
  const v1::AttachRequest attach = Last<OpenStream>().request;
  EXPECT_EQ(attach.snapshot().pinned_host_bytes(), 100);
  EXPECT_EQ(attach.components(0).host_tier(), v1::HOST_TIER_PINNED);
  Allow(140);
  EXPECT_TRUE(MayPin("b"));
}

TEST_F(SessionPins, ADirectiveThatDoesNotSayItLeavesTheAllowance) {
  Open();
  Allow(140);
  Direct(Target("b", 1, 2));
  EXPECT_TRUE(MayPin("a"));
  Allow(0);
  EXPECT_FALSE(MayPin("a"));
}

TEST_F(SessionPins, WhereNoBrokerLivesAllIsPinned) {
  const Effects effects = Step(NoBrokerLives{});
  EXPECT_EQ(Of<WorkChanged>(effects).size(), 2u);
  EXPECT_TRUE(MayPin("a"));
  Pin("a");
  EXPECT_TRUE(MayPin("b"));
  EXPECT_TRUE(Of<WorkChanged>(Step(NoBrokerLives{})).empty());  // once
  // From composing an attach on the broker's word counts.
  Step(Connect{});
  EXPECT_FALSE(MayPin("b"));
  Step(NoBrokerLives{});
  EXPECT_FALSE(MayPin("b"));
}

}  // namespace
}  // namespace vrambroker::client
