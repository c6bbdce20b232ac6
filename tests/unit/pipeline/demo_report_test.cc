#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/pipeline/demo.h"

namespace vrambroker::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ArmResult Ran(const std::string& name, int64_t bytes, double seconds) {
  ArmResult arm;
  arm.name = name;
  arm.ran = true;
  arm.request_seconds = {seconds + 0.2, seconds, seconds + 0.1};
  arm.stall_seconds = 0.06;
  arm.bytes_to_device = bytes;
  arm.peak_bytes = 1000;
  arm.results = {"aa", "bb", "cc", "dd"};
  return arm;
}

ArmResult Failed(const std::string& name, bool must_run) {
  ArmResult arm;
  arm.name = name;
  arm.must_run = must_run;
  arm.error = "RESOURCE_EXHAUSTED: out of memory";
  return arm;
}

CardResult Card(double gib, const ArmResult& local_rule) {
  CardResult card;
  card.capacity_gib = gib;
  card.card_bytes = 500 << 20;
  card.link_bytes_per_second = 3.7e9;
  card.arms = {Ran("streamed", 900, 1.7), local_rule, Ran("broker", 300, 1.6)};
  card.order = {"streamed", "local_rule", "broker"};
  return card;
}

DemoResult AsTheMissionExpects() {
  DemoResult result;
  result.bytes_scale = 64;
  result.time_scale = 8;
  result.requests = 3;
  result.warm_ups = 1;
  result.cards = {Card(31.4, Ran("local_rule", 400, 1.65)),
                  Card(23.5, Failed("local_rule", false))};
  return result;
}

TEST(DemoReport, JsonHasTheFieldsThatReadersRelyOn) {
  const auto json = nlohmann::json::parse(DemoJson(AsTheMissionExpects()));
  EXPECT_EQ(json["scale"]["bytes"], 64);
  EXPECT_EQ(json["scale"]["time"], 8);
  ASSERT_EQ(json["cards"].size(), 2u);
  EXPECT_EQ(json["cards"][0]["capacity_gib"], 31.4);
  const auto& arm = json["cards"][0]["arms"][0];
  EXPECT_EQ(arm["name"], "streamed");
  EXPECT_EQ(arm["ran"], true);
  EXPECT_EQ(arm["error"], "");
  EXPECT_EQ(arm["requests"], 3);
  EXPECT_DOUBLE_EQ(arm["p50_seconds"], 1.8);
  EXPECT_DOUBLE_EQ(arm["p95_seconds"], 1.9);
  EXPECT_DOUBLE_EQ(arm["stall_seconds"], 0.06);
  EXPECT_EQ(arm["bytes_to_device"], 900);
  EXPECT_EQ(arm["peak_bytes"], 1000);
  EXPECT_EQ(arm["result_sha256"].get<std::string>().size(), 64u);
  const auto& failed = json["cards"][1]["arms"][1];
  EXPECT_EQ(failed["ran"], false);
  EXPECT_THAT(failed["error"].get<std::string>(), HasSubstr("out of memory"));
  EXPECT_EQ(failed["requests"], 0);
  EXPECT_EQ(failed["result_sha256"], "");
  EXPECT_EQ(json["bit_identical"], true);
}

TEST(DemoReport, ResultsOfEveryRequestCount) {
  DemoResult result = AsTheMissionExpects();
  EXPECT_TRUE(ResultsAgree(result));
  EXPECT_THAT(DemoFaults(result), IsEmpty());
  result.cards[1].arms[2].results[0] = "other";
  EXPECT_FALSE(ResultsAgree(result));
  EXPECT_THAT(DemoFaults(result), ElementsAre(HasSubstr("results of requests differ")));
  EXPECT_NE(result.cards[1].arms[2].ResultSha256(), result.cards[1].arms[0].ResultSha256());
  EXPECT_THAT(DemoTable(result), HasSubstr("NOT THE SAME"));
}

TEST(DemoReport, AnArmThatMustRunAndDidNotIsAFault) {
  DemoResult result = AsTheMissionExpects();
  result.cards[1].arms[2] = Failed("broker", true);
  EXPECT_THAT(DemoFaults(result), ElementsAre(HasSubstr("broker did not run on the card of 23.5")));
}

TEST(DemoReport, WhatTheMissionExpectsIsChecked) {
  EXPECT_THAT(ExpectationFaults(AsTheMissionExpects()), IsEmpty());

  DemoResult moves_more = AsTheMissionExpects();
  moves_more.cards[0].arms[2].bytes_to_device = 900;
  EXPECT_THAT(ExpectationFaults(moves_more), ElementsAre(HasSubstr("not fewer")));

  DemoResult runs_on_small = AsTheMissionExpects();
  runs_on_small.cards[1].arms[1] = Ran("local_rule", 400, 1.65);
  EXPECT_THAT(ExpectationFaults(runs_on_small),
              ElementsAre(HasSubstr("did not run out of memory on the smallest")));

  DemoResult other_error = AsTheMissionExpects();
  other_error.cards[1].arms[1].error = "UNAVAILABLE: gone";
  EXPECT_THAT(ExpectationFaults(other_error), ElementsAre(HasSubstr("UNAVAILABLE: gone")));

  DemoResult fails_on_large = AsTheMissionExpects();
  fails_on_large.cards[0].arms[1] = Failed("local_rule", false);
  EXPECT_THAT(ExpectationFaults(fails_on_large), ElementsAre(HasSubstr("largest card")));

  DemoResult too_few = AsTheMissionExpects();
  too_few.cards[0].arms.pop_back();
  EXPECT_THAT(ExpectationFaults(too_few), ElementsAre(HasSubstr("are needed")));
}

