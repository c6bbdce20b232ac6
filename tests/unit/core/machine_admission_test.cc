// Who may begin a use, with how many layers, in which order, and who is refused at once.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

constexpr int64_t kActivation = 3113851289;

// The three components of an image pipeline at their published sizes.
class ImagePipeline : public MachineFixture {
 protected:
  void Start(double capacity_gib) {
    Build(static_cast<int64_t>(capacity_gib * static_cast<double>(kGiB)), false, 512 * kMiB);
    dit_ = NewWorker("dit", {Permanent(Forward("dit", 60, 232644061, 268435456))});
    vae_ = NewWorker("vae", {Permanent(Forward("vae", 8, 33554432))});
    text_ = NewWorker("text", {Forward("text", 66, 226701339, 1181116006, 2 * 226701339)});
    for (Worker* w : {&dit_, &vae_, &text_}) {
      Attach(w);
      ASSERT_TRUE(w->welcome->refused.empty()) << w->welcome->refused[0].message;
    }
  }
  // One image; returns the layers of the text encoder that stay while the DiT works.
  int Image(int number) {
    const std::string id = absl::StrCat("image-", number);
    const auto text = Granted(Begin(text_, id, "text", 536870912), &text_, "text");
    EXPECT_TRUE(text.has_value());
    End(&text_, id, "text");
    const CallId dit = Begin(dit_, id, "dit", kActivation);
    Report(&text_);  // gives back what was asked of it
    EXPECT_TRUE(Granted(dit, &dit_, "dit").has_value());
    const int kept = Look("text/text").held;
    EXPECT_LE(ledger().Sum(), ledger().capacity);
    End(&dit_, id, "dit");
    return kept;
  }
  Worker dit_, vae_, text_;
};

TEST_F(ImagePipeline, TextEncoderIsKeptAsFarAsTheLargeCardHoldsIt) {
  Start(31.4);
  for (int i = 0; i < 3; ++i) {
    const int kept = Image(i);
    // 31.4 GiB less reserve, fixed and permanent bytes and the DiT's activation.
    const int64_t room = ledger().capacity.count() - ledger().reserve.count() -
                         ledger().permanent.count() - kActivation;
    EXPECT_EQ(kept, std::min<int64_t>(66, room / 226701339));
    EXPECT_GE(kept, 53);
  }
}

TEST_F(ImagePipeline, TextEncoderIsKeptInPartOnTheSmallCard) {
  Start(23.5);
  for (int i = 0; i < 3; ++i) {
    const int kept = Image(i);
    EXPECT_GT(kept, 10);
    EXPECT_LT(kept, 30);
  }
}

class Admission : public MachineFixture {};

TEST_F(Admission, TwoWorkersNeverGetTheSameFreeBytes) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 6), b = NewModel("b", 6);
  AttachAll({&a, &b});
  const auto all = AtLeast(6);
  const CallId first = Begin(a, "1", "m", 0, all);
  const CallId second = Begin(b, "1", "m", 0, all);
  EXPECT_TRUE(Granted(first, &a, "m").has_value());
  EXPECT_FALSE(Answered(second));
  EXPECT_EQ(ledger().in_use, Bytes(6 * kGiB));
  End(&a, "1", "m");
  Report(&a);
  EXPECT_TRUE(Granted(second, &b, "m").has_value());
  EXPECT_LE(ledger().Sum(), ledger().capacity);
}

TEST_F(Admission, WhatCanNeverFitIsRefusedAtOnceAgainAndAgainAndEvictsNothing) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 6), b = NewModel("b", 2);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  ASSERT_EQ(Look("a/m").held, 6);
  for (int i = 0; i < 5; ++i) {
    const CallId call = Begin(b, absl::StrCat("big-", i), "m", 11 * kGiB);
    EXPECT_EQ(Refused(call).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(Refused(call).message()), testing::HasSubstr("11.00 GiB"));
    EXPECT_THAT(std::string(Refused(call).message()), testing::HasSubstr("10.00 GiB"));
  }
  EXPECT_EQ(Look("a/m").target, 6);
  EXPECT_EQ(Decided(DecisionKind::kRevocation), 0);
}

