// Workloads that are simulated, logged, and read back from the log.
#include "broker/ctl/recorded_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "broker/ctl/decision_log_reader.h"
#include "broker/ctl/replay_command.h"
#include "tests/unit/ctl/simulated_log.h"

namespace vrambroker::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<RecordedWorkload> ReadBack(const std::string& log, const std::string& device = "") {
  std::istringstream in(log);
  DecisionLogReader lines(&in);
  WorkloadReader reader(device);
  v1::DecisionLogLine line;
  while (true) {
    const auto more = lines.Next(&line);
    if (!more.ok()) return more.status();
    if (!*more) return reader.Finish();
    if (absl::Status status = reader.Take(line); !status.ok()) return status;
  }
}

// Two components that do not fit together, in turn.
sim::Workload Turns() {
  sim::Workload w;
  w.name = "turns";
  w.device = {900, 0, 100};
  w.components.push_back({"encoder", {{6, 100}}, 0, 2, 0.5});
  w.components.push_back({"decoder", {{4, 100}, {2, 50}}, 30, 1, 0.25});
  w.pipelines.push_back({"p", {{0, 1, 40}, {1, 4, 0}}});
  for (int i = 0; i < 5; ++i) w.runs.push_back({0, 0});
  return w;
}

TEST(RecordedWorkloadTest, IsTheOneThatRan) {
  sim::Result result;
  const sim::Workload ran = Turns();
  const auto files = SimulatedLog(ran, {.load_ahead = false, .result = &result});
  const auto read = ReadBack(files.at(0));
  ASSERT_TRUE(read.ok()) << read.status();
  const sim::Workload& w = read->workload;
  EXPECT_EQ(w.device.capacity_bytes, 900);
  ASSERT_EQ(w.components.size(), 2u);
  EXPECT_EQ(w.components[0].name, "encoder");
  EXPECT_EQ(w.components[1].layer_groups, ran.components[1].layer_groups);
  EXPECT_EQ(w.components[1].fixed_bytes, 30);
  EXPECT_EQ(w.components[1].window_layers, 1);
  EXPECT_NEAR(w.components[0].pass_seconds, 0.5, 1e-6);
  ASSERT_EQ(w.pipelines.size(), 1u);
  EXPECT_EQ(w.pipelines[0].stages[1].passes, 4);
  EXPECT_EQ(w.pipelines[0].stages[0].activation_bytes, 40);
  EXPECT_EQ(w.runs.size(), 5u);
  EXPECT_TRUE(w.Sequential());
  EXPECT_EQ(read->declared, sim::Declared::kAll);
  EXPECT_EQ(read->uses, 10);
  EXPECT_NEAR(read->stall_seconds, result.stall_seconds, 1e-3 + 0.01 * result.stall_seconds);
}

// Simulated again it loses what it lost.
TEST(RecordedWorkloadTest, LosesAsMuchWhenItIsSimulatedAgain) {
  for (const sim::Declared declared :
       {sim::Declared::kAll, sim::Declared::kCurrent, sim::Declared::kNone}) {
    sim::Result first;
    const auto files =
        SimulatedLog(Turns(), {.declared = declared, .load_ahead = false, .result = &first});
    auto read = ReadBack(files.at(0));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->workload.max_concurrent_runs, 1);
    sim::Options options;
    options.declared = declared;
    options.load_ahead = false;
    const auto again = sim::Simulate(read->workload, options);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_NEAR(again->stall_seconds, first.stall_seconds, 0.02 * first.stall_seconds + 0.01);
    read->workload.device.capacity_bytes = 400;
    const auto smaller = sim::Simulate(read->workload, options);
    ASSERT_TRUE(smaller.ok()) << smaller.status();
    EXPECT_GT(smaller->stall_seconds, first.stall_seconds);
  }
}

TEST(RecordedWorkloadTest, RandomOnesCanAllBeReadBack) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const sim::Workload ran = sim::RandomWorkload(seed);
    SimulatedLogOptions options;
    options.declared = static_cast<sim::Declared>(seed % 3);
    const auto files = SimulatedLog(ran, options);
    const auto read = ReadBack(files.at(0));
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status();
    size_t stages = 0;
    for (const sim::Run& run : ran.runs) {
      stages += ran.pipelines[static_cast<size_t>(run.pipeline)].stages.size();
    }
    EXPECT_EQ(static_cast<size_t>(read->uses), stages) << "seed " << seed;
    EXPECT_EQ(read->unknown_uses, 0);
  }
}

constexpr char kDevices[] =
    "{\"header\":{\"version\":1,\"broker_epoch\":\"7\",\"devices\":["
    "{\"uuid\":\"a\",\"capacity_bytes\":\"1000\",\"link_bytes_per_second\":10},"
    "{\"uuid\":\"b\",\"capacity_bytes\":\"1000\",\"link_bytes_per_second\":10}]}}\n";