TEST(DemoReport, TheTableShowsGainsAndPublishedFigures) {
  const std::string table = DemoTable(AsTheMissionExpects());
  EXPECT_THAT(table, HasSubstr("Card of 31.4 GiB"));
  // Median of the broker's requests, 1.7 s, over 1.8 s.
  EXPECT_THAT(table, HasSubstr("+0.100"));
  EXPECT_THAT(table, HasSubstr("14.136     1.767"));
  EXPECT_THAT(table, HasSubstr("13.737     1.717"));
  EXPECT_THAT(table, HasSubstr("no start"));
  EXPECT_THAT(table, HasSubstr("local_rule did not run: RESOURCE_EXHAUSTED"));
  EXPECT_THAT(table, HasSubstr("bit-identical across the 5 runs"));
  EXPECT_THAT(table, Not(HasSubstr("NOT THE SAME")));
}

TEST(DemoReport, ArmsWithLoadingAheadHaveATableOfTheirOwn) {
  DemoResult result = AsTheMissionExpects();
  EXPECT_THAT(DemoTable(result), Not(HasSubstr("Loading ahead")));
  ArmResult ahead = Ran("broker_ahead", 5 << 20, 1.5);
  ahead.load_ahead = true;
  ahead.bytes_loaded_ahead = 2 << 20;
  result.cards[0].arms.push_back(ahead);
  ArmResult failed = Failed("broker_ahead", true);
  failed.load_ahead = true;
  result.cards[1].arms.push_back(failed);
  const std::string table = DemoTable(result);
  const size_t second = table.find("Loading ahead, card of 31.4 GiB");
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(table.substr(0, second).find("broker_ahead"), std::string::npos);
  EXPECT_THAT(table.substr(second), HasSubstr("  broker            yes     1.700    1.800"));
  EXPECT_THAT(table.substr(second), HasSubstr("  broker_ahead      yes     1.600    1.700"));
  EXPECT_THAT(table.substr(second), HasSubstr("5.00 MiB    2.00 MiB"));
  EXPECT_THAT(table.substr(second), HasSubstr("broker_ahead      no   RESOURCE_EXHAUSTED"));
  const auto json = nlohmann::json::parse(DemoJson(result));
  EXPECT_EQ(json["cards"][0]["arms"][3]["bytes_loaded_ahead"], 2 << 20);
  EXPECT_EQ(json["cards"][0]["arms"][3]["load_ahead"], true);
  EXPECT_EQ(json["cards"][0]["arms"][0]["load_ahead"], false);
  // Their results count as everybody's do.
  result.cards[0].arms[3].results[0] = "other";
  EXPECT_FALSE(ResultsAgree(result));
  EXPECT_EQ(DemoFaults(result).size(), 2u);
}

TEST(Arms, WithLoadingAheadAreTheSameButForThat) {
  const absl::StatusOr<std::vector<Arm>> arms =
      ChooseArms({"broker_ahead", "broker", "broker_all", "broker_all_ahead"}, 64);
  ASSERT_TRUE(arms.ok());
  ASSERT_EQ(arms->size(), 4u);
  for (int i : {0, 1}) {
    EXPECT_FALSE((*arms)[i].load_ahead);
    EXPECT_TRUE((*arms)[i + 2].load_ahead);
    EXPECT_EQ((*arms)[i + 2].name, (*arms)[i].name + "_ahead");
    EXPECT_TRUE((*arms)[i + 2].broker);
    EXPECT_EQ((*arms)[i + 2].workers.size(), (*arms)[i].workers.size());
  }
  EXPECT_THAT(std::string(ChooseArms({"broker", "broker"}, 64).status().message()),
              HasSubstr("'broker' given twice"));
}

TEST(Arms, AreChosenByName) {
  const absl::StatusOr<std::vector<Arm>> arms = ChooseArms({"broker", "streamed"}, 64);
  ASSERT_TRUE(arms.ok());
  ASSERT_EQ(arms->size(), 2u);
  EXPECT_EQ((*arms)[0].name, "streamed");
  EXPECT_FALSE((*arms)[0].broker);
  EXPECT_EQ((*arms)[0].workers.at("dit").lifetime, "permanent");
  EXPECT_TRUE((*arms)[1].broker);
  EXPECT_THAT(std::string(ChooseArms({"best"}, 64).status().message()), HasSubstr("'best'"));
  EXPECT_FALSE(ChooseArms({}, 64).ok());
}

TEST(Arms, TheLocalRulesBytesAreScaled) {
  for (const Arm& arm : AllArms(64)) {
    if (arm.name != "local_rule") continue;
    EXPECT_EQ(arm.workers.at("text_encoder").retain, "if-free:67108864");
    EXPECT_EQ(arm.workers.at("text_encoder").resident, "0.8");
    EXPECT_EQ(arm.workers.at("text_encoder").allocate, "whole");
    EXPECT_FALSE(arm.must_run);
  }
}

}  // namespace
}  // namespace vrambroker::pipeline
