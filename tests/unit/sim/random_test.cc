// Thousands of workloads made from numbers: what holds for every one of them, and how the broker
// compares with the best of the rules. `vramctl simulate --random SEED` shows one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "broker/sim/random_workload.h"
#include "broker/sim/simulate.h"
#include "tests/lost.h"

namespace vrambroker::sim {
namespace {

// A sanitizer takes several times as long for each of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kPortion = 8;
#else
constexpr int kPortion = 1;
#endif

// Of the mean ratio where uses overlap: a bound of sanity, not a goal.
constexpr double kMostOverlapping = 1.1;

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

struct Compared {
  uint64_t seed = 0;
  double broker = 0;
  double best = 0;
  Rule rule = Rule::kBroker;
  // Of each of OtherRules(), in that order. Empty: a use cannot fit, and nothing is compared.
  std::vector<double> rules;
  // Within 10 ms counts as equal.
  double Ratio() const { return broker <= best + 0.010 ? 1 : broker / std::max(best, 0.010); }
};

// What requests lose in all; checks what holds for every workload.
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
  return LostSeconds(w, *result);
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
    compared.rules.push_back(lost);
    if (lost >= compared.best) continue;
    compared.best = lost;
    compared.rule = rule;
  }
  if (!feasible) {
    compared.broker = compared.best = 0;
    compared.rules.clear();
  }
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

// Geometric mean of what the broker loses against what the others lose; 10 ms are added to both, so
// that a loss of next to nothing weighs as little as it is.
class MeanRatio {
 public:
  void Add(double broker, double other) {
    sum_ += std::log((broker + 0.010) / (other + 0.010));
    ++count_;
  }
  double value() const { return count_ == 0 ? 1 : std::exp(sum_ / count_); }

 private:
  double sum_ = 0;
  int count_ = 0;
};

// Prints the mean ratio to the best rule of each workload, known only in hindsight, and to each
// rule that is used throughout; returns the first and the most of the others.
std::pair<double, double> PrintMeans(const std::vector<Compared>& all) {
  MeanRatio best;
  std::vector<MeanRatio> each(OtherRules().size());
  for (const Compared& c : all) {
    if (c.rules.empty()) continue;
    best.Add(c.broker, c.best);
    for (size_t i = 0; i < each.size(); ++i) each[i].Add(c.broker, c.rules[i]);
  }
  std::printf("  geometric mean of the ratio to the best rule of each: %.4f\n", best.value());
  double most = 0;
  for (size_t i = 0; i < each.size(); ++i) {
    std::printf("    to %s: %.4f\n", std::string(RuleName(OtherRules()[i])).c_str(),
                each[i].value());
    most = std::max(most, each[i].value());
  }
  return {best.value(), most};
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
    const auto [to_best, to_any] = PrintMeans(all);
    const auto worst = std::max_element(
        all.begin(), all.end(),
        [](const Compared& a, const Compared& b) { return a.Ratio() < b.Ratio(); });
    if (worst == all.end()) continue;
    const bool one_by_one =
        GetParam().arrivals == Arrivals::kSequential || GetParam().arrivals == Arrivals::kPoisson;
    if (one_by_one) {
      EXPECT_LE(worse, std::max<int64_t>(1, static_cast<int64_t>(all.size()) / 100));
      EXPECT_LE(worst->Ratio(), 1.06) << "seed " << worst->seed;
    } else {
      // How long one use waits for another weighs more here than what stays, and the best rule of
      // each is known in hindsight only.
      EXPECT_LE(to_best, kMostOverlapping);
      EXPECT_LE(to_any, 1.05);
    }
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
