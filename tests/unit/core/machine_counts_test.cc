// What a machine counts for the metrics: each happening once, with its bytes and times.
#include <algorithm>

#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Counts : public MachineFixture {
 protected:
  std::vector<Count> Of(Count::What what) const {
    std::vector<Count> found;
    std::copy_if(counts_.begin(), counts_.end(), std::back_inserter(found),
                 [&](const Count& count) { return count.what == what; });
    return found;
  }
  std::vector<Decision> Logged(DecisionKind kind) const {
    std::vector<Decision> found;
    std::copy_if(logged_.begin(), logged_.end(), std::back_inserter(found),
                 [&](const Decision& d) { return d.kind == kind; });
    return found;
  }
};

TEST_F(Counts, AUseIsCountedWhenItBeginsWithWhatItFoundAndWhenItEndsWithWhatItTook) {
  Build(10 * kGiB);
  Worker a = NewModel("a", 4);
  Attach(&a);
  Measurements measured;
  measured.bytes_loaded = Bytes(4 * kGiB);
  measured.stall_seconds = 0.25;
  Granted(Begin(a, "1", "m"), &a, "m");
  End(&a, "1", "m");
  Granted(Begin(a, "2", "m"), &a, "m");
  End(&a, "2", "m", measured);

  const std::vector<Count> begun = Of(Count::What::kUseBegan);
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0].bytes, Bytes());
  EXPECT_EQ(begun[0].saved, absl::ZeroDuration());
  EXPECT_EQ(begun[0].device, "GPU-0");
  EXPECT_EQ(begun[1].bytes, Bytes(4 * kGiB));
  // The link of these cards: 10 GB/s, and no compute that hides a copy.
  EXPECT_NEAR(absl::ToDoubleSeconds(begun[1].saved), 4 * 1.073741824 / 10, 1e-6);
  const std::vector<Count> ended = Of(Count::What::kUseEnded);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].bytes, Bytes());
  EXPECT_EQ(ended[1].bytes, Bytes(4 * kGiB));
  EXPECT_EQ(ended[1].time, absl::Milliseconds(250));
}

TEST_F(Counts, DecisionsSayTheirDeviceAndBytes) {
  Build(6 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  Begin(b, "1", "m", 0, AtLeast(4));
  const std::vector<Decision> grants = Logged(DecisionKind::kGrant);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].device, "GPU-0");
  EXPECT_EQ(grants[0].bytes, Bytes(4 * kGiB));
  const std::vector<Decision> kept = Logged(DecisionKind::kRetention);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].bytes, Bytes(4 * kGiB));
  EXPECT_EQ(kept[0].given_up, Bytes());
  const std::vector<Decision> revoked = Logged(DecisionKind::kRevocation);
  ASSERT_EQ(revoked.size(), 1u);
  EXPECT_EQ(revoked[0].reason, Reason::kWantedByOthers);
  EXPECT_EQ(revoked[0].bytes, Bytes(2 * kGiB));
}

TEST_F(Counts, WhatIsNotKeptAtTheEndOfAUseIsGivenUp) {
  Build(8 * kGiB);
  Worker a = NewModel("a", 4);
  Attach(&a);
  Granted(Begin(a, "1", "m"), &a, "m");
  Step(DrainEvent{CallId(++last_call_)});
  End(&a, "1", "m");
  const std::vector<Decision> kept = Logged(DecisionKind::kRetention);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].reason, Reason::kNoNextUse);
  EXPECT_EQ(kept[0].bytes, Bytes());
  EXPECT_EQ(kept[0].given_up, Bytes(4 * kGiB));
}

TEST_F(Counts, ARevocationIsCountedOnceWhenAReportSaysThatItIsFulfilled) {
  Build(6 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  Begin(b, "1", "m", 0, AtLeast(4));
  EXPECT_TRUE(Of(Count::What::kReleased).empty());
  Pass(absl::Milliseconds(30));
  Report(&a);
  Report(&a);
  const std::vector<Count> released = Of(Count::What::kReleased);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].bytes, Bytes(2 * kGiB));
  EXPECT_EQ(released[0].time, absl::Milliseconds(30));
  EXPECT_TRUE(Of(Count::What::kOverdue).empty());
}

