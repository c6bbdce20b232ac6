#include "broker/sim/what_if.h"

#include <gmock/gmock.h>

#include "tests/unit/sim/published.h"

namespace vrambroker::sim {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Workload TwoParts(int64_t card_mib) {
  Workload w;
  w.name = "two";
  w.device = {card_mib * kMiB, 10 * kMiB, 100.0 * kMiB};
  w.components = {{"first", {{10, 10 * kMiB}}, 3 * kMiB, 2, 0},
                  {"second", {{1, 10 * kMiB}}, 0, 2, 0},
                  {"unused", {{10, 10 * kMiB}}, 0, 2, 0}};
  w.pipelines = {{"both", {{0, 1, 5 * kMiB}, {1, 1, 7 * kMiB}}}, {"other", {{2, 1, 900 * kMiB}}}};
  w.runs = {{0, 0}, {0, 0}, {0, 0}};
  return w;
}

TEST(WhatIf, TheLargestNeedIsOfWhatRuns) {
  const LargestNeed need = FindLargestNeed(TwoParts(100));
  EXPECT_EQ(need.pipeline, 0);
  EXPECT_EQ(need.stage, 0);
  EXPECT_EQ(need.component, 0);
  EXPECT_EQ(need.bytes(), 25 * kMiB);
  EXPECT_EQ(LeastCapacity(TwoParts(100)), (10 + 3 + 25) * kMiB);
}

TEST(WhatIf, TheLeastCardIsTheLeast) {
  EXPECT_FALSE(AskWhatIf(OnCard(TwoParts(1), LeastCapacity(TwoParts(1)) - 1), {})->fits);
  EXPECT_TRUE(AskWhatIf(OnCard(TwoParts(1), LeastCapacity(TwoParts(1))), {})->fits);
  for (const BoundRow& row : BoundRows()) {
    EXPECT_EQ(row.capacity >= LeastCapacity(Published(row.workload)), row.fits)
        << row.workload << " at " << row.capacity;
  }
}

TEST(WhatIf, RoundsUpToWhatTablesShow) {
  const std::pair<int64_t, int64_t> cases[] = {
      {0, 0},
      {1023, 1023},
      {1024, 1024},
      {1025, 1126},  // 1.1 KiB
      {kMiB - 1, kMiB},
      {kMiB + 1, kMiB + 104857},  // 1.1 MiB
      {int64_t{1} << 30, int64_t{1} << 30},
      {(int64_t{1} << 30) + 1, (int64_t{1} << 30) + 10737418},  // 1.01 GiB
      {(int64_t{3} << 30) / 2, (int64_t{3} << 30) / 2}};
  for (const auto& [bytes, shown] : cases) {
    EXPECT_EQ(RoundUpAsShown(bytes), shown);
    EXPECT_EQ(RoundUpAsShown(shown), shown);
  }
}

TEST(WhatIf, FindsWhatStaysAndTheCardThatLosesNothingMore) {
  Options options;
  options.load_ahead = false;
  const absl::StatusOr<WhatIf> what_if = AskWhatIf(TwoParts(90), options);
  ASSERT_TRUE(what_if.ok()) << what_if.status();
  EXPECT_TRUE(what_if->fits);
  ASSERT_EQ(what_if->components.size(), 3u);
  EXPECT_EQ(what_if->components[0].uses, 3);
  ASSERT_TRUE(what_if->components[0].kept.has_value());
  EXPECT_GE(what_if->components[0].kept->least, 4);
  EXPECT_LE(what_if->components[0].kept->most, 7);
  EXPECT_EQ(what_if->components[2].uses, 0);
  EXPECT_FALSE(what_if->components[2].kept.has_value());
  // The first load of both.
  EXPECT_NEAR(what_if->stall_at_best, 1.1, 1e-6);
  EXPECT_GT(what_if->result.stall_seconds, 1.2);
  // All of both, with the second's activation: 10 + 3 + 100 + 10 + 7 MiB, to 16 MiB.
  EXPECT_GE(what_if->capacity_at_best, 130 * kMiB);
  EXPECT_LE(what_if->capacity_at_best, 146 * kMiB);
}

}  // namespace
}  // namespace vrambroker::sim
