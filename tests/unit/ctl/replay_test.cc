// Logs of simulated brokers, made by what a broker writes them with, and logs that are broken.
#include "broker/ctl/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "broker/ctl/replay_command.h"
#include "tests/unit/ctl/simulated_log.h"

namespace vrambroker::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kHeader[] = "{\"header\":{\"version\":1,\"broker_epoch\":\"7\"}}\n";

absl::Status ReadText(const std::string& text, ReplayResult* result = nullptr) {
  std::istringstream in(text);
  Replay replay;
  absl::Status status = replay.Read(&in);
  if (result != nullptr) *result = replay.result();
  return status;
}

// A decision with a plan of one component of 4 layers and one use of it, with `change` made.
std::string Planned(const std::string& from = "", const std::string& to = "") {
  const std::string line =
      "{\"decision\":{\"decision\":{\"id\":\"1\",\"kind\":\"DECISION_KIND_GRANT\"},"
      "\"plan_decision_id\":\"1\",\"plan\":{\"capacity_bytes\":\"1000\",\"slot_starts\":[0],"
      "\"components\":[{\"id\":\"w/c\",\"layer_runs\":[{\"count\":4,\"layer_bytes\":\"100\"}],"
      "\"exposed_seconds_per_byte\":0.5,\"link_share\":1}],"
      "\"uses\":[{\"component\":0,\"passes\":3,\"max_resident\":4,\"probability\":1}],"
      "\"deciding\":1,\"resident\":[4],\"keep\":[0],\"ahead\":[0],\"saved_seconds\":400}}}\n";
  std::string changed = from.empty() ? line : absl::StrReplaceAll(line, {{from, to}});
  EXPECT_TRUE(from.empty() || changed != line) << from;
  return changed;
}

TEST(ReplayTest, MakesAPlanAgain) {
  ReplayResult result;
  ASSERT_TRUE(ReadText(kHeader + Planned(), &result).ok());
  EXPECT_EQ(result.decisions, 1);
  EXPECT_EQ(result.reproduced, 1) << ReplayText(result);
  EXPECT_EQ(result.differ, 0);
}

TEST(ReplayTest, SaysInWhatAPlanDiffers) {
  ReplayResult result;
  ASSERT_TRUE(ReadText(kHeader + Planned("\"resident\":[4]", "\"resident\":[3]"), &result).ok());
  EXPECT_EQ(result.differ, 1);
  EXPECT_THAT(ReplayText(result), HasSubstr("1 differs"));
  EXPECT_THAT(ReplayText(result),
              HasSubstr("layers resident in use 0 of w/c: 3 logged, 4 made now"));
  EXPECT_THAT(ReplayJson(result), HasSubstr("\"differ\": 1"));
  ASSERT_TRUE(ReadText(kHeader + Planned("\"keep\":[0]", "\"keep\":[]"), &result).ok());
  EXPECT_THAT(ReplayText(result), HasSubstr("layers kept of w/c: 0 entries logged"));
  ASSERT_TRUE(ReadText(kHeader + Planned(":400}", ":400.5}"), &result).ok());
  EXPECT_THAT(ReplayText(result), HasSubstr("seconds saved: 400.5 logged, 400 made now"));
}

TEST(ReplayTest, ASharedPlanCountsForAllOfItsDecisions) {
  const std::string other =
      "{\"decision\":{\"decision\":{\"id\":\"2\"},\"plan_decision_id\":\"1\"}}\n";
  ReplayResult result;
  ASSERT_TRUE(ReadText(kHeader + Planned() + other, &result).ok());
  EXPECT_EQ(result.reproduced, 2);
  EXPECT_EQ(result.plans, 1);
  EXPECT_THAT(
      ReadText(kHeader + other).message(),
      HasSubstr("line 2: decision.plan_decision_id: 1 given, which is none of the last 16"));
  EXPECT_THAT(ReadText(kHeader + Planned() + kHeader + other).message(), HasSubstr("line 4: "));
}

TEST(ReplayTest, PassesOverWhatACrashCutOff) {
  ReplayResult result;
  const std::string cut = Planned().substr(0, 100);
  ASSERT_TRUE(ReadText(kHeader + Planned() + cut, &result).ok());
  EXPECT_EQ(result.torn, 1);
  EXPECT_EQ(result.reproduced, 1);
  EXPECT_THAT(ReplayText(result), HasSubstr("1 line was cut off by a crash"));
  ASSERT_TRUE(ReadText(kHeader + cut + "\n" + kHeader + Planned(), &result).ok());
  EXPECT_EQ(result.torn, 1);
  EXPECT_EQ(result.reproduced, 1);
  EXPECT_THAT(ReadText(kHeader + cut + "\n" + Planned()).message(),
              HasSubstr("line 2: no line of a decision log"));
  const std::string half = std::string(kHeader).substr(0, 20);
  ASSERT_TRUE(ReadText(half + "\n" + kHeader + Planned(), &result).ok())
      << "its first line as well";
  EXPECT_EQ(result.torn, 1);
  EXPECT_EQ(result.reproduced, 1);
  ASSERT_TRUE(ReadText(half, &result).ok());
  EXPECT_EQ(result.decisions, 0);
}