TEST_F(Counts, ADeadlineThatPassesIsCountedOnceWithWhatIsStillHeld) {
  Build(6 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  Begin(b, "1", "m", 0, AtLeast(4));
  for (int i = 0; i < 4; ++i) Pass(config_.release_deadline);
  const std::vector<Count> overdue = Of(Count::What::kOverdue);
  ASSERT_EQ(overdue.size(), 1u);
  const ComponentPicture late = Look("a/m");
  EXPECT_EQ(late.held, 4);
  EXPECT_EQ(late.release_asked, 4 * config_.release_deadline);
  EXPECT_TRUE(late.release_overdue);
  EXPECT_EQ(late.session, LookAt("a").id);
  EXPECT_EQ(overdue[0].bytes, late.held_bytes - late.target_bytes);
  EXPECT_EQ(LookAt("a").overdue, late.held_bytes - late.target_bytes);
  Report(&a);
  ASSERT_EQ(Of(Count::What::kReleased).size(), 1u);
  EXPECT_EQ(Of(Count::What::kReleased)[0].time, 4 * config_.release_deadline);
  EXPECT_EQ(LookAt("a").overdue, Bytes());
  EXPECT_FALSE(Look("a/m").release_asked.has_value());
  EXPECT_FALSE(Look("a/m").release_overdue);
}

TEST_F(Counts, UntilItsDeadlineATargetIsAskedForAndNotOverdue) {
  Build(6 * kGiB);
  Worker a = NewModel("a", 4), b = NewModel("b", 4);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  EXPECT_FALSE(Look("a/m").release_asked.has_value());
  Begin(b, "1", "m", 0, AtLeast(4));
  Pass(config_.release_deadline / 2);
  EXPECT_EQ(Look("a/m").release_asked, config_.release_deadline / 2);
  EXPECT_FALSE(Look("a/m").release_overdue);
}

TEST_F(Counts, LayersLoadedAheadAreCountedAsReportsShowThem) {
  config_.load_ahead = true;
  Build(12 * kGiB);
  Worker driver = NewWorker("driver", {}), a = NewModel("a", 4), b = NewModel("b", 4);
  AttachAll({&driver, &a, &b});
  Declare(driver, {Stage("a/m"), Stage("b/m")}, 2);
  Pass(config_.idle_before_load * 2);
  Report(&a);
  Report(&b);
  Report(&a);
  double decided = 0, loaded = 0;
  for (const Decision& d : Logged(DecisionKind::kLoadAhead)) decided += d.bytes.as_double();
  for (const Count& count : Of(Count::What::kLoadedAhead)) loaded += count.bytes.as_double();
  EXPECT_GT(loaded, 0);
  EXPECT_EQ(loaded, Look("a/m").held_bytes.as_double() + Look("b/m").held_bytes.as_double());
  EXPECT_GE(decided, loaded);
}

TEST_F(Counts, ADriverThatShowsWhatWasReleasedForAWhileIsCountedWithThatTime) {
  Build(6 * kGiB, true);
  Worker a = NewModel("a", 4), b = NewModel("b", 4);
  AttachAll({&a, &b});
  UseOnce(&a, "1", "m");
  Pass(absl::Seconds(10));
  Read({{a.pid, Bytes(4 * kGiB)}});
  Begin(b, "1", "m", 0, AtLeast(4));
  Report(&a);
  Read({{a.pid, Bytes(4 * kGiB)}});
  Pass(absl::Milliseconds(200));
  EXPECT_TRUE(Of(Count::What::kShownFree).empty());
  Read({{a.pid, Bytes(2 * kGiB)}});
  const std::vector<Count> shown = Of(Count::What::kShownFree);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].time, absl::Milliseconds(200));
}

}  // namespace
}  // namespace vrambroker::core
