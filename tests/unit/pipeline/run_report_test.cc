#include "stage_workers/pipeline/run_report.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace vrambroker::pipeline {
namespace {

using ::testing::HasSubstr;

DriverReport Report() {
  DriverReport report;
  for (int run = 0; run < 4; ++run) {
    RequestRecord request;
    request.run = run;
    request.pipeline = "text_to_image";
    request.warm_up = run == 0;
    request.queued_seconds = run;
    request.seconds = 10 - run;
    request.stall_seconds = 0.5;
    request.bytes_to_device = 1 << 20;
    request.result_sha256 = std::string(64, static_cast<char>('a' + run));
    StageRecord stage;
    stage.component = "te";
    stage.kept_layers = 5;
    stage.component_layers = 12;
    request.stages.push_back(stage);
    report.requests.push_back(request);
  }
  report.requests[3].status = absl::ResourceExhaustedError("out of memory");
  report.requests[3].result_sha256.clear();
  report.bytes_to_device = 3 << 20;
  report.device_peak_bytes = 7 << 20;
  report.device_uuid = "emulated:x";
  report.device_capacity_bytes = 8 << 20;
  return report;
}

TEST(RunReport, TotalsLeaveOutWarmUpsAndFailures) {
  const RunTotals totals = Totals(Report());
  EXPECT_EQ(totals.requests, 2);
  EXPECT_EQ(totals.failed, 1);
  EXPECT_EQ(totals.p50_seconds, 8);
  EXPECT_EQ(totals.p95_seconds, 9);
  EXPECT_EQ(totals.mean_queued_seconds, 1.5);
  EXPECT_EQ(totals.stall_seconds, 0.5);
  EXPECT_EQ(totals.result_sha256.size(), 64u);
}

TEST(RunReport, TheTableNamesWhatFailed) {
  const std::string table = RunTable("w", Report());
  EXPECT_THAT(table, HasSubstr("failed: RESOURCE_EXHAUSTED: out of memory"));
  EXPECT_THAT(table, HasSubstr("5/12"));
  EXPECT_THAT(table, HasSubstr("(warm-up)"));
  EXPECT_THAT(table, HasSubstr("2 requests, 1 failed"));
}

TEST(RunReport, JsonTellsRequestsStagesAndTotals) {
  const auto json = nlohmann::json::parse(RunJson("w", Report()));
  EXPECT_EQ(json["workload"], "w");
  ASSERT_EQ(json["requests"].size(), 4u);
  EXPECT_EQ(json["requests"][0]["warm_up"], true);
  EXPECT_EQ(json["requests"][1]["stages"][0]["kept_layers"], 5);
  EXPECT_EQ(json["requests"][3]["ran"], false);
  EXPECT_EQ(json["totals"]["failed"], 1);
  EXPECT_EQ(json["totals"]["bytes_to_device"], 3 << 20);
  EXPECT_EQ(json["totals"]["peak_bytes"], 7 << 20);
}

TEST(RunReport, WhatIsNotKnownIsNotZero) {
  DriverReport report = Report();
  for (RequestRecord& request : report.requests) request.status = absl::UnavailableError("gone");
  report.bytes_to_device.reset();
  const std::string table = RunTable("w", report);
  EXPECT_THAT(table, HasSubstr("0 requests, 4 failed: p50 -, p95 -, queued -, lost to loading -"));
  EXPECT_THAT(table, HasSubstr("moved to the card: not known"));
  const auto totals = nlohmann::json::parse(RunJson("w", report))["totals"];
  for (const char* name :
       {"p50_seconds", "p95_seconds", "queued_seconds", "stall_seconds", "bytes_to_device"}) {
    EXPECT_TRUE(totals.at(name).is_null()) << name;
  }
}

TEST(RunReport, UndeclaredRunsAreSaid) {
  DriverReport report = Report();
  report.undeclared_runs = 2;
  report.undeclared_reason = absl::ResourceExhaustedError("65536 runs");
  EXPECT_THAT(RunTable("w", report), HasSubstr("2 runs were not declared"));
  EXPECT_EQ(nlohmann::json::parse(RunJson("w", report))["totals"]["undeclared_runs"], 2);
}

}  // namespace
}  // namespace vrambroker::pipeline
