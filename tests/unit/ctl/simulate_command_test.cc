#include "broker/ctl/simulate_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "broker/ctl/plan_command.h"
#include "broker/ctl/plot_svg.h"
#include "broker/ctl/progress.h"
#include "broker/ctl/workload_file.h"

namespace vrambroker::ctl {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kQwen = std::string(WORKLOAD_DIR) + "/qwen-image-2.1-24g.json";

struct End {
  int status = 0;
  std::string out;
  std::string error;
};

End Simulated(const std::vector<std::string>& arguments) {
  std::ostringstream out, error;
  const int status = Simulate(arguments, out, error);
  return {status, out.str(), error.str()};
}

size_t Requests(const std::string& workload) { return LoadWorkload(workload)->runs.size(); }

End Planned(const std::vector<std::string>& arguments) {
  std::ostringstream out, error;
  const int status = Plan(arguments, out, error);
  return {status, out.str(), error.str()};
}

TEST(Simulate, JsonHasARowForEachCardAndRule) {
  const End end = Simulated({kQwen, "--capacity=4GiB", "--capacity", "24GiB", "--rule=broker",
                             "--rule=lru_partial", "--format=json"});
  EXPECT_EQ(end.status, 1) << end.error;
  const nlohmann::json rows = nlohmann::json::parse(end.out);
  ASSERT_EQ(rows.size(), 4u);
  const nlohmann::json& broker = rows[2];
  EXPECT_EQ(broker.at("workload"), "qwen-image-2.1-24g");
  EXPECT_EQ(broker.at("capacity_bytes"), int64_t{24} << 30);
  EXPECT_EQ(broker.at("rule"), "broker");
  EXPECT_EQ(broker.at("declared"), "all");
  EXPECT_EQ(broker.at("load_ahead"), true);
  EXPECT_EQ(broker.at("fits"), true);
  EXPECT_GT(broker.at("stall_seconds").get<double>(), 0);
  EXPECT_GT(broker.at("request_p95_seconds"), broker.at("request_p50_seconds"));
  EXPECT_GT(broker.at("bytes_to_device").get<int64_t>(), int64_t{1} << 30);
  EXPECT_LE(broker.at("peak_bytes"), broker.at("capacity_bytes"));
  EXPECT_GE(broker.at("decisions").get<int>(), 15);
  EXPECT_GT(broker.at("decision_p99_seconds").get<double>(), 0);
  EXPECT_TRUE(broker.at("reason").is_null());
  EXPECT_EQ(rows[3].at("rule"), "lru_partial");
  EXPECT_TRUE(rows[3].at("declared").is_null());
  EXPECT_EQ(rows[3].at("load_ahead"), false);
  for (const int misfit : {0, 1}) {
    EXPECT_EQ(rows[misfit].at("fits"), false);
    EXPECT_TRUE(rows[misfit].at("stall_seconds").is_null());
    EXPECT_TRUE(rows[misfit].at("decisions").is_null());
    EXPECT_EQ(rows[misfit].size(), broker.size());
    EXPECT_THAT(rows[misfit].at("reason").get<std::string>(),
                AllOf(StartsWith("dit needs 3.34 GiB (2.90 GiB of activation, "),
                      HasSubstr("the card has 2.15 GiB; the least card is 5.19 GiB")));
  }
}

TEST(Simulate, CsvHasTheSameColumns) {
  const End end = Simulated({kQwen, "--capacity=4GiB", "--format=csv", "--no-load-ahead"});
  EXPECT_EQ(end.status, 1) << end.error;
  EXPECT_THAT(
      end.out,
      StartsWith(
          "workload,capacity_bytes,rule,declared,load_ahead,fits,stall_seconds,"
          "request_p50_seconds,request_p95_seconds,bytes_to_device,peak_bytes,decisions,"
          "decision_p99_seconds,reason\n"
          "qwen-image-2.1-24g,4294967296,broker,all,false,false,,,,,,,,\"dit needs 3.34 GiB"));
  EXPECT_THAT(end.out, EndsWith("5.19 GiB\"\n"));
}

TEST(Simulate, TheTableIsForPeople) {
  const End end = Simulated({kQwen, "--rule=release_all", "--capacity=23.5GiB", "--capacity=4GiB"});
  EXPECT_EQ(end.status, 1) << end.error;
  EXPECT_THAT(end.out, HasSubstr("lost to loading"));
  EXPECT_THAT(end.out, HasSubstr("23.50 GiB  release_all  -         -              3.230 s"));
  EXPECT_THAT(end.out, HasSubstr("does not fit"));
  EXPECT_THAT(end.out,
              HasSubstr("\n\n  qwen-image-2.1-24g on 4.00 GiB, release_all: dit needs 3.34 "
                        "GiB (2.90 GiB of activation, 443.7 MiB of layers), stage 2 of "
                        "text_to_image; beside reserve and fixed bytes the card has 2.15 "
                        "GiB; the least card is 5.19 GiB\n"));
}

TEST(Simulate, SaysNothingOfHowFarItIsWhereItIsQuick) { EXPECT_EQ(Simulated({kQwen}).error, ""); }

TEST(Progress, SaysALineEveryFewSecondsAfterTheFirstTwo) {
  std::ostringstream out;
  double now = 100;
  Progress progress(&out, [&now] { return now; });
  const sim::TellProgress tell = progress.Begin("w on 4.00 GiB");
  for (const auto& [time, done] : {std::pair{101.9, 1}, {102.0, 2}, {106.9, 3}, {107.0, 4}}) {
    now = time;
    tell("requests done", done, 9);
  }
  progress.End();
  EXPECT_EQ(out.str(),
            "simulating w on 4.00 GiB: 2 of 9 requests done\n"
            "simulating w on 4.00 GiB: 4 of 9 requests done\n");
}

TEST(Simulate, ReadsWorkloadsMadeFromANumber) {
  const End end = Simulated({"--random=7", "--random=8", "--format=csv"});
  EXPECT_EQ(end.status, 0) << end.error;
  EXPECT_THAT(end.out, HasSubstr("\nrandom-7,"));
  EXPECT_THAT(end.out, HasSubstr("\nrandom-8,"));
}

TEST(Simulate, SaysWhatIsWrongWithItsArguments) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "no workload is named; a file, or --random SEED, is needed"},
      {{"/nonexistent.json"}, "/nonexistent.json: cannot be read"},
      {{kQwen, "--capacity=0"}, "--capacity: 0 given"},
      {{kQwen, "--capacity=24"},
       "--capacity: '24' given, which is bytes; a size with its unit is needed, such as 24GiB"},
      {{kQwen, "--capacity=100MiB"},
       "--capacity: 100.0 MiB given; qwen-image-2.1-24g keeps 512.0 MiB of a card free"},
      {{WORKLOAD_DIR}, "/workloads: is a directory; a JSON file of a workload is needed"},
      {{kQwen, "--capacity=12 apples"}, "--capacity: '12 apples' is no size"},
      {{kQwen, "--capacity"}, "--capacity: its value is missing"},
      {{kQwen, "--rule=lru"}, "--rule: 'lru' is no rule: broker, release_all"},
      {{kQwen, "--declared=some"}, "--declared: 'some' given, all, current or none is allowed"},
      {{kQwen, "--declared=all", "--declared=none"}, "--declared is given twice"},
      {{kQwen, "--format=xml"}, "--format: 'xml' given; table, json, csv are allowed"},
      {{kQwen, "--no-load-ahead=yes"}, "--no-load-ahead: 'yes' given, it takes no value"},
      {{kQwen, "--speed=9"}, "--speed is no flag of this command: --capacity, --rule"},
      {{"--random=-1"}, "--random: '-1' given, a number from 0 to 2^64 - 1"},
      {{kQwen, "--plot="}, "--plot: no file named"},
      {{kQwen, "--plot=/x.svg", "--rule=broker", "--rule=lru_whole"},
       "--plot: 2 simulations asked for; one file for one workload, card and rule"},
      {{kQwen, "--plot=/nonexistent/x.svg"}, "--plot: /nonexistent/x.svg cannot be written"},
  };
  for (const auto& [arguments, message] : cases) {
    const End end = Simulated(arguments);
    EXPECT_EQ(end.status, 2) << message;
    EXPECT_EQ(end.out, "") << message;
    EXPECT_THAT(end.error, StartsWith("vramctl simulate: "));
    EXPECT_THAT(end.error, HasSubstr(message));
  }
}

