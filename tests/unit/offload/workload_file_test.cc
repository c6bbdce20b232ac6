#include "stage_workers/offload/workload_file.h"

#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

using ::testing::HasSubstr;

v1::Workload Small() {
  v1::Workload workload;
  workload.set_name("small");
  workload.mutable_device()->set_capacity_bytes(1000);
  workload.mutable_device()->set_h2d_bytes_per_second(1e9);
  v1::WorkloadComponent* component = workload.add_components();
  component->set_name("dit");
  component->add_layer_groups()->set_count(2);
  component->mutable_layer_groups(0)->set_layer_bytes(10);
  v1::WorkloadPipeline* pipeline = workload.add_pipelines();
  pipeline->set_name("image");
  pipeline->add_stages()->set_component("dit");
  workload.add_runs()->set_pipeline("image");
  return workload;
}

TEST(WorkloadFile, ReadsAllWorkloadsThatThereAre) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WORKLOADS_FOLDER)) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    absl::StatusOr<v1::Workload> workload = LoadWorkload(entry.path());
    EXPECT_TRUE(workload.ok()) << workload.status();
    EXPECT_GT(workload->components_size(), 0);
    EXPECT_GT(workload->runs_size(), 0);
  }
  EXPECT_GE(files, 8);
}

TEST(WorkloadFile, ChecksEveryBound) {
  struct Case {
    std::string field;
    std::function<void(v1::Workload&)> change;
  };
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases = {
      {"name", [](auto& w) { w.set_name(""); }},
      {"name", [](auto& w) { w.set_name("a b"); }},
      {"device.capacity_bytes", [](auto& w) { w.mutable_device()->set_capacity_bytes(0); }},
      {"device.reserve_bytes", [](auto& w) { w.mutable_device()->set_reserve_bytes(-1); }},
      {"device.reserve_bytes", [](auto& w) { w.mutable_device()->set_reserve_bytes(1000); }},
      {"device.h2d_bytes_per_second",
       [](auto& w) { w.mutable_device()->set_h2d_bytes_per_second(0); }},
      {"device.h2d_bytes_per_second",
       [=](auto& w) { w.mutable_device()->set_h2d_bytes_per_second(kNan); }},
      {"max_concurrent_runs", [](auto& w) { w.set_max_concurrent_runs(-1); }},
      {"components",
       [](auto& w) {
         for (int i = 0; i < 256; ++i) *w.add_components() = w.components(0);
       }},
      {"components[0].name", [](auto& w) { w.mutable_components(0)->set_name(""); }},
      {"components[1].name", [](auto& w) { *w.add_components() = w.components(0); }},
      {"components[0].fixed_bytes", [](auto& w) { w.mutable_components(0)->set_fixed_bytes(-1); }},
      {"components[0].window_layers",
       [](auto& w) { w.mutable_components(0)->set_window_layers(-1); }},
      {"components[0].pass_seconds",
       [](auto& w) { w.mutable_components(0)->set_pass_seconds(-1); }},
      {"components[0].layer_groups",
       [](auto& w) { w.mutable_components(0)->clear_layer_groups(); }},
      {"components[0].layer_groups[0].count",
       [](auto& w) { w.mutable_components(0)->mutable_layer_groups(0)->set_count(0); }},
      {"components[0].layer_groups",
       [](auto& w) { w.mutable_components(0)->mutable_layer_groups(0)->set_count(4097); }},
      {"components[0].layer_groups[0].layer_bytes",
       [](auto& w) { w.mutable_components(0)->mutable_layer_groups(0)->set_layer_bytes(0); }},
      {"components[0].layer_groups[0].layer_bytes",
       [](auto& w) {
         w.mutable_components(0)->mutable_layer_groups(0)->set_layer_bytes(INT64_MAX);
       }},
      {"components[0]",
       [](auto& w) {
         w.mutable_components(0)->mutable_layer_groups(0)->set_layer_bytes(int64_t{1} << 46);
       }},
      {"pipelines[0].name", [](auto& w) { w.mutable_pipelines(0)->set_name(""); }},
      {"pipelines[1].name", [](auto& w) { *w.add_pipelines() = w.pipelines(0); }},
      {"pipelines[0].stages", [](auto& w) { w.mutable_pipelines(0)->clear_stages(); }},
      {"pipelines[0].stages",
       [](auto& w) {
         for (int i = 0; i < 64; ++i) w.mutable_pipelines(0)->add_stages()->set_component("dit");
       }},
      {"pipelines[0].stages[0].component",
       [](auto& w) { w.mutable_pipelines(0)->mutable_stages(0)->set_component("vae"); }},
      {"pipelines[0].stages[0].passes",
       [](auto& w) { w.mutable_pipelines(0)->mutable_stages(0)->set_passes(-1); }},
      {"pipelines[0].stages[0].shape",
       [](auto& w) { w.mutable_pipelines(0)->mutable_stages(0)->set_shape(std::string(65, 'x')); }},
      {"pipelines[0].stages[0].declared_activation_bytes",
       [](auto& w) {
         w.mutable_pipelines(0)->mutable_stages(0)->set_declared_activation_bytes(-1);
       }},
      {"pipelines[0].stages[0].activation_bytes",
       [](auto& w) { w.mutable_pipelines(0)->mutable_stages(0)->set_activation_bytes(-1); }},
      {"runs[0].pipeline", [](auto& w) { w.mutable_runs(0)->set_pipeline("video"); }},
      {"runs[0].arrival_seconds", [](auto& w) { w.mutable_runs(0)->set_arrival_seconds(-1); }},
      {"runs",
       [](auto& w) {
         for (int i = 0; i < 100'000; ++i) w.add_runs()->set_pipeline("image");
       }},
  };
  EXPECT_TRUE(CheckWorkload(Small()).ok());
  for (const Case& c : cases) {
    v1::Workload workload = Small();
    c.change(workload);
    const absl::Status status = CheckWorkload(workload);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(c.field + ":"));
  }
}

