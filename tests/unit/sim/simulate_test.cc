#include "broker/sim/simulate.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/unit/sim/published.h"

namespace vrambroker::sim {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;

Result Simulated(const Workload& workload, const Options& options) {
  absl::StatusOr<Result> result = Simulate(workload, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : Result();
}

std::vector<Rule> AllRules() {
  std::vector<Rule> rules = OtherRules();
  rules.push_back(Rule::kBroker);
  return rules;
}

// Two components of ten layers of 10 MiB over 100 MiB/s, which need 5 MiB beside; compute hides
// nothing.
Workload TwoParts(int64_t card_mib) {
  Workload w;
  w.name = "two";
  w.device = {card_mib * kMiB, 0, 100.0 * kMiB};
  for (const char* name : {"first", "second"}) {
    w.components.push_back({name, {{10, 10 * kMiB}}, 0, 2, 0});
  }
  w.pipelines = {{"both", {{0, 1, 5 * kMiB}, {1, 1, 5 * kMiB}}}};
  w.runs = {{0, 0}, {0, 0}, {0, 0}};
  return w;
}

TEST(Simulate, LosesOnlyTheFirstLoadOnALargeCard) {
  Options options;
  options.load_ahead = false;
  const Result result = Simulated(TwoParts(300), options);
  EXPECT_TRUE(result.fits);
  EXPECT_NEAR(result.stall_seconds, 2.0, 1e-6);
  EXPECT_EQ(result.bytes_to_device, 200 * kMiB);
  EXPECT_EQ(result.peak_bytes, 205 * kMiB);
  EXPECT_NEAR(result.request_p95_seconds, 2.0, 1e-6);
  EXPECT_NEAR(result.requests[0].stall_seconds, 2.0, 1e-6);
  EXPECT_NEAR(result.requests[2].stall_seconds, 0.0, 1e-6);
  EXPECT_GE(result.decisions, 6);
  EXPECT_EQ(result.decision_p99_seconds, 0);
}

// 100 MiB of layers, 20 MiB of window; 90 MiB are declared, 5 are taken.
Workload OverDeclared(int runs) {
  Workload w = TwoParts(120);
  w.components.pop_back();
  w.pipelines = {{"one", {{0, 2, 5 * kMiB, "512x512", 90 * kMiB}}}};
  w.runs.assign(static_cast<size_t>(runs), {0, 0});
  return w;
}

TEST(Simulate, TheBrokerLearnsWhatAShapeTakesAndTheRulesGoByWhatIsDeclared) {
  Options options;
  options.load_ahead = false;
  const Result learned = Simulated(OverDeclared(8), options);
  EXPECT_TRUE(learned.fits);
  EXPECT_GT(learned.requests[2].stall_seconds, 1.5) << "nothing is known yet";
  EXPECT_NEAR(learned.requests[7].stall_seconds, 0, 1e-6) << "all layers stay";
  options.rule = Rule::kLruPartial;
  const Result by_rule = Simulated(OverDeclared(8), options);
  EXPECT_GT(by_rule.requests[7].stall_seconds, 1.5);
}

TEST(Simulate, WhatIsKnownOfOneShapeSaysNothingOfAnother) {
  Options options;
  options.load_ahead = false;
  Workload w = OverDeclared(8);
  w.pipelines.push_back(w.pipelines[0]);
  w.pipelines[1].name = "other";
  w.pipelines[1].stages[0].shape = "1024x1024";
  w.runs[7].pipeline = 1;
  const Result result = Simulated(w, options);
  EXPECT_NEAR(result.requests[6].stall_seconds, 0, 1e-6);
  EXPECT_GT(result.requests[7].stall_seconds, 0.5);
}

TEST(Simulate, LoadsAheadWhileAnotherComputes) {
  Workload w = TwoParts(300);
  w.components[0].pass_seconds = 10;
  w.pipelines[0].stages[0].passes = 3;
  Options options;
  options.load_ahead = false;
  EXPECT_NEAR(Simulated(w, options).stall_seconds, 1.0, 1e-6);
  options.load_ahead = true;
  options.record = true;
  const Result ahead = Simulated(w, options);
  EXPECT_NEAR(ahead.stall_seconds, 0.0, 1e-6);
  EXPECT_EQ(ahead.bytes_to_device, 200 * kMiB);
  EXPECT_TRUE(std::any_of(ahead.samples.begin(), ahead.samples.end(), [](const Sample& sample) {
    return sample.components[0].in_use && sample.components[1].loading;
  }));
}

TEST(Simulate, WhatIsNotDeclaredIsKeptByRecencyAtMost) {
  for (const Declared declared : {Declared::kAll, Declared::kCurrent, Declared::kNone}) {
    Options options;
    options.declared = declared;
    options.load_ahead = false;
    // Room for one at a time, and half of the other.
    const Result result = Simulated(TwoParts(160), options);
    EXPECT_TRUE(result.fits);
    EXPECT_GT(result.stall_seconds, 2.0);
    EXPECT_LE(result.stall_seconds, 6.0 + 1e-6);
  }
}

TEST(Simulate, SaysWhichUseCannotFit) {
  Workload w = TwoParts(30);
  w.pipelines[0].stages[1].activation_bytes = 15 * kMiB;
  for (const Rule rule : AllRules()) {
    Options options;
    options.rule = rule;
    const Result result = Simulated(w, options);
    EXPECT_FALSE(result.fits) << RuleName(rule);
    ASSERT_EQ(result.requests.size(), 3u);
    for (const RequestRecord& request : result.requests) {
      EXPECT_EQ(request.refused_stage, 1) << RuleName(rule);
      EXPECT_THAT(request.refusal, HasSubstr("35.0 MiB")) << RuleName(rule);
    }
  }
}

TEST(Simulate, FixedBytesThatDoNotFitRefuseTheComponent) {
  Workload w = TwoParts(100);
  w.components[1].fixed_bytes = 101 * kMiB;
  for (const Rule rule : {Rule::kBroker, Rule::kLruPartial}) {
    Options options;
    options.rule = rule;
    EXPECT_FALSE(Simulated(w, options).fits) << RuleName(rule);
  }
}

TEST(Simulate, ARequestRunsFromItsArrival) {
  Workload w = TwoParts(300);
  w.components[0].pass_seconds = w.components[1].pass_seconds = 1;
  w.runs = {{0, 10}, {0, 10.5}};
  for (const Rule rule : AllRules()) {
    Options options;
    options.rule = rule;
    options.load_ahead = false;
    const Result result = Simulated(w, options);
    EXPECT_NEAR(result.requests[0].ended, 12, 1e-6) << RuleName(rule);
    EXPECT_NEAR(result.requests[1].ended, 14, 1e-6) << RuleName(rule);
    EXPECT_NEAR(result.request_p50_seconds, 2, 1e-6) << RuleName(rule);
    EXPECT_NEAR(result.request_p95_seconds, 3.5, 1e-6) << RuleName(rule);
  }
}

TEST(Simulate, OverlappingRunsWaitForBytesAndForTheirComponent) {
  Workload w = TwoParts(120);
  w.components[0].pass_seconds = w.components[1].pass_seconds = 1;
  w.max_concurrent_runs = 3;
  w.pipelines[0].stages[0].activation_bytes = 60 * kMiB;
  for (const Rule rule : AllRules()) {
    Options options;
    options.rule = rule;
    options.record = true;
    const Result result = Simulated(w, options);
    EXPECT_TRUE(result.fits);
    EXPECT_EQ(result.uses.size(), 6u) << RuleName(rule);
    std::set<std::pair<int, double>> starts;
    for (const UseRecord& use : result.uses) {
      EXPECT_GE(use.began, use.asked);
      EXPECT_TRUE(starts.insert({use.component, use.began}).second) << "used twice at once";
    }
  }
}

TEST(Simulate, ArrivingAndOverlappingPublishedWorkloadsRun) {
  for (const char* name : {"qwen-image-2.1-24g-arrivals", "chat-beside-images-24g"}) {
    const Workload published = Published(name);
    for (const double factor : {0.5, 0.75, 1.0, 1.5}) {
      const Workload w = OnCard(
          published,
          static_cast<int64_t>(factor * static_cast<double>(published.device.capacity_bytes)));
      for (const Rule rule : AllRules()) {
        for (const Declared declared : {Declared::kAll, Declared::kCurrent, Declared::kNone}) {
          if (rule != Rule::kBroker && declared != Declared::kAll) continue;
          Options options;
          options.rule = rule;
          options.declared = declared;
          options.check_core = true;
          const Result result = Simulated(w, options);
          EXPECT_TRUE(result.fits) << name << " " << RuleName(rule);
          EXPECT_LE(result.peak_bytes, w.device.capacity_bytes - w.device.reserve_bytes);
          EXPECT_GT(result.request_p50_seconds, 0);
        }
      }
    }
  }
}

TEST(Simulate, TheSameInputGivesTheSameOutput) {
  const Workload w = Published("chat-beside-images-24g");
  for (const Rule rule : AllRules()) {
    Options options;
    options.rule = rule;
    options.record = true;
    const Result one = Simulated(w, options);
    const Result two = Simulated(w, options);
    EXPECT_EQ(one.stall_seconds, two.stall_seconds);
    EXPECT_EQ(one.bytes_to_device, two.bytes_to_device);
    EXPECT_EQ(one.request_p95_seconds, two.request_p95_seconds);
    EXPECT_EQ(one.decisions, two.decisions);
    ASSERT_EQ(one.samples.size(), two.samples.size());
    for (size_t i = 0; i < one.samples.size(); ++i) {
      EXPECT_EQ(one.samples[i].time, two.samples[i].time);
      EXPECT_EQ(one.samples[i].components, two.samples[i].components);
    }
  }
}

TEST(Simulate, RecordsTheCardOverTime) {
  Options options;
  options.record = true;
  const Workload w = Published("qwen-image-2.1-24g");
  const Result result = Simulated(w, options);
  ASSERT_THAT(result.samples, Not(IsEmpty()));
  int64_t peak = 0, fixed = 0;
  for (const Component& c : w.components) fixed += c.fixed_bytes;
  for (size_t i = 0; i < result.samples.size(); ++i) {
    const Sample& sample = result.samples[i];
    EXPECT_TRUE(i == 0 || sample.time > result.samples[i - 1].time);
    int64_t bytes = fixed;
    for (const Sample::Component& c : sample.components) {
      bytes += c.layers + c.needs;
      EXPECT_TRUE(c.in_use || c.needs == 0);
    }
    peak = std::max(peak, bytes);
  }
  EXPECT_EQ(peak, result.peak_bytes);
  EXPECT_EQ(result.uses.size(), 15u);
}

TEST(Simulate, TimesDecisionsByTheClockThatItIsGiven) {
  int64_t now = 0;
  Options options;
  options.clock = [&now] { return now += 1000; };
  EXPECT_NEAR(Simulated(TwoParts(300), options).decision_p99_seconds, 1e-6, 1e-12);
}

TEST(Simulate, RefusesAWorkloadThatIsWrong) {
  Workload w = TwoParts(300);
  w.device.link_rate = 0;
  EXPECT_EQ(Simulate(w, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Percentile, IsByNearestRank) {
  EXPECT_EQ(Percentile({}, 50), 0);
  EXPECT_EQ(Percentile({3}, 99), 3);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 50), 2);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 95), 4);
}

}  // namespace
}  // namespace vrambroker::sim
