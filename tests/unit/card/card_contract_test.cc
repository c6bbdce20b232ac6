// What every card does. Runs on the emulated card always, on a CUDA card where one answers.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/card/card.h"
#include "stage_workers/card/compute.h"
#include "stage_workers/card/cuda_card.h"
#include "tests/unit/card/card_test_util.h"

namespace vrambroker::card {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

std::vector<std::string> KindsOfCards() {
  std::vector<std::string> kinds = {"emulated"};
  if (absl::StatusOr<std::vector<std::string>> cards = ListCudaCards(); cards.ok()) {
    if (!cards->empty()) kinds.push_back("cuda");
  }
  return kinds;
}

class CardContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "emulated") {
      card_ = MakeCard(name_, 64 * kMiB);
    } else {
      card_ = *OpenCudaCard(ListCudaCards()->front());
    }
  }

  DeviceBuffer Allocate(int64_t bytes) {
    absl::StatusOr<DeviceBuffer> buffer = card_->Allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.value_or(DeviceBuffer{});
  }
  void Upload(DeviceBuffer buffer, const std::vector<char>& bytes,
              const CopyOptions& options = {}) {
    const HostPiece piece = {.source = bytes.data(), .bytes = static_cast<int64_t>(bytes.size())};
    absl::StatusOr<Event> event = card_->CopyToDevice(buffer, {&piece, 1}, options);
    ASSERT_TRUE(event.ok()) << event.status();
    EXPECT_TRUE((*event)->Wait().ok());
    EXPECT_TRUE((*event)->Done());
  }
  std::vector<uint64_t> Compute(DeviceBuffer buffer, std::vector<uint64_t> lanes) {
    EXPECT_TRUE(card_->ComputeLayer(buffer, absl::MakeSpan(lanes), absl::ZeroDuration()).ok());
    return lanes;
  }

  TestCardName name_;
  std::unique_ptr<Card> card_;
};