TEST(ReplayTest, NamesTheLineAndWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> broken = {
      {Planned(), "line 1: no header"},
      {"{\"header\":{\"version\":2}}\n", "line 1: header.version: 2 given, 1 is known"},
      {"hello\n", "line 1: no line of a decision log"},
      {kHeader + Planned("\"count\":4", "\"count\":5000"),
       "line 2: plan.components[0].layer_runs.count: 5000 given; 1 to 4096 is allowed"},
      {kHeader + Planned("\"layer_bytes\":\"100\"", "\"layer_bytes\":\"-1\""), "layer_bytes: -1"},
      {kHeader + Planned("\"component\":0", "\"component\":1"),
       "plan.uses[0].component: 1 given; 0 to 0 is allowed"},
      {kHeader + Planned("\"component\":0", "\"component\":-1"), "plan.uses[0].component: -1"},
      {kHeader + Planned("\"max_resident\":4", "\"max_resident\":5"), "max_resident: 5 given"},
      {kHeader + Planned("\"passes\":3", "\"last_slot\":1"), "last_slot: 1 given"},
      {kHeader + Planned("\"passes\":3", "\"first_slot\":-1"), "first_slot: -1 given"},
      {kHeader + Planned("\"passes\":3", "\"passes\":1000001"), "passes: 1000001 given"},
      {kHeader + Planned("\"passes\":3", "\"need_bytes\":\"70368744177665\""), "need_bytes"},
      {kHeader + Planned("\"passes\":3", "\"running\":true,\"granted\":5"), "granted: 5 given"},
      {kHeader + Planned("\"probability\":1", "\"probability\":\"NaN\""), "probability: nan"},
      {kHeader + Planned("0.5,", "\"Infinity\","), "exposed_seconds_per_byte: inf given"},
      {kHeader + Planned("\"slot_starts\":[0]", "\"slot_starts\":[]"), "slot_starts: entries: 0"},
      {kHeader + Planned("\"slot_starts\":[0]", "\"slot_starts\":[0],\"link_bytes\":[1,2]"),
       "link_bytes: entries: 2 given; 1 to 1"},
      {kHeader + Planned("\"deciding\":1", "\"deciding\":2"), "plan.deciding: 2 given"},
      {kHeader +
           Planned("\"plan_decision_id\":\"1\"", "\"plan_decision_id\":\"1\",\"plan_component\":1"),
       "decision.plan_component: 1 given, the plan has 1 components"},
      {kHeader + std::string(200000, '[') + "\n" + Planned(), "line 2: no line of a decision log"},
  };
  for (const auto& [text, what] : broken) {
    const absl::Status status = ReadText(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
}

TEST(ReplayTest, TimesAndLayersThatCannotBeAreRefusedWithLineAndField) {
  const std::vector<std::pair<std::string, std::string>> broken = {
      {"{\"use_began\":{\"waited_seconds\":\"NaN\"}}", "use_began.waited_seconds: nan given"},
      {"{\"use_ended\":{\"seconds\":\"Infinity\"}}", "use_ended.seconds: inf given"},
      {"{\"use_ended\":{\"compute_seconds\":-1}}", "use_ended.compute_seconds: -1 given"},
      {"{\"use_ended\":{\"stall_seconds\":1e10}}",
       "use_ended.stall_seconds: 1e+10 given; 0 to 1e+09 is allowed"},
      {"{\"run_declared\":{\"starts_in_seconds\":\"NaN\"}}", "starts_in_seconds: nan given"},
      {"{\"time\":\"1969-12-31T23:59:59Z\",\"run_ended\":{}}",
       "time: seconds since 1970: -1 given"},
      {"{\"time\":\"9000-01-01T00:00:00Z\",\"run_ended\":{}}",
       "seconds from the first of the file, at most 1e+09 are allowed"},
      {"{\"worker\":{\"components\":[{},{\"layer_runs\":[{\"count\":5000,\"layer_bytes\":\"1\"}]}]}"
       "}",
       "worker.components[1].layer_runs[0].count: 5000 given; 1 to 4096 is allowed"},
      {"{\"worker\":{\"components\":[{\"pass_seconds\":\"-Infinity\"}]}}",
       "worker.components[0].pass_seconds: -inf given"},
  };
  const std::string header =
      "{\"time\":\"2026-01-01T00:00:00Z\",\"header\":{\"version\":1,\"broker_epoch\":\"7\"}}\n";
  for (const auto& [line, what] : broken) {
    const absl::Status status = ReadText(absl::StrCat(header, Planned(), line, "\n", Planned()));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(status.message()), AllOf(StartsWith("line 3: "), HasSubstr(what)));
  }
  EXPECT_THAT(
      ReadText(kHeader + Planned("\"slot_starts\":[0]", "\"slot_starts\":[\"NaN\"]")).message(),
      HasSubstr("line 2: plan.slot_starts[0]: nan given"));
}

TEST(ReplayTest, ADecisionCountsOnceHoweverOftenItIsMet) {
  const std::string text =
      kHeader + Planned() +
      "{\"decision\":{\"decision\":{\"id\":\"2\"},\"plan_decision_id\":\"1\"}}\n";
  const std::string later =
      absl::StrReplaceAll(text, {{"\"broker_epoch\":\"7\"", "\"broker_epoch\":\"8\""}});
  Replay replay;
  for (const std::string& one : {text, later, text}) {
    std::istringstream in(one);
    ASSERT_TRUE(replay.Read(&in).ok());
  }
  EXPECT_EQ(replay.result().decisions, 4);
  EXPECT_EQ(replay.result().reproduced, 4);
  EXPECT_EQ(replay.result().repeated, 2);
  EXPECT_THAT(ReplayText(replay.result()),
              HasSubstr("in the files once more, which count once: 2\n"));
  EXPECT_THAT(ReplayJson(replay.result()), HasSubstr("\"repeated_decisions\": 2"));
}

TEST(SeenIds, AreKeptAsRangesWhateverTheirOrder) {
  SeenIds seen;
  std::vector<uint64_t> ids(200);
  std::iota(ids.begin(), ids.end(), 1);
  ids.push_back(uint64_t(-1));
  std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
  for (const uint64_t id : ids) EXPECT_EQ(seen.Take(1, id), SeenIds::Met::kNew) << id;
  for (const uint64_t id : ids) EXPECT_EQ(seen.Take(1, id), SeenIds::Met::kAgain) << id;
  EXPECT_EQ(seen.Take(2, 5), SeenIds::Met::kNew);
  EXPECT_EQ(seen.Take(1, 0), SeenIds::Met::kNew);
  SeenIds gaps;
  for (uint64_t i = 0; i < SeenIds::kMostRanges; ++i) gaps.Take(1, 2 * i);
  EXPECT_EQ(gaps.Take(1, 2 * SeenIds::kMostRanges), SeenIds::Met::kTooMany);
  EXPECT_EQ(gaps.Take(1, 1), SeenIds::Met::kNew) << "it closes a gap";
  EXPECT_EQ(gaps.Take(1, 2 * SeenIds::kMostRanges), SeenIds::Met::kNew);
}

TEST(ReplayTest, ReadsFilesOfTheFuture) {
  EXPECT_TRUE(
      ReadText("{\"header\":{\"version\":1,\"more\":[1]},\"new\":{}}\n{\"other\":{}}\n").ok());
}

// Whatever the order of events: every plan comes out again from its line alone, and each of several
// files can be read alone.
TEST(ReplayTest, ReproducesEverythingThatRandomBrokersDecide) {
  int64_t planned = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimulatedLogOptions options;
    options.declared = static_cast<sim::Declared>(seed % 3);
    options.load_ahead = seed % 2 == 0;
    options.lines_per_file = 1 + static_cast<size_t>(seed) * 7;
    const std::vector<std::string> files = SimulatedLog(sim::RandomWorkload(seed), options);
    int64_t last = 0;
    for (const std::string& file : files) {
      ReplayResult result;
      const absl::Status status = ReadText(file, &result);
      ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status;
      ASSERT_EQ(result.differ, 0) << "seed " << seed << ": " << ReplayText(result);
      planned += result.reproduced;
      last += result.decisions;
    }
    EXPECT_GT(last, 0) << "seed " << seed;
  }
  EXPECT_GT(planned, 1000);
}

