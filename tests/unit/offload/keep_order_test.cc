#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/offload/layers.h"

namespace vrambroker::offload {
namespace {

using ::testing::ElementsAre;

const std::vector<BlockList> kLists = {{"visual", 36}, {"language", 27}, {"refiner", 3}};

void ExpectEveryLayerOnce(const KeepOrder& keep, int layers) {
  std::vector<int> sorted = keep.order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> all(layers);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
}

TEST(KeepOrder, ARatioTakesItsShareOfEachList) {
  absl::StatusOr<KeepOrder> keep =
      MakeKeepOrder(kLists, {.pattern = KeepPattern::kRatioPerList, .ratio = 0.8});
  ASSERT_TRUE(keep.ok());
  ExpectEveryLayerOnce(*keep, 66);
  EXPECT_EQ(keep->configured, 53);
  int of_list[3] = {};
  for (int i = 0; i < 53; ++i) {
    const int layer = keep->order[i];
    ++of_list[layer < 36 ? 0 : layer < 63 ? 1 : 2];
  }
  EXPECT_EQ(of_list[0], 29);
  EXPECT_EQ(of_list[1], 22);
  EXPECT_EQ(of_list[2], 2);
  EXPECT_TRUE(std::is_sorted(keep->order.begin(), keep->order.begin() + 53));
  EXPECT_TRUE(std::is_sorted(keep->order.begin() + 53, keep->order.end()));
}

TEST(KeepOrder, HalvesAreRoundedUp) {
  const std::vector<BlockList> five = {{"a", 5}};
  for (const auto& [ratio, kept] : std::vector<std::pair<double, int>>{
           {0.0, 0}, {0.09, 0}, {0.1, 1}, {0.5, 3}, {0.7, 4}, {0.89, 4}, {0.9, 5}, {1.0, 5}}) {
    absl::StatusOr<KeepOrder> keep =
        MakeKeepOrder(five, {.pattern = KeepPattern::kRatioPerList, .ratio = ratio});
    ASSERT_TRUE(keep.ok());
    EXPECT_EQ(keep->configured, kept) << ratio;
  }
}

TEST(KeepOrder, CountsAreLeadingOrSpread) {
  const std::vector<BlockList> lists = {{"a", 4}, {"b", 2}};
  EXPECT_THAT(MakeKeepOrder(lists, {.pattern = KeepPattern::kLeading, .count = 3})->order,
              ElementsAre(0, 1, 2, 3, 4, 5));
  absl::StatusOr<KeepOrder> strided =
      MakeKeepOrder(lists, {.pattern = KeepPattern::kStrided, .count = 2});
  EXPECT_EQ(strided->configured, 2);
  EXPECT_THAT(strided->order, ElementsAre(2, 5, 0, 1, 3, 4));
  EXPECT_EQ(MakeKeepOrder(lists, {})->configured, 6);
  EXPECT_EQ(MakeKeepOrder(lists, {.count = 0})->configured, 0);
  for (int count = 0; count <= 66; ++count) {
    absl::StatusOr<KeepOrder> keep =
        MakeKeepOrder(kLists, {.pattern = KeepPattern::kStrided, .count = count});
    EXPECT_EQ(keep->configured, count);
    ExpectEveryLayerOnce(*keep, 66);
  }
}

TEST(KeepOrder, RefusesWhatIsOutOfRange) {
  const auto code = [](KeepSpec spec) { return MakeKeepOrder(kLists, spec).status().code(); };
  EXPECT_EQ(code({.count = 67}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.count = -2}), absl::StatusCode::kInvalidArgument);
  for (const double ratio : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(code({.pattern = KeepPattern::kRatioPerList, .ratio = ratio}),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace vrambroker::offload
