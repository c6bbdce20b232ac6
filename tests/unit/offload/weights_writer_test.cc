#include "stage_workers/offload/weights_writer.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/offload/layers.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

using ::testing::HasSubstr;

v1::WorkloadComponent SixtySix() {
  v1::WorkloadComponent component;
  component.set_name("text_encoder");
  component.set_fixed_bytes(1'181'116'006);
  v1::LayerGroup* group = component.add_layer_groups();
  group->set_count(66);
  group->set_layer_bytes(226'701'339);
  return component;
}

TEST(WeightsWriter, ScalesToWholeLines) {
  EXPECT_EQ(ScaleBytes(0, 64), 0);
  EXPECT_EQ(ScaleBytes(1, 64), 64);
  EXPECT_EQ(ScaleBytes(6400, 100), 64);
  EXPECT_EQ(ScaleBytes(100'000, 1), 99'968 + 64 * (100'000 - 99'968 >= 32));
  EXPECT_EQ(ScaleBytes(226'701'339, 64) % 64, 0);
}

TEST(WeightsWriter, WritesWhatGroupsIntoTheSameLayers) {
  TestFolder folder;
  absl::StatusOr<WeightsPlan> plan = PlanWeights(SixtySix(), {36, 27, 3}, 65'536);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string path = WeightsPath(folder.path(), plan->component);
  int64_t told = 0;
  ASSERT_TRUE(WriteWeights(path, *plan, [&](int64_t done) { told = done; }).ok());
  EXPECT_EQ(told, plan->data_bytes());
  absl::StatusOr<std::shared_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->header().data_offset % 64, 0);
  EXPECT_EQ((*file)->header().metadata.at("vram.bytes_scale"), "65536");
  absl::StatusOr<LayerMap> map = GroupLayers(*file, {});
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->lists.size(), 3u);
  EXPECT_EQ(map->lists[0].name, "visual.blocks");
  EXPECT_EQ(map->lists[0].count, 36);
  EXPECT_EQ(map->lists[1].count, 27);
  EXPECT_EQ(map->lists[2].count, 3);
  for (size_t i = 0; i < map->layers.size(); ++i) {
    EXPECT_EQ(map->layers[i].tensors.bytes, plan->layer_bytes[i]);
    EXPECT_EQ(map->layers[i].tensors.pieces.size(), 1u);
  }
  EXPECT_EQ(map->fixed.bytes, plan->fixed_bytes);
  EXPECT_EQ(
      MakeKeepOrder(map->lists, {.pattern = KeepPattern::kRatioPerList, .ratio = 0.8})->configured,
      53);
}

TEST(WeightsWriter, TheSameInputGivesTheSameBytes) {
  TestFolder folder;
  absl::StatusOr<WeightsPlan> plan = PlanWeights(SixtySix(), {}, 65'536);
  ASSERT_TRUE(plan.ok());
  const auto write = [&](const std::string& name, const WeightsPlan& which) {
    EXPECT_TRUE(WriteWeights(folder.File(name), which, nullptr).ok());
    std::ifstream file(folder.File(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(write("a", *plan), write("b", *plan));
  v1::WorkloadComponent other = SixtySix();
  other.set_name("dit");
  EXPECT_NE(write("a", *plan), write("c", *PlanWeights(other, {}, 65'536)));
}

TEST(WeightsWriter, KnowsWhetherAFileIsRight) {
  TestFolder folder;
  const std::string path = folder.File("w");
  absl::StatusOr<WeightsPlan> plan = PlanWeights(SixtySix(), {36, 27, 3}, 65'536);
  EXPECT_FALSE(WeightsAreCurrent(path, *plan));
  ASSERT_TRUE(WriteWeights(path, *plan, nullptr).ok());
  EXPECT_TRUE(WeightsAreCurrent(path, *plan));
  EXPECT_FALSE(WeightsAreCurrent(path, *PlanWeights(SixtySix(), {}, 65'536)));
  EXPECT_FALSE(WeightsAreCurrent(path, *PlanWeights(SixtySix(), {36, 27, 3}, 65'535)));
  ASSERT_EQ(truncate(path.c_str(), plan->data_bytes()), 0);
  EXPECT_FALSE(WeightsAreCurrent(path, *plan));
}

TEST(WeightsWriter, RefusesWhatDoesNotFit) {
  const auto code = [](const v1::WorkloadComponent& component, const std::vector<int>& lists,
                       int64_t scale) {
    return PlanWeights(component, lists, scale).status().code();
  };
  EXPECT_EQ(code(SixtySix(), {36, 27, 4}, 64), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(SixtySix(), {67, -1}, 64), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(SixtySix(), {}, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(SixtySix(), {}, 2'000'000), absl::StatusCode::kInvalidArgument);
  v1::WorkloadComponent outside = SixtySix();
  outside.set_name("../x");
  EXPECT_EQ(code(outside, {}, 64), absl::StatusCode::kInvalidArgument);
}

// Runs vram-make-weights; its exit status and all its output.
std::pair<int, std::string> Program(const std::string& arguments) {
  FILE* pipe = popen((std::string(MAKE_WEIGHTS) + " " + arguments + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    text.append(buffer, got);
  }
  return {WEXITSTATUS(pclose(pipe)), text};
}

TEST(MakeWeights, WritesOnceAndSaysSo) {
  TestFolder folder;
  const std::string arguments = absl::StrCat(
      "--workload ", WORKLOADS_FOLDER, "/qwen-image-2.1-32g.json --output-dir ", folder.File("out"),
      " --bytes-scale=100000 --block-lists 'text_encoder=36,27,3' --format json");
  const auto [first_code, first] = Program(arguments);
  EXPECT_EQ(first_code, 0) << first;
  EXPECT_THAT(first, HasSubstr("\"written\": true"));
  EXPECT_THAT(first, HasSubstr("\"count\": 27"));
  const auto [second_code, second] = Program(arguments);
  EXPECT_EQ(second_code, 0) << second;
  EXPECT_THAT(second, testing::Not(HasSubstr("\"written\": true")));
  const auto [third_code, third] = Program(arguments + " --force --component dit");
  EXPECT_EQ(third_code, 0) << third;
  EXPECT_THAT(third, HasSubstr("\"written\": true"));
  EXPECT_THAT(third, testing::Not(HasSubstr("text_encoder")));
}

TEST(MakeWeights, ExplainsItselfAndItsErrors) {
  const auto [help_code, help] = Program("--help");
  EXPECT_EQ(help_code, 0);
  EXPECT_THAT(help, HasSubstr("--block-lists"));
  TestFolder folder;
  const std::string good = absl::StrCat("--workload ", WORKLOADS_FOLDER,
                                        "/flux-dev-32g.json --output-dir ", folder.path());
  EXPECT_EQ(Program("").first, 2);
  EXPECT_EQ(Program("--workload /nowhere.json --output-dir /tmp").first, 1);
  EXPECT_THAT(Program(good + " --component none").second, HasSubstr("\"none\""));
  EXPECT_THAT(Program(good + " --block-lists none=1").second, HasSubstr("\"none\""));
  EXPECT_THAT(Program(good + " --block-lists dit=x").second, HasSubstr("\"dit=x\""));
  EXPECT_THAT(Program(good + " --format xml").second, HasSubstr("\"xml\""));
  EXPECT_THAT(Program(good + " --bytes-scale 0").second, HasSubstr("bytes scale"));
}

TEST(WeightsWriter, LeavesAFileAloneThatWasNotGenerated) {
  TestFolder folder;
  const std::string path = folder.File("mine.safetensors");
  std::ofstream(path) << "somebody's weights";
  const absl::StatusOr<WeightsPlan> plan = PlanWeights(SixtySix(), {}, 65'536);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(WriteWeights(path, *plan, nullptr).code(), absl::StatusCode::kFailedPrecondition);
  std::stringstream text;
  const std::ifstream file(path);
  text << file.rdbuf();
  EXPECT_EQ(text.str(), "somebody's weights");
}

}  // namespace
}  // namespace vrambroker::offload
