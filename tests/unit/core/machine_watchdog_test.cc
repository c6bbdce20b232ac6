// Uses that wait long are named, with who holds what.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Watchdog : public MachineFixture {
 protected:
  std::vector<LongWait> NamedIn(const Effects& effects) {
    std::vector<LongWait> named;
    for (const Effect& effect : effects) {
      if (const auto* wait = std::get_if<LongWait>(&effect)) named.push_back(*wait);
    }
    return named;
  }
  bool IsLong() const { return machine_->GetPicture(now_).waiting.at(0).is_long; }
};

TEST_F(Watchdog, AWaitIsNamedOnceItIsLongAndEachTimeThatItHasDoubled) {
  config_.long_wait = absl::Seconds(10);
  Build(10 * kGiB);
  Worker holder = NewModel("holder", 8), waiter = NewModel("waiter", 8);
  AttachAll({&holder, &waiter});
  ASSERT_TRUE(Granted(Begin(holder, "1", "m", kGiB, AtLeast(8)), &holder, "m").has_value());
  Begin(waiter, "the-one", "m", 0, AtLeast(8));
  EXPECT_TRUE(NamedIn(Pass(absl::Seconds(9))).empty());
  EXPECT_FALSE(IsLong());
  const std::vector<LongWait> first = NamedIn(Pass(absl::Seconds(1)));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(IsLong());
  EXPECT_EQ(first[0].component, "waiter/m");
  EXPECT_EQ(first[0].device, "GPU-0");
  EXPECT_EQ(first[0].request_id, "the-one");
  EXPECT_EQ(first[0].waited, absl::Seconds(10));
  EXPECT_THAT(first[0].blocked_by, HasSubstr("uses that run"));
  EXPECT_THAT(first[0].holders, AllOf(HasSubstr("holder/m 9.00 GiB in use for 10s"),
                                      HasSubstr("free 1.00 GiB"), HasSubstr("external not known")));
  int named = 0;
  for (int second = 11; second < 80; ++second) {
    named += static_cast<int>(NamedIn(Pass(absl::Seconds(1))).size());
  }
  EXPECT_EQ(named, 2) << "at 20 s and at 40 s";
}

TEST_F(Watchdog, TheMachineAsksToBeWokenForIt) {
  config_.long_wait = absl::Seconds(7);
  Build(10 * kGiB);
  Worker holder = NewModel("holder", 8), waiter = NewModel("waiter", 8);
  AttachAll({&holder, &waiter});
  ASSERT_TRUE(Granted(Begin(holder, "1", "m", 0, AtLeast(8)), &holder, "m").has_value());
  Begin(waiter, "1", "m", 0, AtLeast(8));
  absl::Time wake = absl::InfinitePast();
  for (const Effect& effect : last_effects_) {
    if (const auto* asked = std::get_if<WakeAt>(&effect)) wake = asked->time;
  }
  EXPECT_LE(wake, now_ + absl::Seconds(7));
  End(&holder, "1", "m");
  Report(&holder);
  EXPECT_TRUE(NamedIn(Pass(absl::Seconds(60))).empty()) << "it waits no more";
}

TEST_F(Watchdog, ManyHoldersAreAddedUp) {
  config_.long_wait = absl::Seconds(1);
  Build(32 * kGiB);
  std::vector<Worker> holders;
  for (int i = 0; i < 12; ++i) holders.push_back(NewModel(absl::StrCat("h", i), 2));
  for (Worker& w : holders) {
    Attach(&w);
    ASSERT_TRUE(Granted(Begin(w, "1", "m", 0, AtLeast(2)), &w, "m").has_value());
  }
  Worker waiter = NewModel("waiter", 16);
  Attach(&waiter);
  Begin(waiter, "1", "m", 0, AtLeast(16));
  const std::vector<LongWait> named = NamedIn(Pass(absl::Seconds(1)));
  ASSERT_EQ(named.size(), 1u);
  EXPECT_THAT(named[0].holders, HasSubstr("4 more 8.00 GiB"));
}

}  // namespace
}  // namespace vrambroker::core
