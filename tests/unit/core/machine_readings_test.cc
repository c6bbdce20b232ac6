// What driver readings change: external bytes, releases that have not happened, lag.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Readings : public MachineFixture {
 protected:
  // `a` holds 8 of 10 GiB and releases them for `b`.
  void ReleaseFor() {
    Build(10 * kGiB, true);
    a_ = NewWorker("a", {Forward("m", 8, kGiB)});
    b_ = NewWorker("b", {Forward("m", 8, kGiB)});
    Attach(&a_);
    Attach(&b_);
    Granted(Begin(a_, "1", "m"), &a_, "m");
    End(&a_, "1", "m");
    Read({{a_.pid, Bytes(8 * kGiB)}});
    waits_ = Begin(b_, "1", "m", 0, [](UseSpec* u) { u->min_resident = 8; });
    Report(&a_);
    ASSERT_EQ(Look("a/m").held, 2);
  }
  Effects Total(int64_t bytes) {
    BeginReading();
    ReadingEvent e;
    e.device_uuid = "GPU-0";
    e.reading = last_reading_;
    e.total_used = Bytes(bytes);
    return Step(e);
  }
  Worker a_, b_;
  CallId waits_;
};

TEST_F(Readings, NothingIsGrantedBeforeTheDriverShowsItAndNobodyIsNamedForItsLag) {
  ReleaseFor();
  EXPECT_FALSE(Answered(waits_)) << "the newest reading shows 8 GiB of a";
  EXPECT_EQ(ledger().external, Bytes(6 * kGiB));
  Read({{a_.pid, Bytes(8 * kGiB)}});  // late
  EXPECT_FALSE(Answered(waits_));
  EXPECT_FALSE(LookAt("a").under_released);
  Pass(absl::Milliseconds(250));
  Read({{a_.pid, Bytes(2 * kGiB)}});
  EXPECT_TRUE(Granted(waits_, &b_, "m").has_value());
  EXPECT_FALSE(LookAt("a").under_released);
  EXPECT_EQ(ledger().external, Bytes());
}

TEST_F(Readings, WhatWasSaidToBeReleasedAndIsNotIsChargedAndNamed) {
  ReleaseFor();
  for (int i = 0; i < 12; ++i) {
    Pass(absl::Milliseconds(500));
    Read({{a_.pid, Bytes(8 * kGiB)}});
    EXPECT_FALSE(Answered(waits_));
  }
  EXPECT_EQ(ledger().external, Bytes(6 * kGiB));
  EXPECT_TRUE(LookAt("a").under_released);
  EXPECT_EQ(LookAt("a").unexplained, Bytes(6 * kGiB));
  EXPECT_FALSE(LookAt("b").under_released);
}

TEST_F(Readings, AReadingIsWantedWhileSomebodyWaitsForIt) {
  ReleaseFor();
  int wanted = 0;
  for (int i = 0; i < 10; ++i) {
    for (const Effect& effect : Pass(absl::Milliseconds(60))) {
      wanted += std::holds_alternative<WantReading>(effect) ? 1 : 0;
    }
  }
  EXPECT_GE(wanted, 8);
}

TEST_F(Readings, BytesOfOthersAreDeductedAndChange) {
  Build(10 * kGiB, true);
  Worker a = NewWorker("a", {Forward("m", 8, kGiB)});
  Attach(&a);
  Read({{7777, Bytes(5 * kGiB)}});
  EXPECT_EQ(ledger().external, Bytes(5 * kGiB));
  const auto first = Granted(Begin(a, "1", "m"), &a, "m");
  ASSERT_TRUE(first.has_value());
  EXPECT_LE(first->resident, 5);
  End(&a, "1", "m");
  Read({{a.pid, Bytes(int64_t{first->resident} * kGiB)}});
  const auto second = Granted(Begin(a, "2", "m"), &a, "m");
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->resident, 8);
}

TEST_F(Readings, AReadingThatSawACopyComingSaysNothingOfThatWorker) {
  Build(10 * kGiB, true);
  Worker a = NewWorker("a", {Forward("m", 8, kGiB)});
  Attach(&a);
  BeginReading();
  Granted(Begin(a, "1", "m"), &a, "m");
  EndReading({{a.pid, Bytes(5 * kGiB)}});
  EXPECT_EQ(ledger().external, Bytes());
  EXPECT_EQ(LookAt("a").unexplained, Bytes());
}

TEST_F(Readings, WhatAProcessHasAtRestBesideItsLayersIsLearnedAndCharged) {
  Build(10 * kGiB, true);
  Worker a = NewWorker("a", {Forward("m", 8, kGiB)});
  Attach(&a);
  Read({{a.pid, Bytes(400 * kMiB)}});
  EXPECT_EQ(ledger().external, Bytes(400 * kMiB));
  Pass(absl::Seconds(20));
  EXPECT_FALSE(LookAt("a").under_released) << "a context, and no release that did not happen";
}

TEST_F(Readings, ATotalCountsOnlyWhileNothingOfOursIsInMotion) {
  Build(20 * kGiB, true);
  Worker a = NewWorker("a", {Forward("m", 8, kGiB)});
  Attach(&a);
  Total(3 * kGiB);
  EXPECT_EQ(ledger().external, Bytes(3 * kGiB));
  Granted(Begin(a, "1", "m"), &a, "m");
  Total(11 * kGiB);
  EXPECT_EQ(ledger().external, Bytes(3 * kGiB)) << "a use runs: what it has loaded is not known";
  End(&a, "1", "m");
  Report(&a);
  Total(13 * kGiB);
  EXPECT_EQ(ledger().external, Bytes(5 * kGiB));
}

TEST_F(Readings, ByATotalTheDeadAreNotTakenForOurs) {
  Build(20 * kGiB, true);
  Worker a = NewWorker("a", {Forward("m", 8, kGiB)}), b = NewWorker("b", {Forward("m", 14, kGiB)});
  Attach(&a);
  Attach(&b);
  Granted(Begin(a, "1", "m"), &a, "m");
  End(&a, "1", "m");
  Report(&a);
  Die(a);
  Total(8 * kGiB);
  EXPECT_EQ(ledger().external, Bytes(8 * kGiB)) << "its bytes are still there";
  const CallId call = Begin(b, "1", "m", 0, [](UseSpec* u) { u->min_resident = 14; });
  EXPECT_FALSE(Answered(call));
  Total(0);
  EXPECT_TRUE(Granted(call, &b, "m").has_value());
}

TEST_F(Readings, WhatWasGivenBackSinceATotalMayBeOthersBytes) {
  Build(20 * kGiB, true);
  Worker a = NewWorker("a", {Forward("m", 8, kGiB)});
  Attach(&a);
  Granted(Begin(a, "1", "m"), &a, "m");
  End(&a, "1", "m");
  Report(&a);
  Total(10 * kGiB);
  EXPECT_EQ(ledger().external, Bytes(2 * kGiB));
  a.held["m"] = 0;  // by itself, before or after the total was taken
  Step(ReportEvent{Header(a, ""), SnapshotOf(&a)});
  EXPECT_EQ(ledger().Sum(), Bytes(18 * kGiB)) << "8 charged until it has heard, 10 may be others'";
  Report(&a);
  EXPECT_EQ(ledger().external, Bytes(10 * kGiB));
  EXPECT_EQ(Decided(DecisionKind::kRevocation), 0);
}

}  // namespace
}  // namespace vrambroker::core
