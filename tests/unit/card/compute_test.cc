#include "stage_workers/card/compute.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace vrambroker::card {
namespace {

TEST(Compute, SamplesOneLineOfEveryStride) {
  EXPECT_EQ(SampledLines(1), 1);
  EXPECT_EQ(SampledLines(kSampleStride), 1);
  EXPECT_EQ(SampledLines(kSampleStride + 1), 2);
  EXPECT_EQ(SampledLines(10 * kSampleStride), 10);
}

TEST(Compute, EveryByteOfALineChangesTheResult) {
  std::vector<char> line(kLineBytes, 3);
  std::vector<uint64_t> reference(16, 1);
  MixLine(line.data(), 5, absl::MakeSpan(reference));
  FinishLayer(absl::MakeSpan(reference));
  for (char& byte : line) {
    byte ^= 1;
    std::vector<uint64_t> lanes(16, 1);
    MixLine(line.data(), 5, absl::MakeSpan(lanes));
    FinishLayer(absl::MakeSpan(lanes));
    EXPECT_NE(lanes, reference);
    byte ^= 1;
  }
}

TEST(Compute, TheOrderOfLinesMatters) {
  const std::vector<char> a(kLineBytes, 1);
  const std::vector<char> b(kLineBytes, 2);
  std::vector<uint64_t> ab(8, 0);
  MixLine(a.data(), 0, absl::MakeSpan(ab));
  MixLine(b.data(), 1, absl::MakeSpan(ab));
  std::vector<uint64_t> ba(8, 0);
  MixLine(b.data(), 0, absl::MakeSpan(ba));
  MixLine(a.data(), 1, absl::MakeSpan(ba));
  EXPECT_NE(ab, ba);
}

TEST(Compute, RefusesActivationsThatAreNoWholeBlocks) {
  std::vector<uint64_t> lanes(12);
  EXPECT_EQ(CheckActivations(absl::MakeSpan(lanes)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckActivations({}).code(), absl::StatusCode::kInvalidArgument);
  lanes.resize(16);
  EXPECT_TRUE(CheckActivations(absl::MakeSpan(lanes)).ok());
}

}  // namespace
}  // namespace vrambroker::card
