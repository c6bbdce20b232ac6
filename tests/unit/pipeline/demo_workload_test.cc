#include "stage_workers/pipeline/demo_workload.h"

#include <numeric>

#include "gtest/gtest.h"

namespace vrambroker::pipeline {
namespace {

TEST(DemoWorkload, IsPartOfTheProgramAndFitsTheArms) {
  const absl::StatusOr<v1::Workload> workload = DemoWorkload();
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->components_size(), 3);
  EXPECT_EQ(workload->components(0).name(), "text_encoder");
  EXPECT_EQ(workload->components(1).name(), "dit");
  EXPECT_EQ(workload->components(2).name(), "vae");
  ASSERT_EQ(workload->pipelines_size(), 1);
  EXPECT_EQ(workload->pipelines(0).stages_size(), 3);
}

TEST(DemoWorkload, BlockListsAddUpToTheLayers) {
  const std::vector<int> lists = DemoBlockLists().at("text_encoder");
  EXPECT_EQ(std::accumulate(lists.begin(), lists.end(), 0),
            DemoWorkload()->components(0).layer_groups(0).count());
}

}  // namespace
}  // namespace vrambroker::pipeline
