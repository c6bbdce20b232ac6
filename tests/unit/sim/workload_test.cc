#include "broker/sim/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace vrambroker::sim {
namespace {

using testing::HasSubstr;

Workload Good() {
  Workload w;
  w.name = "good-1.0";
  w.device = {1000, 10, 100};
  w.components = {{"a", {{2, 10}, {1, 30}}, 5, 2, 0.1}, {"b", {{1, 10}}, 0, 2, 0}};
  w.pipelines = {{"p", {{0, 3, 7}, {1, 1, 0}}}};
  w.runs = {{0, 0}, {0, 1.5}};
  return w;
}

TEST(Workload, KnowsItsSizes) {
  const Workload w = Good();
  EXPECT_TRUE(Validate(w).ok()) << Validate(w);
  EXPECT_EQ(w.components[0].WindowBytes(), 60);
  EXPECT_EQ(w.components[0].Layers().count(), 3);
  EXPECT_EQ(w.components[0].Layers().All().count(), 50);
  EXPECT_FALSE(w.Sequential());
}

TEST(Workload, NamesTheFieldThatIsWrong) {
  const std::pair<const char*, std::function<void(Workload*)>> cases[] = {
      {"name: \"a/b\" given", [](Workload* w) { w->name = "a/b"; }},
      {"device.capacity_bytes: -1 given", [](Workload* w) { w->device.capacity_bytes = -1; }},
      {"device.capacity_bytes: -9223372036854775808 given",
       [](Workload* w) { w->device.capacity_bytes = std::numeric_limits<int64_t>::min(); }},
      {"device.reserve_bytes: 1000 given; 0 to 999",
       [](Workload* w) { w->device.reserve_bytes = 1000; }},
      {"device.h2d_bytes_per_second", [](Workload* w) { w->device.link_rate = 0; }},
      {"max_concurrent_runs: 0 given; 1 to 1024 is allowed",
       [](Workload* w) { w->max_concurrent_runs = 0; }},
      {"max_concurrent_runs: 1025 given", [](Workload* w) { w->max_concurrent_runs = 1025; }},
      {"components[0].name: \"a\\x1b[31m\" given; 1 to 128 letters, digits",
       [](Workload* w) { w->components[0].name = "a\x1b[31m"; }},
      {"pipelines[0].name: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\" (129 bytes) given",
       [](Workload* w) { w->pipelines[0].name = std::string(129, 'a'); }},
      {"components: entries: 0 given", [](Workload* w) { w->components.clear(); }},
      {"components[1].name: \"a\" is used", [](Workload* w) { w->components[1].name = "a"; }},
      {"components[1].name: \"\" given", [](Workload* w) { w->components[1].name = ""; }},
      {"components[0].fixed_bytes: -5", [](Workload* w) { w->components[0].fixed_bytes = -5; }},
      {"components[0].layer_groups: bytes in all",
       [](Workload* w) { w->components[0].fixed_bytes = int64_t{1} << 46; }},
      {"components[0].window_layers: 0", [](Workload* w) { w->components[0].window_layers = 0; }},
      {"components[0].pass_seconds: nan",
       [](Workload* w) {
         w->components[0].pass_seconds = std::numeric_limits<double>::quiet_NaN();
       }},
      {"components[0].layer_groups[1].count: 0",
       [](Workload* w) { w->components[0].layer_groups[1].first = 0; }},
      {"components[0].layer_groups[1].layer_bytes: 0",
       [](Workload* w) { w->components[0].layer_groups[1].second = 0; }},
      {"components[1].layer_groups: layers in all: 0",
       [](Workload* w) { w->components[1].layer_groups.clear(); }},
      {"pipelines[0].stages: entries: 0", [](Workload* w) { w->pipelines[0].stages.clear(); }},
      {"pipelines[0].stages[0].component: 2 given; there are 2 components",
       [](Workload* w) { w->pipelines[0].stages[0].component = 2; }},
      {"pipelines[0].stages[0].passes: 0",
       [](Workload* w) { w->pipelines[0].stages[0].passes = 0; }},
      {"pipelines[0].stages[1].activation_bytes: -1",
       [](Workload* w) { w->pipelines[0].stages[1].activation_bytes = -1; }},
      {"pipelines[0].stages[1].shape: bytes: 65 given; 0 to 64",
       [](Workload* w) { w->pipelines[0].stages[1].shape = std::string(65, 'x'); }},
      {"pipelines[0].stages[1].declared_activation_bytes: -1",
       [](Workload* w) { w->pipelines[0].stages[1].declared_activation_bytes = -1; }},
      {"pipelines[0].stages[0].declared_activation_bytes: 6 given; 7 to ",
       [](Workload* w) { w->pipelines[0].stages[0].declared_activation_bytes = 6; }},
      {"runs: entries: 0", [](Workload* w) { w->runs.clear(); }},
      {"runs[1].pipeline: 1 given", [](Workload* w) { w->runs[1].pipeline = 1; }},
      {"runs[1].arrival_seconds: -1", [](Workload* w) { w->runs[1].arrival_seconds = -1; }},
  };
  for (const auto& [message, spoil] : cases) {
    Workload w = Good();
    spoil(&w);
    const absl::Status status = Validate(w);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace vrambroker::sim