TEST(WorkloadFile, ShowsWhatWasGivenAndWhatIsAllowed) {
  const std::pair<const char*, std::function<void(v1::Workload&)>> cases[] = {
      {"device.capacity_bytes: 70368744177665 given; 1 to 70368744177664 (64 TiB) is allowed",
       [](auto& w) { w.mutable_device()->set_capacity_bytes((int64_t{1} << 46) + 1); }},
      {"max_concurrent_runs: 1025 given; 1 to 1024 is allowed",
       [](auto& w) { w.set_max_concurrent_runs(1025); }},
      {"components[0].name: \"a\\x1b\" given; 1 to 128 letters",
       [](auto& w) { w.mutable_components(0)->set_name("a\x1b"); }},
      {"pipelines[0].name: \"pppppppppppppppppppppppppppppppppppppppp...\" (129 bytes) given",
       [](auto& w) { w.mutable_pipelines(0)->set_name(std::string(129, 'p')); }},
      {"pipelines[0].stages[0].component: \"\\n\" is no",
       [](auto& w) { w.mutable_pipelines(0)->mutable_stages(0)->set_component("\n"); }}};
  for (const auto& [message, change] : cases) {
    v1::Workload workload = Small();
    change(workload);
    EXPECT_THAT(std::string(CheckWorkload(workload).message()), testing::StartsWith(message));
  }
}

TEST(WorkloadFile, NamesTheFileInItsErrors) {
  TestFolder folder;
  const std::string path = folder.File("w.json");
  EXPECT_EQ(LoadWorkload(path).status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"", "{", "[]", "{\"unknown\":1}", "{\"name\":\"x\"}",
                           "{\"device\":{\"capacity_bytes\":\"many\"}}"}) {
    WriteFile(path, text);
    const absl::Status status = LoadWorkload(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

}  // namespace
}  // namespace vrambroker::offload