TEST(ReplayTest, TheCommandTellsWhatIsWrongWithItsArguments) {
  std::ostringstream out, error;
  EXPECT_EQ(ReplayLog({}, out, error), 2);
  EXPECT_EQ(ReplayLog({"/no/such/log"}, out, error), 2);
  EXPECT_EQ(ReplayLog({"/tmp"}, out, error), 2);
  EXPECT_EQ(ReplayLog({"--format=xml", "x"}, out, error), 2);
  const std::string empty = testing::TempDir() + "/replay_test.empty";
  std::ofstream(empty) << "";
  EXPECT_EQ(ReplayLog({empty}, out, error), 2);
  EXPECT_THAT(error.str(), HasSubstr(empty + ": there is no decision; nothing was replayed"));
  const std::string broken = testing::TempDir() + "/replay_test.broken";
  std::ofstream(broken) << kHeader << "{\"use_ended\":{\"seconds\":\"NaN\"}}\n" << Planned();
  EXPECT_EQ(ReplayLog({broken}, out, error), 2);
  EXPECT_THAT(error.str(), HasSubstr(broken + ": line 2: use_ended.seconds: nan given"));
  EXPECT_THAT(error.str(), HasSubstr("no log is named"));
  EXPECT_THAT(error.str(), HasSubstr("/no/such/log: cannot be read: No such file or directory"));
  EXPECT_THAT(error.str(), HasSubstr("/tmp: cannot be read: Is a directory"));
  EXPECT_THAT(error.str(), HasSubstr("--format: 'xml' given"));
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace vrambroker::ctl
