// What stays when a use ends, and who gives up what for whom.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Retention : public MachineFixture {};

// One stage of a declared run.
void OfRun(UseSpec* use, RunId run, int stage) {
  use->run = run;
  use->stage = stage;
}

TEST_F(Retention, WhatARunLeavesIsKeptAsLongAsItsDriverMayDeclareAnother) {
  Build(10 * kGiB);
  Worker driver = NewWorker("driver", {});
  Worker text = NewWorker("text", {Forward("t", 4, kGiB)}),
         dit = NewWorker("dit", {Forward("d", 5, kGiB)});
  AttachAll({&driver, &text, &dit});
  const std::vector<RunId> runs =
      Declare(driver, {Stage("text/t"), Stage("dit/d"), Stage("text/t")}, 1);
  Granted(Begin(text, "1", "t", 0, [&](UseSpec* u) { OfRun(u, runs[0], 0); }), &text, "t");
  EXPECT_EQ(End(&text, "1", "t").layers, 4);
  Granted(Begin(dit, "1", "d", 0, [&](UseSpec* u) { OfRun(u, runs[0], 1); }), &dit, "d");
  EXPECT_EQ(End(&dit, "1", "d").layers, 5);
  EXPECT_EQ(Look("text/t").held, 4);
  Granted(Begin(text, "2", "t", 0, [&](UseSpec* u) { OfRun(u, runs[0], 2); }), &text, "t");
  EXPECT_EQ(End(&text, "2", "t").layers, 4);
  Step(FinishRunEvent{Header(driver, "f"), runs[0]});
  EXPECT_EQ(Look("text/t").target, 4);
  Close(&driver);
  Pass(config_.run_grace);
  Report(&text);
  Report(&dit);
  EXPECT_EQ(Look("text/t").held, 0);
  EXPECT_EQ(Look("dit/d").held, 0);
}

TEST_F(Retention, AComponentUsedTwiceInOneRunIsKeptBetween) {
  Build(6 * kGiB);
  Worker driver = NewWorker("driver", {});
  Worker text = NewWorker("text", {Forward("t", 4, kGiB)}),
         dit = NewWorker("dit", {Forward("d", 5, kGiB / 2)});
  AttachAll({&driver, &text, &dit});
  const std::vector<RunId> runs =
      Declare(driver, {Stage("text/t"), Stage("dit/d"), Stage("text/t")}, 1);
  Granted(Begin(text, "1", "t", 0, [&](UseSpec* u) { OfRun(u, runs[0], 0); }), &text, "t");
  EXPECT_EQ(End(&text, "1", "t").layers, 4);
  Granted(Begin(dit, "1", "d", 0, [&](UseSpec* u) { OfRun(u, runs[0], 1); }), &dit, "d");
  End(&dit, "1", "d");
  EXPECT_EQ(Look("text/t").held, 4);
  Granted(Begin(text, "2", "t", 0, [&](UseSpec* u) { OfRun(u, runs[0], 2); }), &text, "t");
}

TEST_F(Retention, WhatIsOnlyKeptForARunThatMayComeGoesAfterAWhile) {
  Build(10 * kGiB);
  Worker driver = NewWorker("driver", {});
  Worker text = NewWorker("text", {Forward("t", 4, kGiB)});
  AttachAll({&driver, &text});
  const std::vector<RunId> runs = Declare(driver, {Stage("text/t")}, 1);
  Granted(Begin(text, "1", "t", 0, [&](UseSpec* u) { OfRun(u, runs[0], 0); }), &text, "t");
  EXPECT_EQ(End(&text, "1", "t").layers, 4);
  Pass(config_.expect_for / 2);
  Report(&text);
  EXPECT_EQ(Look("text/t").held, 4);
  Pass(config_.expect_for);
  Report(&text);
  EXPECT_EQ(Look("text/t").held, 0);
}

TEST_F(Retention, TenQueuedRunsLoadEachComponentOnce) {
  Build(12 * kGiB);
  Worker driver = NewWorker("driver", {});
  Worker text = NewWorker("text", {Forward("t", 4, kGiB)}),
         dit = NewWorker("dit", {Forward("d", 5, kGiB)});
  AttachAll({&driver, &text, &dit});
  const std::vector<RunId> runs = Declare(driver, {Stage("t"), Stage("d", 20)}, 10);
  int loaded = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (int stage = 0; stage < 2; ++stage) {
      Worker* w = stage == 0 ? &text : &dit;
      const std::string name = stage == 0 ? "t" : "d";
      const std::string request = absl::StrCat("run-", i);
      const int before = Look(absl::StrCat(w->name, "/", name)).held;
      const auto granted = Granted(
          Begin(*w, request, name, kGiB, [&](UseSpec* u) { OfRun(u, runs[i], stage); }), w, name);
      ASSERT_TRUE(granted.has_value());
      loaded += granted->resident - before;
      End(w, request, name);
    }
    Step(FinishRunEvent{Header(driver, absl::StrCat("f", i)), runs[i]});
  }
  EXPECT_EQ(loaded, 9);
  Report(&text);
  Report(&dit);
  EXPECT_EQ(Look("text/t").held, 4) << "an eleventh is to be expected";
  Pass(absl::Minutes(1));
  Report(&text);
  Report(&dit);
  EXPECT_EQ(Look("text/t").held, 0) << "it did not come";
  EXPECT_EQ(Look("dit/d").held, 0);
}

