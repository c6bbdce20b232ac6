#include "broker/server/alarms.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/poll.h"

namespace vrambroker::server {
namespace {

TEST(Alarms, RingsOnceAtItsTimeAndAgainWhenSetAgain) {
  Clock clock;
  Alarms alarms(clock);
  std::atomic<int> rings{0};
  const size_t alarm = alarms.Add([&] { ++rings; });
  alarms.Start();
  const absl::Time due = clock.Now() + absl::Milliseconds(20);
  alarms.Set(alarm, due);
  ASSERT_TRUE(WaitFor([&] { return rings == 1; }));
  EXPECT_GE(clock.Now(), due);
  alarms.Set(alarm, absl::InfinitePast());
  EXPECT_TRUE(WaitFor([&] { return rings == 2; }));
}

TEST(Alarms, ATimeThatIsPutOffReplacesTheOneBefore) {
  Clock clock;
  Alarms alarms(clock);
  std::atomic<int> late{0}, other{0};
  const size_t first = alarms.Add([&] { ++late; });
  const size_t second = alarms.Add([&] { ++other; });
  alarms.Start();
  alarms.Set(first, clock.Now() + absl::Milliseconds(30));
  alarms.Set(first, absl::InfiniteFuture());
  alarms.Set(second, clock.Now() + absl::Milliseconds(60));
  ASSERT_TRUE(WaitFor([&] { return other == 1; }));
  EXPECT_EQ(late, 0);
}

TEST(Alarms, NoLaterThanOnlyBringsForward) {
  Clock clock;
  Alarms alarms(clock);
  std::atomic<int> rings{0};
  const size_t alarm = alarms.Add([&] { ++rings; });
  alarms.Start();
  alarms.Set(alarm, clock.Now() + absl::Hours(1));
  alarms.SetNoLaterThan(alarm, clock.Now() + absl::Milliseconds(5));
  alarms.SetNoLaterThan(alarm, clock.Now() + absl::Hours(2));
  EXPECT_TRUE(WaitFor([&] { return rings == 1; }));
}

TEST(Alarms, NothingRingsAfterStop) {
  Clock clock;
  Alarms alarms(clock);
  std::atomic<int> rings{0};
  const size_t alarm = alarms.Add([&] { ++rings; });
  alarms.Start();
  alarms.Stop();
  alarms.Set(alarm, absl::InfinitePast());
  EXPECT_EQ(rings, 0);
}

}  // namespace
}  // namespace vrambroker::server
