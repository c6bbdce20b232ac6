// What only the emulated card does, within one process.
#include "stage_workers/card/emulated_card.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/card/compute.h"
#include "tests/unit/card/card_test_util.h"

namespace vrambroker::card {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

int64_t UsedBy(Card& card, pid_t pid) {
  absl::StatusOr<Usage> usage = card.ReadUsage();
  EXPECT_TRUE(usage.ok()) << usage.status();
  return usage->by_pid[pid];
}

std::vector<uint64_t> ComputeWith(Card& card, DeviceBuffer buffer) {
  std::vector<uint64_t> lanes(16, 1);
  EXPECT_TRUE(card.ComputeLayer(buffer, absl::MakeSpan(lanes), absl::ZeroDuration()).ok());
  return lanes;
}

TEST(EmulatedCard, CreatingTwiceOpensTheSameCard) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> first = MakeCard(name, 10 * kMiB, 1e9);
  std::unique_ptr<EmulatedCard> second = MakeCard(name, 10 * kMiB);
  EXPECT_EQ(first->Uuid(), "emulated:" + name.get());
  EXPECT_EQ(EmulatedCard::NameOfUuid(first->Uuid()), name.get());
  EXPECT_EQ(EmulatedCard::NameOfUuid("GPU-1"), "");
  EXPECT_EQ(second->LinkBytesPerSecond(), 1e9);
  ASSERT_TRUE(first->Allocate(6 * kMiB).ok());
  EXPECT_EQ(second->Allocate(6 * kMiB).status().code(), absl::StatusCode::kResourceExhausted);
  // A buffer belongs to the object that allocated it.
  EXPECT_EQ(second->Free({.id = 1, .bytes = 6 * kMiB}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(EmulatedCard, ACopyTellsHowLongItHadTheLinkWithoutItsPlaceInTheQueue) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 32 * kMiB, 200.0 * kMiB);
  const std::vector<char> source(8 * kMiB, 'x');
  const HostPiece piece = {source.data(), 8 * kMiB, 0};
  const int64_t began = MonotonicNanos();
  std::vector<Event> copies;
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<DeviceBuffer> buffer = card->Allocate(8 * kMiB);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    const double pace = i == 2 ? 400.0 * kMiB : 0;
    absl::StatusOr<Event> copy =
        card->CopyToDevice(*buffer, {piece}, {.pace_bytes_per_second = pace});
    ASSERT_TRUE(copy.ok()) << copy.status();
    copies.push_back(*std::move(copy));
  }
  for (const Event& copy : copies) ASSERT_TRUE(copy->Wait().ok());
  const absl::Duration all = absl::Nanoseconds(MonotonicNanos() - began);
  const absl::Duration link = absl::Milliseconds(40);
  EXPECT_GE(copies[0]->Took(), 0.99 * link);
  EXPECT_GE(copies[1]->Took(), 0.99 * link);
  EXPECT_LE(copies[0]->Took() + copies[1]->Took(), all);
  EXPECT_EQ(copies[2]->Took(), absl::ZeroDuration()) << "paced";
}

TEST(EmulatedCard, AnotherSizeIsRefusedNamingBoth) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB);
  const absl::Status status =
      EmulatedCard::Create(name.get(), {.capacity_bytes = 11 * kMiB}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("10485760"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("11534336"));
}