TEST_F(Retention, WhatNothingIsKnownOfIsKeptByRecency) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4), c = NewModel("c", 4);
  AttachAll({&a, &b, &c});
  for (Worker* w : {&a, &b}) {
    EXPECT_EQ(UseOnce(w, "1", "m").layers, 4);
    EXPECT_EQ(Look(absl::StrCat(w->name, "/m")).held, 4);
  }
  const CallId call = Begin(c, "1", "m", 0, AtLeast(4));
  EXPECT_EQ(Look("a/m").target, 2) << "the least recent gives up what is needed";
  EXPECT_EQ(Look("b/m").target, 4);
  Report(&a);
  EXPECT_TRUE(Granted(call, &c, "m").has_value());
}

TEST_F(Retention, TheWorthOfAByteDecidesNotTheSizeOfItsComponent) {
  Build(14 * kGiB);
  Worker driver = NewWorker("driver", {});
  // Each byte of the VAE costs the link's time; most of the large one is hidden behind compute.
  ComponentSpec large = Forward("large", 12, kGiB);
  large.pass_seconds = 1.2;
  Worker vae = NewWorker("vae", {Forward("v", 8, 20 * kMiB)}), big = NewWorker("big", {large}),
         other = NewWorker("other", {Forward("o", 3, kGiB)});
  AttachAll({&driver, &vae, &big, &other});
  const std::vector<RunId> runs = Declare(driver, {Stage("large"), Stage("v"), Stage("o")}, 3);
  Granted(Begin(big, "1", "large", 0, [&](UseSpec* u) { OfRun(u, runs[0], 0); }), &big, "large");
  End(&big, "1", "large");
  Granted(Begin(vae, "1", "v", 0, [&](UseSpec* u) { OfRun(u, runs[0], 1); }), &vae, "v");
  EXPECT_EQ(End(&vae, "1", "v").layers, 8);
  const CallId call = Begin(other, "1", "o", kGiB, [&](UseSpec* u) {
    OfRun(u, runs[0], 2);
    u->min_resident = 3;
  });
  Report(&big);
  Report(&vae);
  EXPECT_TRUE(Granted(call, &other, "o").has_value());
  EXPECT_EQ(Look("vae/v").held, 8);
  EXPECT_LT(Look("big/large").held, 12);
}

TEST_F(Retention, TheVictimOfARevocationThatAsksAtThatMomentQueuesBehindIt) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 8), b = NewModel("b", 8);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  const auto all = AtLeast(8);
  const CallId wants = Begin(b, "1", "m", 0, all);
  ASSERT_EQ(Look("a/m").target, 2);
  const CallId again = Begin(a, "2", "m", 0, all);
  EXPECT_EQ(Look("a/m").target, 2) << "the revocation stands";
  EXPECT_FALSE(Answered(again));
  Report(&a);
  ASSERT_TRUE(Granted(wants, &b, "m").has_value());
  EXPECT_FALSE(Answered(again));
  End(&b, "1", "m");
  Report(&b);
  EXPECT_TRUE(Granted(again, &a, "m").has_value());
}

// What it releases may stay in its pool: granted at once, the same bytes would be there twice.
TEST_F(Retention, AComponentWhoseReleaseIsUnderWayGrowsOnlyOnceThatIsReported) {
  Build(20 * kGiB);
  Worker a = NewModel("a", 8), b = NewModel("b", 14);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  Begin(b, "1", "m", 0, AtLeast(14));
  ASSERT_EQ(Look("a/m").target, 6);
  Step(CallCancelledEvent{CallId(last_call_)});  // nobody is short any more
  const CallId again = Begin(a, "2", "m");
  EXPECT_FALSE(Answered(again));
  a.pool = 2 * kGiB;
  Report(&a);
  EXPECT_TRUE(Granted(again, &a, "m").has_value());
  EXPECT_EQ(ledger().Sum(), Bytes(10 * kGiB));
}