TEST_F(Admission, RetainedBytesGoForActivationsAsForWeights) {
  Build(48 * kGiB);
  Worker a = NewModel("a", 20), b = NewModel("b", 16);
  Worker v = NewWorker("v", {Forward("decode", 1, 200 * kMiB)});
  AttachAll({&a, &b, &v});
  for (Worker* w : {&a, &b}) UseOnce(w, "1", "m");
  ASSERT_EQ(ledger().retained, Bytes(36 * kGiB));
  const CallId decode = Begin(v, "1", "decode", 15 * kGiB);
  EXPECT_FALSE(Answered(decode));
  EXPECT_GT(Decided(DecisionKind::kRevocation), 0);
  Report(&a);
  Report(&b);
  EXPECT_TRUE(Granted(decode, &v, "decode").has_value());
}

TEST_F(Admission, PermanentComponentsAreNeverRevokedAndAreNamedWhereAUseCannotFitBesideThem) {
  Build(10 * kGiB);
  Worker p = NewWorker("p", {Permanent(Forward("big", 8, kGiB))});
  Worker a = NewModel("a", 4);
  AttachAll({&p, &a});
  EXPECT_EQ(ledger().permanent, Bytes(8 * kGiB));
  const CallId call = Begin(a, "1", "m", 3 * kGiB);
  EXPECT_EQ(Refused(call).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Refused(call).message()), testing::HasSubstr("permanent of p/big"));
  EXPECT_EQ(Look("p/big").target, 8);
}

TEST_F(Admission, FixedBytesRefusedAtAttachAreAdmittedByALaterTarget) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 8);
  Attach(&a);
  Granted(Begin(a, "1", "m"), &a, "m");
  Worker b = NewWorker("b", {Forward("m", 2, kGiB, 3 * kGiB)});
  b.placed = false;
  Attach(&b);
  ASSERT_EQ(b.welcome->refused.size(), 1u);
  EXPECT_EQ(b.welcome->refused[0].missing, Bytes(kGiB));
  EXPECT_EQ(Refused(Begin(b, "early", "m")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Told(b, "m").has_value());
  End(&a, "1", "m");
  Report(&a);
  ASSERT_TRUE(Told(b, "m").has_value());
  EXPECT_EQ(ledger().permanent, Bytes(3 * kGiB));
  b.placed = true;
  Report(&b);
  const CallId late = Begin(b, "late", "m");
  Report(&a);
  EXPECT_TRUE(Granted(late, &b, "m").has_value());
}

TEST_F(Admission, GrowWaitTakesWhatIsFreeAtItsEnd) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 8), b = NewModel("b", 8);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  const CallId call = Begin(b, "1", "m", 0, [](UseSpec* use) { use->passes = 40; });
  ASSERT_FALSE(Answered(call)) << "it waits for more than the 2 GiB that are free";
  EXPECT_LT(Look("a/m").target, 8);
  Pass(absl::Milliseconds(500));
  EXPECT_FALSE(Answered(call));
  Pass(absl::Milliseconds(600));  // a has not released anything
  const auto granted = Granted(call, &b, "m");
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->resident, 2);
  EXPECT_EQ(granted->reason, Reason::kGrowWaitEnded);
}

TEST_F(Admission, PriorityGoesFirstUntilAnotherHasWaitedForLong) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 8), b = NewModel("b", 8), c = NewModel("c", 8);
  AttachAll({&a, &b, &c});
  const auto all = AtLeast(8);
  const auto urgent = [](UseSpec* use) {
    use->min_resident = 8;
    use->priority = 10;
  };
  Granted(Begin(a, "1", "m", 0, all), &a, "m");
  const CallId plain = Begin(b, "1", "m", 0, all);
  const CallId first = Begin(c, "1", "m", 0, urgent);
  End(&a, "1", "m");
  Report(&a);
  EXPECT_FALSE(Answered(plain));
  ASSERT_TRUE(Granted(first, &c, "m").has_value());
  const CallId second = Begin(a, "2", "m", 0, urgent);
  Pass(config_.max_wait + absl::Seconds(1));
  End(&c, "1", "m");
  Report(&c);
  EXPECT_TRUE(Granted(plain, &b, "m").has_value());
  EXPECT_FALSE(Answered(second));
}

