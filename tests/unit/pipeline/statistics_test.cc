#include "stage_workers/pipeline/statistics.h"

#include "gtest/gtest.h"

namespace vrambroker::pipeline {
namespace {

TEST(Statistics, PercentilesAreByNearestRank) {
  const std::vector<double> five = {5, 1, 4, 2, 3};
  EXPECT_EQ(Percentile(five, 0), 1);
  EXPECT_EQ(Percentile(five, 20), 1);
  EXPECT_EQ(Percentile(five, 21), 2);
  EXPECT_EQ(Percentile(five, 50), 3);
  EXPECT_EQ(Percentile(five, 95), 5);
  EXPECT_EQ(Percentile(five, 100), 5);
  EXPECT_EQ(Percentile({7}, 50), 7);
  EXPECT_EQ(Percentile({1, 2}, 50), 1);
}

TEST(Statistics, NothingHasNoFigures) {
  EXPECT_EQ(Percentile({}, 50), 0);
  EXPECT_EQ(Mean({}), 0);
  EXPECT_EQ(Mean({1, 2, 6}), 3);
}

}  // namespace
}  // namespace vrambroker::pipeline