TEST(EmulatedCard, RefusesOptionsOutOfRange) {
  TestCardName name;
  const auto code = [&](const std::string& n, EmulatedCardOptions options) {
    return EmulatedCard::Create(n, options).status().code();
  };
  EXPECT_EQ(code("", {.capacity_bytes = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("a/b", {.capacity_bytes = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(101, 'a'), {.capacity_bytes = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(name.get(), {.capacity_bytes = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(name.get(), {.capacity_bytes = int64_t{1} << 41}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(name.get(), {.capacity_bytes = 1, .h2d_bytes_per_second = -1}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(name.get(), {.capacity_bytes = 1, .usage_lag = -absl::Seconds(1)}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EmulatedCard::Open(name.get()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(EmulatedCard::Remove(name.get()).ok());
}

TEST(EmulatedCard, RefusesAFileThatIsNoCard) {
  TestCardName name;
  const std::string path = "/dev/shm/vram-card-" + name.get();
  FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("something else", file);
  std::fclose(file);
  EXPECT_EQ(EmulatedCard::Open(name.get()).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(truncate(path.c_str(), 100 * kMiB), 0);
  EXPECT_EQ(EmulatedCard::Open(name.get()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EmulatedCard, ALargeCardTakesNoRoomUntilItIsUsed) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, int64_t{141} << 30);
  absl::StatusOr<DeviceBuffer> buffer = card->Allocate(int64_t{100} << 30);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  struct stat info;
  ASSERT_EQ(stat(("/dev/shm/vram-card-" + name.get()).c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 64 * kMiB);
  EXPECT_TRUE(card->Free(*buffer).ok());
  ASSERT_EQ(stat(("/dev/shm/vram-card-" + name.get()).c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 64 * kMiB);
}

TEST(EmulatedCard, PrefaultingBacksTheWholeCard) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 8 * kMiB);
  card->Prefault();
  struct stat info;
  ASSERT_EQ(stat(("/dev/shm/vram-card-" + name.get()).c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 8 * kMiB);
  EXPECT_EQ(UsedBy(*card, getpid()), 0);
}

TEST(EmulatedCard, WhetherItFitsDependsOnBytesOnly) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 32 * kMiB);
  std::vector<DeviceBuffer> buffers;
  for (int i = 0; i < 1024; ++i) buffers.push_back(*card->Allocate(32 * kMiB / 1024));
  EXPECT_FALSE(card->Allocate(1).ok());
  for (size_t i = 0; i < buffers.size(); i += 2) EXPECT_TRUE(card->Free(buffers[i]).ok());
  absl::StatusOr<DeviceBuffer> half = card->Allocate(16 * kMiB);
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_FALSE(card->Allocate(1).ok());
  EXPECT_EQ(UsedBy(*card, getpid()), 32 * kMiB);
}

TEST(EmulatedCard, BooksExactBytesThroughRandomAllocations) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 20 * kMiB);
  std::mt19937 random(7);
  std::vector<DeviceBuffer> held;
  int64_t bytes = 0;
  for (int step = 0; step < 3000; ++step) {
    if (!held.empty() && random() % 2 == 0) {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_TRUE(card->Free(held.back()).ok());
      bytes -= held.back().bytes;
      held.pop_back();
    } else {
      const int64_t size = 1 + random() % (2 * kMiB);
      absl::StatusOr<DeviceBuffer> buffer = card->Allocate(size);
      ASSERT_EQ(buffer.ok(), bytes + size <= 20 * kMiB) << buffer.status();
      if (!buffer.ok()) continue;
      bytes += size;
      held.push_back(*buffer);
    }
    if (step % 100 == 0) {
      ASSERT_EQ(UsedBy(*card, getpid()), bytes);
    }
  }
}

TEST(EmulatedCard, RemembersTheHighestUse) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 20 * kMiB);
  const DeviceBuffer first = *card->Allocate(8 * kMiB);
  const DeviceBuffer second = *card->Allocate(4 * kMiB);
  ASSERT_TRUE(card->Free(first).ok());
  ASSERT_TRUE(card->Free(second).ok());
  ASSERT_TRUE(card->Allocate(kMiB).ok());
  EXPECT_EQ(card->ReadUsage()->peak_used, 12 * kMiB);
}

TEST(EmulatedCard, BlocksAreBounded) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 32 * kMiB);
  for (int i = 0; i < EmulatedCard::kMaxBlocks; ++i) ASSERT_TRUE(card->Allocate(1).ok()) << i;
  const absl::Status status = card->Allocate(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("8192 blocks"));
}

TEST(EmulatedCard, MemoryOfADestroyedObjectComesBack) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB);
  {
    std::unique_ptr<EmulatedCard> other = MakeCard(name, 10 * kMiB);
    ASSERT_TRUE(other->Allocate(10 * kMiB).ok());
    EXPECT_FALSE(card->Allocate(1).ok());
  }
  EXPECT_TRUE(card->Allocate(10 * kMiB).ok());
}

TEST(EmulatedCard, UseAfterReleaseShowsInTheResult) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB);
  const std::vector<char> weights(10 * kMiB, 17);
  const HostPiece piece = {.source = weights.data(), .bytes = 10 * kMiB};
  DeviceBuffer buffer = *card->Allocate(10 * kMiB);
  ASSERT_TRUE((*card->CopyToDevice(buffer, {&piece, 1}, {}))->Wait().ok());
  const std::vector<uint64_t> before = ComputeWith(*card, buffer);
  ASSERT_TRUE(card->Free(buffer).ok());
  // The whole card again: the same pages, without their contents.
  buffer = *card->Allocate(10 * kMiB);
  EXPECT_NE(ComputeWith(*card, buffer), before);
  std::vector<char> left(10 * kMiB);
  ASSERT_TRUE(card->CopyToHost(left.data(), buffer, 0, 10 * kMiB).ok());
  for (int64_t at = 0; at < 10 * kMiB; at += kSampleStride) {
    for (int64_t i = 0; i < kLineBytes; ++i) ASSERT_NE(left[at + i], 17) << at + i;
  }
}

TEST(EmulatedCard, CopiesKeepTheRateOfTheLink) {
  constexpr double kRate = 200e6;
  constexpr int64_t kBytes = 40'000'000;
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 64 * kMiB, kRate);
  const std::vector<char> weights(kBytes, 1);
  const HostPiece piece = {.source = weights.data(), .bytes = kBytes};
  const DeviceBuffer buffer = *card->Allocate(kBytes);
  int64_t begin = MonotonicNanos();
  ASSERT_TRUE((*card->CopyToDevice(buffer, {&piece, 1}, {}))->Wait().ok());
  const double seconds = (MonotonicNanos() - begin) * 1e-9;
  EXPECT_GE(seconds, kBytes / kRate * 0.999);
  RecordProperty("ratio_to_link", std::to_string(kBytes / kRate / seconds));
  // A pace below the link's rate holds too.
  const HostPiece part = {.source = weights.data(), .bytes = kBytes / 10};
  begin = MonotonicNanos();
  ASSERT_TRUE(
      (*card->CopyToDevice(buffer, {&part, 1}, {.pace_bytes_per_second = kRate / 4}))->Wait().ok());
  EXPECT_GE((MonotonicNanos() - begin) * 1e-9, kBytes / 10 / (kRate / 4) * 0.999);
}

TEST(EmulatedCard, ReadersSeeMemoryGoLaterByTheLag) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB, 0, absl::Seconds(1));
  const DeviceBuffer buffer = *card->Allocate(8 * kMiB);
  ASSERT_TRUE(card->Free(buffer).ok());
  EXPECT_EQ(UsedBy(*card, getpid()), 8 * kMiB);
  // It is really free all the same; what is allocated anew stands in for what was freed.
  absl::StatusOr<DeviceBuffer> again = card->Allocate(9 * kMiB);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(UsedBy(*card, getpid()), 9 * kMiB);
  ASSERT_TRUE(card->Free(*again).ok());
  const absl::Time freed = absl::Now();
  EXPECT_TRUE(Eventually([&] { return UsedBy(*card, getpid()) == 0; }));
  EXPECT_GE(absl::Now() - freed, absl::Milliseconds(900));
}

