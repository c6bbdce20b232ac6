// The emulated card between processes: memory of the dead, a lock whose holder died, one link.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "stage_workers/card/compute.h"
#include "stage_workers/card/process_alive.h"
#include "tests/unit/card/card_test_util.h"

namespace vrambroker::card {
namespace {

constexpr int64_t kMiB = 1 << 20;

Usage Read(Card& card) {
  absl::StatusOr<Usage> usage = card.ReadUsage();
  EXPECT_TRUE(usage.ok()) << usage.status();
  return usage.value_or(Usage{});
}

TEST(ProcessAlive, KnowsTheLivingTheDeadAndTheUnreaped) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, kMiB);
  EXPECT_GT(ProcessStartTicks(getpid()), 0u);
  Child child({name.get(), "hold", "1"});
  ASSERT_EQ(child.ReadLine(), "ready");
  EXPECT_GE(ProcessStartTicks(child.pid()), ProcessStartTicks(getpid()));
  child.Kill();
  // Ended but not reaped counts as dead.
  EXPECT_TRUE(Eventually([&] { return ProcessStartTicks(child.pid()) == 0; }));
  child.Reap();
  EXPECT_EQ(ProcessStartTicks(child.pid()), 0u);
}

TEST(EmulatedProcesses, SeeEachOthersMemory) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB);
  Child child({name.get(), "hold", std::to_string(6 * kMiB), std::to_string(kMiB)});
  ASSERT_EQ(child.ReadLine(), "ready");
  Usage usage = Read(*card);
  EXPECT_EQ(usage.by_pid[child.pid()], 7 * kMiB);
  EXPECT_EQ(usage.total_used, 7 * kMiB);
  EXPECT_EQ(card->Allocate(4 * kMiB).status().code(), absl::StatusCode::kResourceExhausted);
  child.SendLine();
  EXPECT_TRUE(Eventually([&] { return Read(*card).total_used == 0; }));
  EXPECT_TRUE(card->Allocate(10 * kMiB).ok());
}

TEST(EmulatedProcesses, ACardIsUnusedOnceNobodyHasItOpenHoweverTheyEnded) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, kMiB);
  EXPECT_FALSE(EmulatedCard::RemoveUnused(name.get()));
  Child child({name.get(), "hold", "1"});
  ASSERT_EQ(child.ReadLine(), "ready");
  card.reset();
  EXPECT_FALSE(EmulatedCard::RemoveUnused(name.get()));
  child.Kill();
  EXPECT_TRUE(Eventually([&] { return EmulatedCard::RemoveUnused(name.get()); }));
  EXPECT_EQ(EmulatedCard::Open(name.get()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(EmulatedCard::RemoveUnused(name.get()));
}

TEST(EmulatedProcesses, MemoryOfAKilledProcessComesBackToWhoeverAllocatesNext) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB);
  Child child({name.get(), "hold", std::to_string(8 * kMiB)});
  ASSERT_EQ(child.ReadLine(), "ready");
  child.Kill();
  ASSERT_TRUE(Eventually([&] { return ProcessStartTicks(child.pid()) == 0; }));
  absl::StatusOr<DeviceBuffer> buffer = card->Allocate(10 * kMiB);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(Read(*card).by_pid.count(child.pid()), 0u);
}

TEST(EmulatedProcesses, MemoryOfTheDeadComesBackLaterByTheLag) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB, 0, absl::Seconds(1));
  Child child({name.get(), "hold", std::to_string(8 * kMiB)});
  ASSERT_EQ(child.ReadLine(), "ready");
  child.Kill();
  ASSERT_TRUE(Eventually([&] { return ProcessStartTicks(child.pid()) == 0; }));
  const absl::Time noticed = absl::Now();
  EXPECT_EQ(Read(*card).by_pid[child.pid()], 8 * kMiB);
  EXPECT_FALSE(card->Allocate(10 * kMiB).ok());
  EXPECT_TRUE(Eventually([&] { return card->Allocate(10 * kMiB).ok(); }));
  EXPECT_GE(absl::Now() - noticed, absl::Seconds(1));
  EXPECT_EQ(Read(*card).total_used, 10 * kMiB);
}

// Kills a process that does nothing but allocate and free, at whatever point it is, lock held or
// not.
TEST(EmulatedProcesses, SurviveADeathAtAnyPoint) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 8 * kMiB);
  for (int round = 0; round < 60; ++round) {
    const DeviceBuffer mine = *card->Allocate(kMiB);
    Child child({name.get(), "churn"});
    ASSERT_EQ(child.ReadLine(), "ready");
    const int64_t begin = MonotonicNanos();
    while (MonotonicNanos() - begin < 1'000'000 + round * 37'000) {
    }
    child.Kill();
    child.Reap();
    ASSERT_EQ(Read(*card).total_used, kMiB) << "round " << round;
    absl::StatusOr<DeviceBuffer> rest = card->Allocate(7 * kMiB);
    ASSERT_TRUE(rest.ok()) << "round " << round << ": " << rest.status();
    EXPECT_FALSE(card->Allocate(1).ok());
    ASSERT_TRUE(card->Free(*rest).ok());
    ASSERT_TRUE(card->Free(mine).ok());
  }
}

TEST(EmulatedProcesses, AReaderDoesNotWaitForEverForAStoppedProcess) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 8 * kMiB);
  Child child({name.get(), "churn"});
  ASSERT_EQ(child.ReadLine(), "ready");
  // Stopped with the lock or without: either way a reader gets an answer.
  for (int round = 0; round < 5; ++round) {
    kill(child.pid(), SIGSTOP);
    absl::StatusOr<Usage> usage = card->ReadUsage();
    if (!usage.ok()) {
      EXPECT_EQ(usage.status().code(), absl::StatusCode::kUnavailable);
    }
    kill(child.pid(), SIGCONT);
  }
  EXPECT_TRUE(card->ReadUsage().ok());
}

TEST(EmulatedProcesses, ShareOneLink) {
  constexpr double kRate = 400e6;
  constexpr int64_t kBytes = 80 * kMiB;
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 32 * kMiB, kRate);
  Child a({name.get(), "copy", std::to_string(kBytes)});
  Child b({name.get(), "copy", std::to_string(kBytes)});
  ASSERT_EQ(a.ReadLine(), "ready");
  ASSERT_EQ(b.ReadLine(), "ready");
  a.SendLine();
  b.SendLine();
  long long a_begin, a_end, b_begin, b_end;
  ASSERT_EQ(std::sscanf(a.ReadLine().c_str(), "%lld %lld", &a_begin, &a_end), 2);
  ASSERT_EQ(std::sscanf(b.ReadLine().c_str(), "%lld %lld", &b_begin, &b_end), 2);
  const double seconds = (std::max(a_end, b_end) - std::min(a_begin, b_begin)) * 1e-9;
  // Together never above the link's rate.
  EXPECT_GE(seconds, 2 * kBytes / kRate * 0.999);
  RecordProperty("ratio_to_link", std::to_string(2 * kBytes / kRate / seconds));
}

}  // namespace
}  // namespace vrambroker::card