std::vector<char> Pattern(int64_t bytes, int seed) {
  std::vector<char> pattern(bytes);
  for (int64_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>(i * 31 + (i >> 9) + seed);
  return pattern;
}

TEST_P(CardContract, CopiesThereAndBackExactly) {
  for (const int64_t bytes : {int64_t{1}, int64_t{63}, int64_t{65'536}, 3 * kMiB + 17}) {
    const DeviceBuffer buffer = Allocate(bytes);
    const std::vector<char> sent = Pattern(bytes, 1);
    Upload(buffer, sent);
    std::vector<char> received(bytes);
    ASSERT_TRUE(card_->CopyToHost(received.data(), buffer, 0, bytes).ok());
    EXPECT_EQ(sent, received);
    EXPECT_TRUE(card_->Free(buffer).ok());
  }
}

TEST_P(CardContract, GathersPiecesAndWritesZerosWithoutASource) {
  const DeviceBuffer buffer = Allocate(300'000);
  Upload(buffer, std::vector<char>(300'000, 9));
  const std::vector<char> a = Pattern(100'000, 2);
  const std::vector<HostPiece> pieces = {
      {.source = a.data(), .bytes = 100'000, .device_offset = 65'000},
      {.source = nullptr, .bytes = 50, .device_offset = 165'000},
      {.source = a.data(), .bytes = 0, .device_offset = 300'000}};
  absl::StatusOr<Event> event = card_->CopyToDevice(buffer, pieces, {});
  ASSERT_TRUE(event.ok()) << event.status();
  ASSERT_TRUE((*event)->Wait().ok());
  std::vector<char> received(300'000);
  ASSERT_TRUE(card_->CopyToHost(received.data(), buffer, 0, 300'000).ok());
  std::vector<char> expected(300'000, 9);
  std::copy(a.begin(), a.end(), expected.begin() + 65'000);
  std::fill_n(expected.begin() + 165'000, 50, 0);
  EXPECT_EQ(received, expected);
}

TEST_P(CardContract, RunsOutOfMemoryNamingTheFigures) {
  const int64_t asked = card_->CapacityBytes() + 1;
  const absl::Status status = card_->Allocate(asked).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(asked)));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(card_->CapacityBytes())));
  EXPECT_TRUE(card_->Allocate(kMiB).ok());
}

TEST_P(CardContract, RefusesWhatMakesNoSense) {
  EXPECT_EQ(card_->Allocate(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(card_->Allocate(-5).status().code(), absl::StatusCode::kInvalidArgument);
  const DeviceBuffer buffer = Allocate(100);
  char byte = 0;
  const HostPiece outside = {.source = &byte, .bytes = 1, .device_offset = 100};
  EXPECT_EQ(card_->CopyToDevice(buffer, {&outside, 1}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const HostPiece negative = {.source = &byte, .bytes = 1, .device_offset = -1};
  EXPECT_EQ(card_->CopyToDevice(buffer, {&negative, 1}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(card_->CopyToHost(&byte, buffer, 99, 2).code(), absl::StatusCode::kInvalidArgument);
  const HostPiece good = {.source = &byte, .bytes = 1};
  EXPECT_EQ(card_->CopyToDevice(buffer, {&good, 1}, {.pace_bytes_per_second = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<uint64_t> lanes(9);
  EXPECT_EQ(card_->ComputeLayer(buffer, absl::MakeSpan(lanes), absl::ZeroDuration()).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(CardContract, ABufferThatIsFreedIsUnknown) {
  const DeviceBuffer buffer = Allocate(kMiB);
  EXPECT_TRUE(card_->Free(buffer).ok());
  EXPECT_EQ(card_->Free(buffer).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(card_->CopyToDevice(buffer, {}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<uint64_t> lanes(8);
  EXPECT_EQ(card_->ComputeLayer(buffer, absl::MakeSpan(lanes), absl::ZeroDuration()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(card_->Free(DeviceBuffer{}).code(), absl::StatusCode::kInvalidArgument);
}

// The same arithmetic on the host: what any card must compute.
std::vector<uint64_t> Reference(const std::vector<char>& weights, std::vector<uint64_t> lanes) {
  const int64_t bytes = weights.size();
  for (int64_t i = 0; i < SampledLines(bytes); ++i) {
    char line[kLineBytes] = {};
    const int64_t at = i * kSampleStride;
    std::copy_n(weights.data() + at, std::min(kLineBytes, bytes - at), line);
    MixLine(line, i, absl::MakeSpan(lanes));
  }
  FinishLayer(absl::MakeSpan(lanes));
  return lanes;
}

TEST_P(CardContract, ComputesTheSameWhereverTheLayerLies) {
  const std::vector<uint64_t> lanes(256, 42);
  for (const int64_t bytes : {int64_t{10}, kSampleStride + 10, kMiB, kMiB + 20}) {
    const std::vector<char> weights = Pattern(bytes, 3);
    const DeviceBuffer first = Allocate(bytes);
    const DeviceBuffer second = Allocate(bytes);
    Upload(first, weights);
    Upload(second, weights);
    EXPECT_EQ(Compute(first, lanes), Reference(weights, lanes));
    EXPECT_EQ(Compute(second, lanes), Reference(weights, lanes));
    EXPECT_TRUE(card_->Free(first).ok());
    EXPECT_TRUE(card_->Free(second).ok());
  }
}

TEST_P(CardContract, TheOrderOfLayersMatters) {
  const DeviceBuffer a = Allocate(kMiB);
  const DeviceBuffer b = Allocate(kMiB);
  Upload(a, Pattern(kMiB, 1));
  Upload(b, Pattern(kMiB, 2));
  const std::vector<uint64_t> lanes(64, 0);
  EXPECT_NE(Compute(b, Compute(a, lanes)), Compute(a, Compute(b, lanes)));
}

TEST_P(CardContract, ComputingTakesItsTime) {
  const DeviceBuffer buffer = Allocate(100);
  std::vector<uint64_t> lanes(8);
  const int64_t begin = MonotonicNanos();
  ASSERT_TRUE(card_->ComputeLayer(buffer, absl::MakeSpan(lanes), absl::Milliseconds(20)).ok());
  EXPECT_GE(MonotonicNanos() - begin, 20'000'000);
}

TEST_P(CardContract, ShowsWhatIsInUse) {
  const DeviceBuffer buffer = Allocate(8 * kMiB);
  absl::StatusOr<Usage> usage = card_->ReadUsage();
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_GE(usage->total_used, 8 * kMiB);
  EXPECT_LE(usage->total_used, usage->capacity);
  if (usage->pids_known) {
    EXPECT_EQ(usage->by_pid[getpid()], 8 * kMiB);
  }
  EXPECT_TRUE(card_->Free(buffer).ok());
}

TEST_P(CardContract, HurryingLiftsThePace) {
  const DeviceBuffer buffer = Allocate(16 * kMiB);
  const std::vector<char> weights = Pattern(16 * kMiB, 5);
  const HostPiece piece = {.source = weights.data(), .bytes = 16 * kMiB};
  // At this pace it would take more than a quarter of an hour.
  absl::StatusOr<Event> event =
      card_->CopyToDevice(buffer, {&piece, 1}, {.pace_bytes_per_second = 16'000});
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE((*event)->Done());
  const int64_t begin = MonotonicNanos();
  (*event)->Hurry();
  EXPECT_TRUE((*event)->Wait().ok());
  EXPECT_LT(MonotonicNanos() - begin, int64_t{10'000'000'000});
  std::vector<char> received(16 * kMiB);
  ASSERT_TRUE(card_->CopyToHost(received.data(), buffer, 0, 16 * kMiB).ok());
  EXPECT_EQ(received, weights);
}

TEST_P(CardContract, FreeingABufferWaitsForItsCopies) {
  const std::vector<char> weights = Pattern(4 * kMiB, 6);
  const HostPiece piece = {.source = weights.data(), .bytes = 4 * kMiB};
  const DeviceBuffer buffer = Allocate(4 * kMiB);
  std::vector<Event> events;
  for (int i = 0; i < 5; ++i) events.push_back(*card_->CopyToDevice(buffer, {&piece, 1}, {}));
  EXPECT_TRUE(card_->Free(buffer).ok());
  for (const Event& event : events) EXPECT_TRUE(event->Done());
}

INSTANTIATE_TEST_SUITE_P(Cards, CardContract, testing::ValuesIn(KindsOfCards()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace vrambroker::card
