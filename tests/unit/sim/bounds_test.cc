// Every published row: sequential workloads at four card sizes. That the rules lose what an
// independent program says they lose is the check on the simulator.
#include <cstdio>

#include "tests/unit/sim/published.h"

namespace vrambroker::sim {
namespace {

constexpr double kGiB = 1073741824.0;

// What a rule loses and moves, reckoned use by use: no events, no time.
struct Reckoned {
  double stall = 0;
  double moved = 0;
};

Reckoned Reckon(const Workload& w, Rule rule) {
  std::vector<core::LayerTable> layers;
  int64_t capacity = w.device.capacity_bytes - w.device.reserve_bytes;
  for (const Component& c : w.components) {
    layers.push_back(c.Layers());
    capacity -= c.fixed_bytes;
  }
  std::vector<int> held(w.components.size(), 0);
  std::vector<uint64_t> used(w.components.size(), 0);
  uint64_t last = 0;
  Reckoned sum;
  for (const Run& run : w.runs) {
    for (const Stage& stage : w.pipelines[static_cast<size_t>(run.pipeline)].stages) {
      const size_t me = static_cast<size_t>(stage.component);
      const int64_t all = layers[me].All().count();
      const int mine = std::exchange(held[me], 0);
      std::vector<Retained> retained;
      for (size_t c = 0; c < held.size(); ++c) retained.push_back({&layers[c], held[c], used[c]});
      int64_t left = capacity - stage.activation_bytes;
      const std::vector<int> kept = KeptBy(rule, retained, std::max<int64_t>(0, left - all));
      for (size_t c = 0; c < held.size(); ++c) left -= layers[c].Of(held[c] = kept[c]).count();
      const int64_t beside = std::max<int64_t>(0, left - w.components[me].WindowBytes());
      const int r = all <= left ? layers[me].count() : layers[me].Within(core::Bytes(beside));
      const double whole = static_cast<double>(all);
      const double streamed = (whole - layers[me].Of(std::min(mine, r)).as_double()) +
                              (stage.passes - 1) * (whole - layers[me].Of(r).as_double());
      sum.moved += streamed;
      sum.stall +=
          streamed * std::max(0.0, 1 / w.device.link_rate - w.components[me].pass_seconds / whole);
      held[me] = r;
      used[me] = ++last;
    }
  }
  return sum;
}

TEST(Bounds, RulesLoseWhatIsPublishedOnEveryRow) {
  int compared = 0;
  for (const BoundRow& row : BoundRows()) {
    const Workload workload = OnCard(Published(row.workload), row.capacity);
    for (const Rule rule : OtherRules()) {
      const std::string name(RuleName(rule));
      SCOPED_TRACE(testing::Message() << row.workload << " at " << row.capacity << ", " << name);
      Options options;
      options.rule = rule;
      const absl::StatusOr<Result> result = Simulate(workload, options);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->fits, row.fits);
      if (!row.fits) continue;
      // The published figures have four decimals.
      const double published = row.rules.at(name);
      EXPECT_NEAR(result->stall_seconds, published, published * 0.001 + 1e-4);
      const Reckoned reckoned = Reckon(workload, rule);
      EXPECT_NEAR(result->stall_seconds, reckoned.stall, reckoned.stall * 1e-6 + 1e-6);
      EXPECT_NEAR(static_cast<double>(result->bytes_to_device), reckoned.moved, 16);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 24 * 5);
}

TEST(Bounds, TheBrokerGrantsNothingTwiceAndRunsWhateverFits) {
  int rows = 0;
  for (const BoundRow& row : BoundRows()) {
    const Workload workload = OnCard(Published(row.workload), row.capacity);
    for (const Declared declared : {Declared::kAll, Declared::kCurrent, Declared::kNone}) {
      for (const bool ahead : {false, true}) {
        Options options;
        options.declared = declared;
        options.load_ahead = ahead;
        options.check_core = true;
        const absl::StatusOr<Result> result = Simulate(workload, options);
        ASSERT_TRUE(result.ok()) << row.workload << " at " << row.capacity << ": "
                                 << result.status();
        EXPECT_EQ(result->fits, row.fits) << row.workload << " at " << row.capacity;
        EXPECT_LE(result->peak_bytes, row.capacity - workload.device.reserve_bytes);
        if (!row.fits || declared != Declared::kAll) continue;
        const double optimum = ahead ? row.optimum_ahead : row.optimum;
        std::printf("%-26s %6.2f GiB  %-9s stall %8.4f s  optimum %8.4f s  ratio %7.4f\n",
                    row.workload.c_str(), static_cast<double>(row.capacity) / kGiB,
                    ahead ? "ahead" : "not ahead", result->stall_seconds, optimum,
                    optimum > 0 ? result->stall_seconds / optimum : 1.0);
        ++rows;
      }
    }
  }
  EXPECT_EQ(rows, 24 * 2);
}

}  // namespace
}  // namespace vrambroker::sim
