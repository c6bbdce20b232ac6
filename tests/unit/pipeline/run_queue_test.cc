#include "stage_workers/pipeline/run_queue.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace vrambroker::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

absl::Duration At(int seconds) { return absl::Seconds(seconds); }

TEST(RunQueue, StartsInOrderOfArrivalThenOfTheWorkload) {
  RunQueue queue({At(5), At(0), At(5), At(0)}, 4);
  EXPECT_THAT(queue.TakeArrivals(At(0)), ElementsAre(1, 3));
  EXPECT_EQ(queue.Start(At(0)), 1);
  EXPECT_EQ(queue.Start(At(0)), 3);
  EXPECT_EQ(queue.Start(At(4)), std::nullopt);
  EXPECT_EQ(queue.NextArrival(), At(5));
  EXPECT_THAT(queue.TakeArrivals(At(5)), ElementsAre(0, 2));
  EXPECT_EQ(queue.Start(At(5)), 0);
  EXPECT_EQ(queue.Start(At(5)), 2);
  EXPECT_TRUE(queue.AllStarted());
  EXPECT_FALSE(queue.Done());
  EXPECT_EQ(queue.NextArrival(), absl::InfiniteDuration());
  for (int i = 0; i < 4; ++i) queue.Finish();
  EXPECT_TRUE(queue.Done());
}

TEST(RunQueue, NoMoreThanAllowedAreUnderWay) {
  RunQueue queue({At(0), At(0), At(0)}, 2);
  EXPECT_TRUE(queue.Start(At(0)).has_value());
  EXPECT_TRUE(queue.Start(At(0)).has_value());
  EXPECT_FALSE(queue.Start(At(9)).has_value());
  queue.Finish();
  EXPECT_EQ(queue.Start(At(9)), 2);
}

TEST(RunQueue, ArrivalsAreReturnedOnceAndNotBeforeTheirTime) {
  RunQueue queue({At(1), At(2)}, 1);
  EXPECT_THAT(queue.TakeArrivals(At(0)), IsEmpty());
  EXPECT_THAT(queue.TakeArrivals(At(1)), ElementsAre(0));
  EXPECT_THAT(queue.TakeArrivals(At(1)), IsEmpty());
  EXPECT_THAT(queue.TakeArrivals(At(9)), ElementsAre(1));
  EXPECT_THAT(queue.TakeArrivals(absl::InfiniteDuration()), IsEmpty());
}

TEST(RunQueue, WhatFollowsTheFirstPartWaitsForItsEnd) {
  RunQueue queue({At(0), At(0), At(0), At(0)}, 2, /*first_part=*/1);
  EXPECT_EQ(queue.Start(At(0)), 0);
  EXPECT_TRUE(queue.AtFirstPart());
  EXPECT_FALSE(queue.Start(At(0)).has_value());
  queue.Finish();
  EXPECT_EQ(queue.Start(At(0)), 1);
  EXPECT_FALSE(queue.AtFirstPart());
  EXPECT_EQ(queue.Start(At(0)), 2);
}

TEST(RunQueue, NoRunsAreDoneAtOnce) {
  RunQueue queue({}, 3);
  EXPECT_TRUE(queue.Done());
  EXPECT_FALSE(queue.Start(absl::InfiniteDuration()).has_value());
}

// A driver under virtual time: every run starts once, none before it has arrived or past the bound,
// and none waits while it could run.
TEST(RunQueue, RandomWorkloadsRunToTheirEnd) {
  std::mt19937 random(20260);
  for (int round = 0; round < 200; ++round) {
    const int count = static_cast<int>(random() % 30);
    const int bound = 1 + static_cast<int>(random() % 4);
    std::vector<absl::Duration> arrivals;
    for (int i = 0; i < count; ++i) arrivals.push_back(At(static_cast<int>(random() % 50)));
    RunQueue queue(arrivals, bound, static_cast<int>(random() % 3));
    std::multimap<absl::Duration, int> under_way;
    std::vector<absl::Duration> started(count, -At(1));
    absl::Duration now;
    while (!queue.Done()) {
      (void)queue.TakeArrivals(now);
      while (const std::optional<int> run = queue.Start(now)) {
        ASSERT_LT(started[*run], absl::ZeroDuration()) << "started twice";
        ASSERT_GE(now, arrivals[*run]);
        started[*run] = now;
        under_way.emplace(now + At(1 + static_cast<int>(random() % 9)), *run);
        ASSERT_LE(static_cast<int>(under_way.size()), bound);
      }
      const absl::Duration next_end =
          under_way.empty() ? absl::InfiniteDuration() : under_way.begin()->first;
      const absl::Duration next = std::min(next_end, queue.NextArrival());
      if (queue.Done()) break;
      ASSERT_LT(next, absl::InfiniteDuration()) << "stuck in round " << round;
      now = next;
      if (next == next_end) {
        under_way.erase(under_way.begin());
        queue.Finish();
      }
    }
    for (const absl::Duration start : started) EXPECT_GE(start, absl::ZeroDuration());
  }
}

}  // namespace
}  // namespace vrambroker::pipeline
