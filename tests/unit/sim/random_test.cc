// Thousands of workloads made from numbers: what holds for every one of them, and how the broker
// compares with the best of the rules. `vramctl simulate --random SEED` shows one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "broker/sim/random_workload.h"
#include "broker/sim/simulate.h"

namespace vrambroker::sim {
namespace {

// A sanitizer takes several times as long for each of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kPortion = 8;
#else
constexpr int kPortion = 1;
#endif

// Numbers that make workloads of one kind; VRAM_RANDOM_WORKLOADS says how many instead.
std::vector<uint64_t> Seeds(Arrivals arrivals, int otherwise) {
  const char* text = std::getenv("VRAM_RANDOM_WORKLOADS");
  const int count = text == nullptr ? otherwise / kPortion : std::atoi(text);
  std::vector<uint64_t> seeds;
  seeds.reserve(static_cast<size_t>(std::max(0, count)));
  for (int i = 0; i < count; ++i) {
    seeds.push_back(static_cast<uint64_t>(i) * 4 + static_cast<uint64_t>(arrivals));
  }
  return seeds;
}

// Whether the least need of every use of every run fits the card: a window, or all layers.
bool Feasible(const Workload& w) {
  int64_t room = w.device.capacity_bytes - w.device.reserve_bytes;
  for (const Component& c : w.components) room -= c.fixed_bytes;
  for (const Run& run : w.runs) {
    for (const Stage& stage : w.pipelines[static_cast<size_t>(run.pipeline)].stages) {
      const Component& c = w.components[static_cast<size_t>(stage.component)];
      const int64_t layers = std::min(c.WindowBytes(), c.Layers().All().count());
      if (layers + stage.activation_bytes > room) return false;
    }
  }
  return true;
}

double ComputeSeconds(const Workload& w, int run) {
  double seconds = 0;
  const Run& r = w.runs[static_cast<size_t>(run)];
  for (const Stage& stage : w.pipelines[static_cast<size_t>(r.pipeline)].stages) {
    seconds += stage.passes * w.components[static_cast<size_t>(stage.component)].pass_seconds;
  }
  return seconds;
}

struct Compared {
  uint64_t seed = 0;
  double broker = 0;
  double best = 0;
  Rule rule = Rule::kBroker;
  // Within 10 ms counts as equal.
  double Ratio() const { return broker <= best + 0.010 ? 1 : broker / std::max(best, 0.010); }
};

// What requests lose in all: to loading, and where runs overlap, to waiting for each other as well.
// One rule has a use wait until it fits whole where another lets it stream at once.
double Lost(const Workload& w, const Options& options, bool feasible, uint64_t seed) {
  const absl::StatusOr<Result> result = Simulate(w, options);
  EXPECT_TRUE(result.ok()) << "seed " << seed << ", " << RuleName(options.rule) << ": "
                           << result.status();
  if (!result.ok()) return 0;
  EXPECT_EQ(result->fits, feasible) << "seed " << seed << ", " << RuleName(options.rule);
  EXPECT_LE(result->peak_bytes, w.device.capacity_bytes - w.device.reserve_bytes)
      << "seed " << seed;
  EXPECT_TRUE(std::all_of(result->requests.begin(), result->requests.end(),
                          [](const RequestRecord& r) { return r.ended >= r.arrived; }))
      << "seed " << seed;
  if (w.max_concurrent_runs == 1) return result->stall_seconds;
  double lost = 0;
  for (const RequestRecord& r : result->requests)
    lost += r.ended - r.arrived - ComputeSeconds(w, r.run);
  return lost;
}

Compared Compare(const Workload& w, const Options& options, uint64_t seed) {
  Compared compared;
  compared.seed = seed;
  const bool feasible = Feasible(w);
  compared.broker = Lost(w, options, feasible, seed);
  compared.best = std::numeric_limits<double>::infinity();
  for (const Rule rule : OtherRules()) {
    Options other;
    other.rule = rule;
    const double lost = Lost(w, other, feasible, seed);
    if (lost >= compared.best) continue;
    compared.best = lost;
    compared.rule = rule;
  }
  if (!feasible) compared.broker = compared.best = 0;
  return compared;
}

// Prints how the broker compares, the worst first; returns how many workloads it is worse on.
int64_t Print(const std::string& what, std::vector<Compared> all) {
  std::sort(all.begin(), all.end(),
            [](const Compared& a, const Compared& b) { return a.Ratio() > b.Ratio(); });
  const auto worse =
      std::count_if(all.begin(), all.end(), [](const Compared& c) { return c.Ratio() > 1.01; });
  std::printf("%s: %zu workloads, worse than the best rule by more than 1 %% and 10 ms: %td\n",
              what.c_str(), all.size(), worse);
  for (size_t i = 0; i < std::min<size_t>(all.size(), 8) && all[i].Ratio() > 1.01; ++i) {
    std::printf("  seed %4llu: broker %9.4f s, %s %9.4f s, ratio %.4f\n",
                static_cast<unsigned long long>(all[i].seed), all[i].broker,
                std::string(RuleName(all[i].rule)).c_str(), all[i].best, all[i].Ratio());
  }
  return worse;
}

struct Kind {
  const char* name;
  Arrivals arrivals;
};
constexpr Kind kKinds[] = {{"sequential", Arrivals::kSequential},
                           {"poisson", Arrivals::kPoisson},
                           {"overlapping", Arrivals::kOverlapping},
                           {"busy model", Arrivals::kBusyModel}};

class RandomWorkloads : public testing::TestWithParam<Kind> {};

TEST_P(RandomWorkloads, RunWithinTheCardAndCompareWithTheRules) {
  for (const bool ahead : {false, true}) {
    std::vector<Compared> all;
    for (const uint64_t seed : Seeds(GetParam().arrivals, 400)) {
      Options options;
      options.load_ahead = ahead;
      options.declared = Declared::kAll;
      all.push_back(Compare(RandomWorkload(seed), options, seed));
    }
    const int64_t worse =
        Print(std::string(GetParam().name) + (ahead ? ", loading ahead" : ", not ahead"), all);
    // Where uses overlap, how long one waits for another weighs more than what stays.
    const bool one_by_one =
        GetParam().arrivals == Arrivals::kSequential || GetParam().arrivals == Arrivals::kPoisson;
    EXPECT_LE(one_by_one ? worse * 10 : 0, static_cast<int64_t>(all.size()));
  }
}

TEST_P(RandomWorkloads, RunWithLittleDeclared) {
  for (const uint64_t seed : Seeds(GetParam().arrivals, 100)) {
    const Workload w = RandomWorkload(seed);
    for (const Declared declared : {Declared::kCurrent, Declared::kNone}) {
      Options options;
      options.declared = declared;
      options.check_core = true;
      Lost(w, options, Feasible(w), seed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomWorkloads, testing::ValuesIn(kKinds),
                         [](const testing::TestParamInfo<Kind>& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(RandomWorkload, IsWithinBoundsAndTheSameEveryTime) {
  int sequential = 0, infeasible = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Workload w = RandomWorkload(seed);
    ASSERT_TRUE(Validate(w).ok()) << "seed " << seed << ": " << Validate(w);
    sequential += w.Sequential() ? 1 : 0;
    infeasible += Feasible(w) ? 0 : 1;
    const Workload again = RandomWorkload(seed);
    EXPECT_EQ(w.device.capacity_bytes, again.device.capacity_bytes);
    EXPECT_EQ(w.runs.size(), again.runs.size());
  }
  EXPECT_EQ(sequential, 500);
  EXPECT_GT(infeasible, 5);
  EXPECT_LT(infeasible, 100);
}

}  // namespace
}  // namespace vrambroker::sim
