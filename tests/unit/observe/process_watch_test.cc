#include "broker/observe/process_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/poll.h"
#include "tests/unit/observe/child.h"

namespace vrambroker::observe {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<ProcessWatch> StartWatch(size_t max_watches = ProcessWatch::kMaxWatches) {
  auto watch = ProcessWatch::Start(max_watches);
  EXPECT_TRUE(watch.ok()) << watch.status();
  return *std::move(watch);
}

uint64_t StartTimeOf(int32_t pid) {
  const auto ticks = ProcessStartTime(pid);
  EXPECT_TRUE(ticks.ok()) << ticks.status();
  return ticks.value_or(0);
}

// By then every death that the watch knew of when this was called has been called back.
void Settle(ProcessWatch& watch) {
  Child fence;
  std::atomic<int> calls{0};
  ASSERT_TRUE(watch.Watch(fence.pid(), 0, [&] { ++calls; }).ok());
  fence.Kill();
  ASSERT_TRUE(WaitFor([&] { return calls == 1; }));
}

TEST(ProcessStartTime, NamesAProcess) {
  Child child;
  EXPECT_GT(StartTimeOf(child.pid()), 0u);
  EXPECT_EQ(StartTimeOf(child.pid()), StartTimeOf(child.pid()));
  EXPECT_GE(StartTimeOf(child.pid()), StartTimeOf(getpid()));
}

TEST(ProcessStartTime, IsThatOfAZombieAndGoesWithIt) {
  Child child;
  const uint64_t alive = StartTimeOf(child.pid());
  child.Kill();
  EXPECT_EQ(StartTimeOf(child.pid()), alive);
  child.Reap();
  EXPECT_TRUE(absl::IsNotFound(ProcessStartTime(child.pid()).status()));
  EXPECT_TRUE(absl::IsNotFound(ProcessStartTime(0).status()));
}

TEST(ProcessStartTime, ReadsPastANameWithParenthesesAndBlanks) {
  Child child([] {
    FILE* name = std::fopen("/proc/self/comm", "w");
    return name != nullptr && std::fputs(") S 1 (x) ", name) >= 0 && std::fclose(name) == 0;
  });
  ASSERT_TRUE(child.worked());
  EXPECT_GE(StartTimeOf(child.pid()), StartTimeOf(getpid()));
}

TEST(Pidfd, KnowsItsPidAndItsEnd) {
  Child child;
  auto pidfd = OpenPidfd(child.pid());
  ASSERT_TRUE(pidfd.ok()) << pidfd.status();
  EXPECT_EQ(PidOfPidfd(pidfd->get()).value(), child.pid());
  EXPECT_FALSE(HasDied(pidfd->get()));
  child.Kill();
  EXPECT_TRUE(WaitFor([&] { return HasDied(pidfd->get()); }));
  child.Reap();
  EXPECT_EQ(PidOfPidfd(pidfd->get()).value(), -1);
  EXPECT_TRUE(absl::IsNotFound(OpenPidfd(child.pid()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenPidfd(0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PidOfPidfd(0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PidOfPidfd(-1).status()));
}

TEST(ProcessWatch, CallsBackOnceAtTheDeathAndNotBefore) {
  auto watch = StartWatch();
  Child child;
  std::atomic<int> calls{0};
  auto id = watch->Watch(child.pid(), StartTimeOf(child.pid()), [&] { ++calls; });
  ASSERT_TRUE(id.ok()) << id.status();
  child.Stop();  // Is no death.
  Settle(*watch);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(watch->Size(), 1u);
  child.Kill();
  EXPECT_TRUE(WaitFor([&] { return calls == 1; }));
  child.Reap();
  Settle(*watch);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(watch->Size(), 0u);
  EXPECT_FALSE(watch->Cancel(*id));
}

TEST(ProcessWatch, ADeadProcessIsCalledBackFromTheThreadOfTheWatch) {
  auto watch = StartWatch();
  Child child;
  const uint64_t ticks = StartTimeOf(child.pid());
  child.Kill();
  child.Reap();
  std::atomic<std::thread::id> caller{};
  ASSERT_TRUE(watch->Watch(child.pid(), ticks, [&] { caller = std::this_thread::get_id(); }).ok());
  EXPECT_TRUE(WaitFor([&] { return caller.load() != std::thread::id(); }));
  EXPECT_NE(caller.load(), std::this_thread::get_id());
}

TEST(ProcessWatch, AZombieIsDead) {
  auto watch = StartWatch();
  Child child;
  child.Kill();
  std::atomic<int> calls{0};
  ASSERT_TRUE(watch->Watch(child.pid(), StartTimeOf(child.pid()), [&] { ++calls; }).ok());
  EXPECT_TRUE(WaitFor([&] { return calls == 1; }));
}

TEST(ProcessWatch, AnotherProcessOfThePidProvesTheDeathOfTheFirst) {
  auto watch = StartWatch();
  Child other;
  std::atomic<int> calls{0};
  ASSERT_TRUE(watch->Watch(other.pid(), StartTimeOf(other.pid()) + 1, [&] { ++calls; }).ok());
  EXPECT_TRUE(WaitFor([&] { return calls == 1; }));
  Settle(*watch);
  EXPECT_EQ(calls, 1);
}

TEST(ProcessWatch, TakesAPidfd) {
  auto watch = StartWatch();
  Child child;
  auto pidfd = OpenPidfd(child.pid());
  ASSERT_TRUE(pidfd.ok()) << pidfd.status();
  std::atomic<int> calls{0};
  ASSERT_TRUE(watch->WatchPidfd(*std::move(pidfd), [&] { ++calls; }).ok());
  child.Kill();
  EXPECT_TRUE(WaitFor([&] { return calls == 1; }));
  UniqueFd no_pidfd(dup(0));
  EXPECT_TRUE(absl::IsInvalidArgument(watch->WatchPidfd(std::move(no_pidfd), [] {}).status()));
}

TEST(ProcessWatch, ACancelledWatchIsSilent) {
  auto watch = StartWatch();
  Child child;
  std::atomic<int> calls{0};
  auto id = watch->Watch(child.pid(), 0, [&] { ++calls; });
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_TRUE(watch->Cancel(*id));
  EXPECT_FALSE(watch->Cancel(*id));
  EXPECT_EQ(watch->Size(), 0u);
  child.Kill();
  Settle(*watch);
  EXPECT_EQ(calls, 0);
}

TEST(ProcessWatch, SaysNoPastItsBoundAndTakesMoreWhenOneGoes) {
  auto watch = StartWatch(2);
  Child child;
  auto first = watch->Watch(child.pid(), 0, [] {});
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(watch->Watch(child.pid(), 0, [] {}).ok());
  const auto third = watch->Watch(child.pid(), 0, [] {});
  EXPECT_TRUE(absl::IsResourceExhausted(third.status()));
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("at most 2"));
  EXPECT_TRUE(watch->Cancel(*first));
  EXPECT_TRUE(watch->Watch(child.pid(), 0, [] {}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ProcessWatch::Start(0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ProcessWatch::Start(4097).status()));
}

TEST(ProcessWatch, ACallbackMayWatchAndCancel) {
  auto watch = StartWatch();
  Child first;
  Child second;
  std::atomic<int> calls{0};
  ASSERT_TRUE(watch
                  ->Watch(first.pid(), 0,
                          [&] {
                            auto id = watch->Watch(second.pid(), 0, [&] { ++calls; });
                            if (id.ok() && watch->Cancel(*id)) ++calls;
                            if (watch->Watch(second.pid(), 0, [&] { ++calls; }).ok()) ++calls;
                          })
                  .ok());
  first.Kill();
  EXPECT_TRUE(WaitFor([&] { return calls == 2; }));
  second.Kill();
  EXPECT_TRUE(WaitFor([&] { return calls == 3; }));
}

TEST(ProcessWatch, ManyDeathsAtOnceAreEachCalledBackOnce) {
  auto watch = StartWatch();
  constexpr int kChildren = 100;
  std::vector<std::unique_ptr<Child>> children;
  std::vector<std::atomic<int>> calls(kChildren);
  for (int i = 0; i < kChildren; ++i) {
    children.push_back(std::make_unique<Child>());
    ASSERT_TRUE(watch->Watch(children[i]->pid(), 0, [&calls, i] { ++calls[i]; }).ok());
  }
  for (auto& child : children) child->Kill();
  EXPECT_TRUE(WaitFor([&] { return watch->Size() == 0; }));
  Settle(*watch);
  for (const auto& count : calls) EXPECT_EQ(count, 1);
}

TEST(ProcessWatch, EndsWithWatchesLeft) {
  Child child;
  std::atomic<int> calls{0};
  {
    auto watch = StartWatch();
    ASSERT_TRUE(watch->Watch(child.pid(), 0, [&] { ++calls; }).ok());
  }
  child.Kill();
  child.Reap();
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace vrambroker::observe