TEST(EmulatedCard, InjectsFaults) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, 10 * kMiB);
  card->SetFaults({.failing_allocations = 1, .allocations_before_failing = 1});
  EXPECT_TRUE(card->Allocate(1).ok());
  EXPECT_EQ(card->Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
  const DeviceBuffer buffer = *card->Allocate(1);
  card->SetFaults({.failing_copies = 1, .copies_before_failing = 1});
  char byte = 3;
  const HostPiece piece = {.source = &byte, .bytes = 1};
  EXPECT_TRUE((*card->CopyToDevice(buffer, {&piece, 1}, {}))->Wait().ok());
  absl::StatusOr<Event> failing = card->CopyToDevice(buffer, {&piece, 1}, {});
  ASSERT_TRUE(failing.ok());
  EXPECT_EQ((*failing)->Wait().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(card->CopyToHost(&byte, buffer, 0, 1).ok());
}

TEST(EmulatedCard, PinsMemoryOrRefuses) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> card = MakeCard(name, kMiB);
  void* memory = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  if (card->PinHost(memory, kMiB).ok()) {
    EXPECT_TRUE(card->UnpinHost(memory, kMiB).ok());
  }
  card->SetFaults({.refuse_pin = true});
  EXPECT_EQ(card->PinHost(memory, kMiB).code(), absl::StatusCode::kResourceExhausted);
  munmap(memory, kMiB);
}

}  // namespace
}  // namespace vrambroker::card