TEST_F(Retention, ARunningUseIsNeverRevoked) {
  Build(10 * kGiB, true);
  Worker a = NewModel("a", 8), b = NewModel("b", 8);
  AttachAll({&a, &b});
  const auto granted = Granted(Begin(a, "1", "m"), &a, "m");
  Begin(b, "1", "m", 0, AtLeast(8));
  Read({{a.pid, Bytes(8 * kGiB)}, {9999, Bytes(9 * kGiB)}});
  EXPECT_GT(ledger().Overcommitted(), Bytes());
  EXPECT_EQ(Look("a/m").target, 8);
  EXPECT_EQ(Look("a/m").generation, granted->generation);
  EXPECT_EQ(Decided(DecisionKind::kRevocation), 0);
}

TEST_F(Retention, OvercommitmentByAReadingTakesEveryRetainedByteThatHelpsAndNothingGrows) {
  Build(20 * kGiB, true);
  Worker a = NewModel("a", 6), b = NewModel("b", 6), c = NewModel("c", 2);
  AttachAll({&a, &b, &c});
  for (Worker* w : {&a, &b}) UseOnce(w, "1", "m");
  const Bytes six(6 * kGiB);
  Read({{a.pid, six}, {b.pid, six}, {9999, Bytes(17 * kGiB)}});
  EXPECT_EQ(ledger().Overcommitted(), Bytes(9 * kGiB));
  EXPECT_EQ(Look("a/m").target + Look("b/m").target, 3);
  const CallId waits = Begin(c, "1", "m");
  EXPECT_FALSE(Answered(waits));
  EXPECT_TRUE(Refused(waits).ok());
  Report(&a);
  Report(&b);
  EXPECT_FALSE(Answered(waits)) << "the driver has not shown it yet";
  Read({{a.pid, Bytes(0)}, {b.pid, Bytes(3 * kGiB)}, {9999, Bytes(2 * kGiB)}});
  EXPECT_TRUE(Granted(waits, &c, "m").has_value());
}

TEST_F(Retention, APoolIsTrimmedWhereSomebodyIsShortAndNotOtherwise) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 2), b = NewModel("b", 2);
  AttachAll({&a, &b});
  Granted(Begin(a, "1", "m", 5 * kGiB), &a, "m");
  a.pool = 5 * kGiB;
  End(&a, "1", "m");
  EXPECT_EQ(ledger().pooled, Bytes(5 * kGiB));
  EXPECT_EQ(trims_[a.connection], 0);
  const CallId call = Begin(b, "1", "m", 6 * kGiB);
  EXPECT_FALSE(Answered(call));
  EXPECT_EQ(trims_[a.connection], 1);
  EXPECT_EQ(Look("a/m").target, 2) << "the pool is enough";
  a.pool = 0;
  Report(&a);
  EXPECT_TRUE(Granted(call, &b, "m").has_value());
}

TEST_F(Retention, APoolThatDoesNotGoIsNotWaitedForWhereRetainedBytesCanBeHad) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 1);
  AttachAll({&a, &b});
  Granted(Begin(a, "1", "m", 3 * kGiB), &a, "m");
  a.pool = 3 * kGiB;
  End(&a, "1", "m");
  const CallId call = Begin(b, "1", "m", 5 * kGiB);
  ASSERT_EQ(trims_[a.connection], 1);
  ASSERT_EQ(Look("a/m").target, 4);
  Pass(config_.release_deadline);
  EXPECT_LT(Look("a/m").target, 4);
  Report(&a);  // releases, keeps its pool
  EXPECT_TRUE(Granted(call, &b, "m").has_value());
}

TEST_F(Retention, ALateReleaseIsNotCountedOnWhereAnotherHolderCanGive) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4), c = NewModel("c", 4);
  AttachAll({&a, &b, &c});
  for (Worker* w : {&a, &b}) UseOnce(w, "1", "m");
  const CallId call = Begin(c, "1", "m", 0, AtLeast(4));
  ASSERT_EQ(Look("a/m").target, 2);
  ASSERT_EQ(Look("b/m").target, 4);
  Pass(config_.release_deadline);  // a is stopped, say
  EXPECT_LT(Look("b/m").target, 4);
  Report(&b);
  EXPECT_TRUE(Granted(call, &c, "m").has_value());
}

TEST_F(Retention, DrainReleasesRetainedSetsAndAdmitsNothing) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  Granted(Begin(b, "1", "m"), &b, "m");
  const CallId waits = Begin(b, "2", "m");
  Step(DrainEvent{CallId(++last_call_)});
  EXPECT_EQ(Refused(waits).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Refused(Begin(a, "2", "m")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Look("a/m").target, 0);
  EXPECT_EQ(Look("b/m").target, 4) << "a running use goes on";
  EXPECT_EQ(End(&b, "1", "m").layers, 0);
  Report(&a);
  EXPECT_EQ(ledger().Charged(), Bytes());
  Worker late = NewModel("late", 4);
  late.held["m"] = 3;
  Attach(&late);
  EXPECT_EQ(Look("late/m").target, 0) << "nor does it keep what comes with an Attach";
}

}  // namespace
}  // namespace vrambroker::core
