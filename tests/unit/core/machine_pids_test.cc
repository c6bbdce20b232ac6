// Driver lists whose pids may be another namespace's, and processes that are.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Pids : public MachineFixture {
 protected:
  // `a` holds 6 GiB of a card of 10.
  void Hold(uint64_t foreign_id = 0) {
    Build(10 * kGiB, true);
    a_ = NewModel("a", 6);
    AttachAs(&a_, foreign_id);
    ASSERT_TRUE(Granted(Begin(a_, "1", "m"), &a_, "m").has_value());
    End(&a_, "1", "m");
    Pass(absl::Seconds(10));
  }
  void AttachAs(Worker* w, uint64_t foreign_id) {
    AttachEvent e = AttachOf(w);
    e.process.foreign_id = foreign_id;
    w->connection = e.connection.value();
    by_connection_[w->connection] = w;
    Step(e);
    Report(w);
  }
  void ReadList(int64_t total, std::vector<std::pair<int32_t, Bytes>> list, int64_t unlisted = 0) {
    BeginReading();
    ReadingEvent e;
    e.device_uuid = "GPU-0";
    e.reading = last_reading_;
    e.total_used = Bytes(total);
    e.by_process_known = true;
    e.by_process = std::move(list);
    e.unlisted = Bytes(unlisted);
    Step(e);
  }

  Worker a_;
};

TEST_F(Pids, AListThatNamesNoneOfOursIsATotal) {
  Hold();
  ReadList(7 * kGiB, {{5001, Bytes(6 * kGiB)}, {5002, Bytes(kGiB)}});
  EXPECT_TRUE(ledger().external_known);
  EXPECT_EQ(ledger().external, Bytes(kGiB)) << "what it holds is not charged twice";
  EXPECT_EQ(LookAt("a").unexplained, Bytes());
}

TEST_F(Pids, AnEmptyListIsNotAnEmptyCard) {
  Hold();
  ReadList(9 * kGiB, {}, 9 * kGiB);
  EXPECT_EQ(ledger().external, Bytes(3 * kGiB));
  EXPECT_EQ(ledger().Free(), Bytes(kGiB));
}

TEST_F(Pids, OnceAListHasNamedOneOfOursItIsBelieved) {
  Hold();
  ReadList(9 * kGiB, {{a_.pid, Bytes(6 * kGiB)}, {9999, Bytes(3 * kGiB)}});
  EXPECT_EQ(ledger().external, Bytes(3 * kGiB));
  // It has released by itself, and is not on the card at all.
  a_.held["m"] = 0;
  Step(ReportEvent{Header(a_, ""), SnapshotOf(&a_)});
  ReadList(3 * kGiB, {{9999, Bytes(3 * kGiB)}});
  EXPECT_EQ(ledger().external, Bytes(3 * kGiB));
}

TEST_F(Pids, SomebodyElseWhoHasAPidOfOursByChanceIsNotTakenForIt) {
  Hold();
  ReadList(8 * kGiB, {{a_.pid, Bytes(2 * kGiB)}, {5001, Bytes(6 * kGiB)}});
  EXPECT_EQ(ledger().external, Bytes(2 * kGiB)) << "less than it holds: another's pid";
}

TEST_F(Pids, WhatIsNobodysOnTheListIsExternal) {
  Hold();
  ReadList(8 * kGiB, {{a_.pid, Bytes(6 * kGiB)}}, 2 * kGiB);
  EXPECT_EQ(ledger().external, Bytes(2 * kGiB));
  EXPECT_EQ(LookAt("a").unexplained, Bytes());
}

TEST_F(Pids, AProcessOfAnotherNamespaceIsNotWhoHasItsPidHere) {
  Hold();
  ReadList(6 * kGiB, {{a_.pid, Bytes(6 * kGiB)}});  // the list's pids are ours
  Worker b = NewModel("b", 3);
  b.pid = 9999;
  AttachAs(&b, 77);
  ReadList(8 * kGiB, {{a_.pid, Bytes(6 * kGiB)}, {9999, Bytes(2 * kGiB)}});
  EXPECT_EQ(ledger().external, Bytes(2 * kGiB)) << "of another process, as b holds nothing";
  EXPECT_EQ(LookAt("b").unexplained, Bytes());
}

TEST_F(Pids, OfTwoThatSayTheSameOfThemselvesOnlyOneHasDied) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4);
  a.pid = b.pid = 1;  // each is the first of its container
  AttachAs(&a, 71);
  AttachAs(&b, 72);
  Step(ProcessDiedEvent{{1, 1, 71}});
  EXPECT_EQ(LookAt("a").phase, SessionPhase::kGone);
  EXPECT_EQ(LookAt("b").phase, SessionPhase::kAttached);
  Step(ProcessDiedEvent{{1, 1, 0}});
  EXPECT_EQ(LookAt("b").phase, SessionPhase::kAttached);
}

TEST_F(Pids, OneOfWhichNothingIsKnownButThatItDiedIsGone) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 4);
  a.pid = 0;
  AttachAs(&a, 71);
  Step(ProcessDiedEvent{{0, 1, 71}});
  EXPECT_EQ(LookAt("a").phase, SessionPhase::kGone);
}

TEST_F(Pids, AResidualThatGrowsWithEachUseIsChargedToItsWorkerAndNamed) {
  Build(32 * kGiB, true);
  Worker leaky = NewModel("leaky", 8), other = NewModel("other", 8);
  AttachAll({&leaky, &other});
  int64_t free = ledger().Free().count();
  for (const int64_t residual : {kGiB, 4 * kGiB, 11 * kGiB}) {
    const std::string request = absl::StrCat("use-", residual);
    ASSERT_TRUE(Granted(Begin(leaky, request, "m"), &leaky, "m").has_value());
    End(&leaky, request, "m");
    for (int i = 0; i < 12; ++i) {
      Pass(absl::Seconds(1));
      Read({{leaky.pid, Bytes(int64_t{Look("leaky/m").held} * kGiB + residual)}});
    }
    EXPECT_EQ(LookAt("leaky").unexplained, Bytes(residual));
    EXPECT_EQ(ledger().external, Bytes(residual));
    EXPECT_LT(ledger().Free().count(), free);
    free = ledger().Free().count();
  }
  EXPECT_TRUE(LookAt("leaky").under_released);
  EXPECT_FALSE(LookAt("other").under_released);
}

}  // namespace
}  // namespace vrambroker::core