constexpr char kWorker[] =
    "{\"worker\":{\"worker\":\"w\",\"device_uuid\":\"a\",\"components\":[{\"name\":\"c\","
    "\"layer_runs\":[{\"count\":1,\"layer_bytes\":\"10\"}]}]}}\n";

TEST(RecordedWorkloadTest, NamesWhatIsWrong) {
  EXPECT_THAT(ReadBack(kDevices).status().message(),
              HasSubstr("--device: none given, the log has a, b"));
  EXPECT_THAT(ReadBack(kDevices, "c").status().message(), HasSubstr("\"c\" given"));
  EXPECT_THAT(ReadBack(kDevices, "a").status().message(), HasSubstr("tells of no use on a"));
  const std::string use = "{\"use_began\":{\"use_id\":\"1\",\"component_id\":\"w/c\"}}\n";
  EXPECT_THAT(ReadBack(std::string(kDevices) + use, "a").status().message(),
              HasSubstr("tells of no use on a"));
  const auto read = ReadBack(std::string(kDevices) + use + kWorker + use, "a");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->unknown_uses, 1);
  EXPECT_THAT(RecordedText(*read),
              HasSubstr("components that the log does not name, which are left out: 1"));
  const std::string other =
      absl::StrReplaceAll(kWorker, {{"\"worker\":\"w\"", "\"worker\":\"v\""}, {"\"a\"", "\"b\""}});
  const std::string there = absl::StrReplaceAll(use, {{"w/c", "v/c"}});
  const auto both = ReadBack(std::string(kDevices) + kWorker + other + use + there + there, "a");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->unknown_uses, 0);
  EXPECT_EQ(both->uses_elsewhere, 2);
  EXPECT_THAT(RecordedText(*both), HasSubstr("uses on other devices, which are left out: 2"));
  std::string many = std::string(kDevices) + kWorker;
  for (int i = 0; i < 65; ++i) {
    many += absl::StrCat("{\"use_began\":{\"use_id\":\"", i,
                         "\",\"component_id\":\"w/c\",\"run_id\":\"3\"}}\n");
  }
  EXPECT_THAT(ReadBack(many, "a").status().message(), HasSubstr("run 3 has more than 64 uses"));
  const std::string negative = absl::StrReplaceAll(kWorker, {{"\"10\"", "\"-10\""}});
  EXPECT_THAT(ReadBack(std::string(kDevices) + negative + use, "a").status().message(),
              HasSubstr("line 2: worker.components[0].layer_runs[0].layer_bytes: -10 given"));
}

TEST(RecordedWorkloadTest, AUseCountsOnceHoweverOftenItIsMet) {
  const std::string use = "{\"use_began\":{\"use_id\":\"1\",\"component_id\":\"w/c\"}}\n";
  const auto read = ReadBack(std::string(kDevices) + kWorker + use + use, "a");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->uses, 1);
  EXPECT_THAT(RecordedText(*read),
              AllOf(HasSubstr(": 1 run in 1 order of stages, 1 at once, 1 use of 1 component;"),
                    HasSubstr("once more, which count once: 1")));
}

TEST(RecordedWorkloadTest, TheCommandShowsWhatASmallerCardWouldLose) {
  const std::string path = testing::TempDir() + "/recorded_workload_test.log";
  std::ofstream(path) << SimulatedLog(Turns(), {}).at(0);
  std::ostringstream out, error;
  EXPECT_EQ(ReplayLog({path, "--capacity=0"}, out, error), 2);
  EXPECT_THAT(error.str(), HasSubstr("--capacity: 0 given"));
  EXPECT_EQ(ReplayLog({path, "--rule=best"}, out, error), 2);
  EXPECT_THAT(error.str(), HasSubstr("--rule: "));
  EXPECT_EQ(ReplayLog({path, "--rule=broker", "--rule=release_all"}, out, error), 0) << error.str();
  EXPECT_THAT(out.str(), HasSubstr("recorded on simulated, 900 B: 5 runs in 1 order of stages"));
  EXPECT_THAT(out.str(), HasSubstr("release_all"));
  EXPECT_EQ(ReplayLog({path, "--capacity=200B"}, out, error), 1);
  EXPECT_THAT(out.str(), HasSubstr("does not fit"));
  std::ostringstream json;
  EXPECT_EQ(ReplayLog({path, "--rule=lru_partial", "--format=json"}, json, error), 0);
  EXPECT_THAT(json.str(), HasSubstr("\"recorded\": {\"device\":\"simulated\""));
  EXPECT_THAT(json.str(), HasSubstr("\"rule\": \"lru_partial\""));
  EXPECT_EQ(ReplayLog({path, "--device=x"}, out, error), 2);
  EXPECT_THAT(error.str(), HasSubstr("--device is for a simulation"));
}

}  // namespace
}  // namespace vrambroker::ctl
