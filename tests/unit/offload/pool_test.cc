#include "stage_workers/offload/pool.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

TEST(Pool, KeepsWhatIsFreedAndGivesItAgain) {
  Rig rig;
  const card::DeviceBuffer first = *rig.pool->Allocate(1000);
  EXPECT_TRUE(rig.pool->Free(first).ok());
  EXPECT_EQ(rig.pool->Stats().used_bytes, 0);
  EXPECT_EQ(rig.pool->Stats().pooled_bytes, 1000);
  EXPECT_EQ(rig.OnCard(), 1000);
  const card::DeviceBuffer second = *rig.pool->Allocate(900);
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(second.bytes, 900);
  // What the block has in excess is pooled, not used.
  EXPECT_EQ(rig.pool->Stats().used_bytes, 900);
  EXPECT_EQ(rig.pool->Stats().pooled_bytes, 100);
  EXPECT_TRUE(rig.pool->Free(second).ok());
  EXPECT_EQ(rig.pool->Trim(), 1000);
  EXPECT_EQ(rig.OnCard(), 0);
  EXPECT_EQ(rig.pool->Stats().peak_bytes, 1000);
  rig.pool->ResetPeak();
  EXPECT_EQ(rig.pool->Stats().peak_bytes, 0);
}

TEST(Pool, DoesNotWasteALargeBlockOnASmallNeed) {
  Rig rig;
  const card::DeviceBuffer large = *rig.pool->Allocate(1'000'000);
  EXPECT_TRUE(rig.pool->Free(large).ok());
  EXPECT_NE(rig.pool->Allocate(1000)->id, large.id);
  EXPECT_EQ(rig.OnCard(), 1'001'000);
}

TEST(Pool, TakesTheSmallestBlockThatFits) {
  Rig rig;
  const card::DeviceBuffer a = *rig.pool->Allocate(1100);
  const card::DeviceBuffer b = *rig.pool->Allocate(1050);
  EXPECT_TRUE(rig.pool->Free(a).ok());
  EXPECT_TRUE(rig.pool->Free(b).ok());
  EXPECT_EQ(rig.pool->Allocate(1000)->id, b.id);
}

TEST(Pool, TrimsAndTriesAgainWhenTheCardIsFull) {
  Rig rig(1'000'000);
  const card::DeviceBuffer buffer = *rig.pool->Allocate(800'000);
  EXPECT_TRUE(rig.pool->Free(buffer).ok());
  EXPECT_TRUE(rig.pool->Allocate(500'000).ok());
  EXPECT_EQ(rig.OnCard(), 500'000);
  EXPECT_EQ(rig.pool->Allocate(600'000).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Pool, WithoutCachingNothingIsPooled) {
  Rig rig(1 << 20, {.caching = false});
  const card::DeviceBuffer buffer = *rig.pool->Allocate(1000);
  EXPECT_TRUE(rig.pool->Free(buffer).ok());
  EXPECT_EQ(rig.OnCard(), 0);
  EXPECT_EQ(rig.pool->Stats().pooled_bytes, 0);
}

TEST(Pool, RefusesWhatItDidNotGive) {
  Rig rig;
  const card::DeviceBuffer buffer = *rig.pool->Allocate(1000);
  EXPECT_TRUE(rig.pool->Free(buffer).ok());
  EXPECT_EQ(rig.pool->Free(buffer).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.pool->Allocate(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.pool->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Pool, ItsFiguresAreWhatTheCardShows) {
  Rig rig(20'000'000);
  std::vector<card::DeviceBuffer> held;
  uint64_t random = 3;
  for (int step = 0; step < 3000; ++step) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const uint64_t choice = random >> 40;
    if (choice % 100 == 0) {
      rig.pool->Trim();
    } else if (choice % 2 == 0 && !held.empty()) {
      std::swap(held[choice % held.size()], held.back());
      ASSERT_TRUE(rig.pool->Free(held.back()).ok());
      held.pop_back();
    } else if (absl::StatusOr<card::DeviceBuffer> buffer =
                   rig.pool->Allocate(1 + choice % 1'000'000);
               buffer.ok()) {
      held.push_back(*buffer);
    }
    int64_t used = 0;
    for (const card::DeviceBuffer& buffer : held) used += buffer.bytes;
    const PoolStats stats = rig.pool->Stats();
    ASSERT_EQ(stats.used_bytes, used);
    ASSERT_EQ(stats.used_bytes + stats.pooled_bytes, rig.OnCard());
    ASSERT_GE(stats.peak_bytes, stats.used_bytes + stats.pooled_bytes);
  }
}

}  // namespace
}  // namespace vrambroker::offload