TEST_F(Admission, AYoungerUsePassesOnlyIfTheOldestStillFitsBesideIt) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 6), b = NewModel("b", 8), c = NewModel("c", 4);
  AttachAll({&a, &b, &c});
  Granted(Begin(a, "1", "m"), &a, "m");
  const CallId oldest = Begin(b, "1", "m", 0, AtLeast(8));
  const CallId large = Begin(c, "1", "m", 0, AtLeast(3));
  EXPECT_FALSE(Answered(oldest));
  EXPECT_FALSE(Answered(large)) << "3 beside 8 do not fit, though 4 are free";
  Step(CallCancelledEvent{large});
  const CallId small = Begin(c, "2", "m", 0, [](UseSpec* use) { use->max_resident = 2; });
  const auto granted = Granted(small, &c, "m");
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->resident, 2);
  End(&a, "1", "m");
  Report(&a);
  EXPECT_TRUE(Granted(oldest, &b, "m").has_value());
}

TEST_F(Admission, NestedUsesThatWouldWaitForEachOtherAreRefusedByName) {
  Build(10 * kGiB);
  Worker a = NewWorker("a", {Forward("m", 4, kGiB), Forward("n", 4, kGiB)});
  Attach(&a);
  const auto m = Granted(Begin(a, "m", "m"), &a, "m");
  const auto n = Granted(Begin(a, "n", "n"), &a, "n");
  ASSERT_TRUE(m.has_value() && n.has_value());
  const CallId first = Begin(a, "m-n", "n", 0, [&](UseSpec* use) { use->held_uses = {m->use}; });
  EXPECT_FALSE(Answered(first));
  const CallId second = Begin(a, "n-m", "m", 0, [&](UseSpec* use) { use->held_uses = {n->use}; });
  EXPECT_EQ(Refused(second).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(Refused(second).message()), testing::HasSubstr("of a/m"));
  EXPECT_THAT(std::string(Refused(second).message()), testing::HasSubstr("of a/n"));
  End(&a, "n", "n");
  EXPECT_TRUE(Granted(first, &a, "n").has_value());
}

TEST_F(Admission, WhatARunningUseWaitsForPassesTheUseThatWaitsForIt) {
  Build(10 * kGiB);
  Worker a = NewWorker("a", {Forward("m", 4, kGiB), Forward("n", 2, kGiB)});
  Worker b = NewModel("b", 9);
  AttachAll({&a, &b});
  const auto m = Granted(Begin(a, "m", "m"), &a, "m");
  const CallId large = Begin(b, "1", "m", 0, AtLeast(9));
  EXPECT_FALSE(Answered(large));
  const CallId inner = Begin(a, "n", "n", 0, [&](UseSpec* use) {
    use->min_resident = 2;
    use->held_uses = {m->use};
  });
  EXPECT_TRUE(Granted(inner, &a, "n").has_value()) << "9 beside 2 do not fit, but 9 waits for m";
}

TEST_F(Admission, AChargeFallsByReportsInAnyOrderAndNeverBelowNothing) {
  Build(20 * kGiB);
  Worker a = NewModel("a", 8);
  Attach(&a);
  UseOnce(&a, "1", "m");
  Snapshot newest = SnapshotOf(&a), older = newest, oldest = newest;
  oldest.sequence = newest.sequence + 1;
  older.sequence = newest.sequence + 2;
  newest.sequence = newest.sequence + 3;
  a.sequence += 3;
  newest.components[0].held = 0;
  older.components[0].held = 3;
  Step(ReportEvent{Header(a, ""), newest});
  EXPECT_EQ(Look("a/m").held, 0);
  Step(ReportEvent{Header(a, ""), older});
  Step(ReportEvent{Header(a, ""), oldest});
  EXPECT_EQ(Look("a/m").held, 0);
  const std::optional<Target> told = Told(a, "m");
  EXPECT_EQ(told->layers, 0) << "what was dropped is not asked for again";
  a.held["m"] = 0;
  Report(&a);
  EXPECT_EQ(ledger().Charged(), Bytes());
  EXPECT_EQ(ledger().Free(), ledger().capacity);
}

}  // namespace
}  // namespace vrambroker::core