TEST(Simulate, DrawsTheCardOverTime) {
  const std::string path = absl::StrCat(testing::TempDir(), "/plot-", getpid(), ".svg");
  const End end = Simulated({kQwen, "--plot=" + path});
  EXPECT_EQ(end.status, 0) << end.error;
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  std::remove(path.c_str());
  const std::string svg = text.str();
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, EndsWith("</svg>\n"));
  for (const char* part :
       {"text_encoder", "dit", "vae", "layers in use", "kept between uses", "being loaded ahead",
        "window, activation", "GiB on the card", ">seconds<", "prefers-color-scheme:dark",
        "qwen-image-2.1-24g on 23.50 GiB: broker, declared: all"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(PlotSvg, DrawsNothingBesideTheCard) {
  sim::Workload w;
  w.name = "w";
  w.device = {int64_t{8} << 30, 0, 1e9};
  w.components = {{"a", {{4, int64_t{1} << 30}}, 0, 2, 0}};
  sim::Result result;
  result.seconds = 10;
  result.samples = {{0, {{int64_t{4} << 30, int64_t{2} << 30, true, false}}},
                    {5, {{int64_t{4} << 30, 0, false, true}}}};
  const std::string svg = PlotSvg(w, result, "a < b & \"c\"");
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  // Half of the height for half of the card, half of the width for half of the time.
  EXPECT_THAT(svg, HasSubstr("class=\"use\" x=\"64.00\" y=\"220.00\" width=\"460.00\" "
                             "height=\"180.00\""));
  EXPECT_THAT(svg, HasSubstr("class=\"kept\" x=\"524.00\" y=\"220.00\""));
  EXPECT_THAT(svg, HasSubstr("fill=\"url(#load)\" x=\"524.00\""));
  EXPECT_THAT(svg, HasSubstr("fill=\"url(#need)\" x=\"64.00\" y=\"130.00\""));
}

TEST(Plan, SaysWhatIsMissing) {
  const End end = Planned({kQwen, "--capacity=4GiB"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr("It does not fit. Stage 2 of text_to_image, a use of dit, needs "
                                 "at least 3.34 GiB: 2.90 GiB of activation"));
  EXPECT_THAT(end.out, HasSubstr("1.19 GiB are missing"));
  EXPECT_THAT(end.out, HasSubstr("The least card for it is 5.19 GiB."));
}

TEST(Plan, SaysWhatStaysAndWhatIsLost) {
  const End end = Planned({kQwen, "--no-load-ahead"});
  EXPECT_EQ(end.status, 0) << end.error;
  EXPECT_THAT(end.out, StartsWith("qwen-image-2.1-24g on a card of 23.50 GiB\n  It fits;"));
  EXPECT_THAT(end.out, HasSubstr("5 requests lose "));
  EXPECT_THAT(end.out, HasSubstr("would lose no more than the first loads, 0.646 s in all."));
}

TEST(Plan, OfOneRequestSpeaksOfOne) {
  std::ifstream file(kQwen);
  nlohmann::json workload = nlohmann::json::parse(file);
  workload["runs"].erase(workload["runs"].begin() + 1, workload["runs"].end());
  const std::string path = testing::TempDir() + "/plan_of_one.json";
  std::ofstream(path) << workload.dump();
  const End end = Planned({path, "--no-load-ahead"});
  EXPECT_EQ(end.status, 0) << end.error;
  EXPECT_THAT(end.out,
              HasSubstr("  1 request loses 0.646 s to loading. From its arrival it takes"));
  EXPECT_THAT(end.out, HasSubstr(" on it loses no more than the first loads"));
}

TEST(Plan, TheCardThatLosesNothingMoreIsTheLeastOne) {
  const End end = Planned({kQwen, "--format=json", "--no-load-ahead"});
  EXPECT_EQ(end.status, 0) << end.error;
  const nlohmann::json plan = nlohmann::json::parse(end.out).at(0);
  const int64_t best = plan.at("best_capacity_bytes");
  const double loss = plan.at("best_stall_seconds");
  EXPECT_EQ(plan.at("components").size(), 3u);
  EXPECT_GT(plan.at("components").at(0).at("kept_layers").at("middle"), 0);
  for (const auto& [capacity, enough] :
       {std::pair{best, true}, std::pair{best - (int64_t{64} << 20), false}}) {
    const End on =
        Planned({kQwen, "--format=json", "--no-load-ahead", absl::StrCat("--capacity=", capacity)});
    const double stall = nlohmann::json::parse(on.out).at(0).at("stall_seconds");
    EXPECT_EQ(stall <= loss + 0.005, enough) << capacity << ": " << stall;
  }
}

// "5.19 GiB" behind `before` in `text`, as a flag takes it.
std::string SizeAfter(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before << " in " << text;
  if (at == std::string::npos) return "";
  const std::vector<std::string> words = absl::StrSplit(text.substr(at + before.size()), ' ');
  return words[0] + words[1].substr(0, 3);
}

TEST(Plan, WhatItSaysIsEnoughIsEnough) {
  for (const auto& entry : std::filesystem::directory_iterator(WORKLOAD_DIR)) {
    if (entry.path().extension() != ".json") continue;
    const std::string misfit = Planned({entry.path(), "--capacity=1GiB"}).out;
    const std::string least = SizeAfter(misfit, "The least card for it is ");
    const End fits = Planned({entry.path(), "--capacity=" + least});
    EXPECT_EQ(fits.status, 0) << least << ": " << fits.out << fits.error;
    const std::string best = SizeAfter(fits.out, "From a card of ");
    const End all = Planned({entry.path(), "--format=json", "--capacity=" + best});
    const nlohmann::json plan = nlohmann::json::parse(all.out).at(0);
    const double allowed = 0.001 * static_cast<double>(Requests(entry.path()));
    EXPECT_LE(plan.at("stall_seconds").get<double>(),
              plan.at("best_stall_seconds").get<double>() + allowed)
        << entry.path() << " on " << best;
  }
}

TEST(Plan, AnswersInJsonWhatDoesNotFit) {
  const End end = Planned({kQwen, "--format=json", "--capacity=1GiB"});
  EXPECT_EQ(end.status, 1);
  const nlohmann::json plan = nlohmann::json::parse(end.out).at(0);
  EXPECT_EQ(plan.at("fits"), false);
  EXPECT_EQ(plan.at("does_not_fit").at("component"), "dit");
  EXPECT_EQ(plan.at("does_not_fit").at("stage"), 1);
  EXPECT_EQ(plan.at("least_capacity_bytes").get<int64_t>() -
                plan.at("does_not_fit").at("missing_bytes").get<int64_t>(),
            int64_t{1} << 30);
}

TEST(Plan, SaysWhatIsWrongWithItsArguments) {
  const End end = Planned({kQwen, "--rule=broker"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.error, HasSubstr("vramctl plan: --rule is no flag of this command"));
  EXPECT_THAT(Planned({}).error, HasSubstr("no workload is named"));
}

}  // namespace
}  // namespace vrambroker::ctl
