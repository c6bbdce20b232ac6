#include "broker/sim/what_if.h"

#include <algorithm>
#include <set>
#include <utility>

namespace vrambroker::sim {
namespace {

constexpr int64_t kFinest = int64_t{16} << 20;
constexpr double kSecondsEach = 0.001;

std::optional<LayerRange> RangeOf(std::vector<int> layers) {
  if (layers.empty()) return std::nullopt;
  std::sort(layers.begin(), layers.end());
  return LayerRange{layers.front(), layers[layers.size() / 2], layers.back()};
}

std::vector<ComponentPlan> PlansOf(const Workload& workload, std::vector<UseRecord> uses) {
  std::stable_sort(uses.begin(), uses.end(),
                   [](const UseRecord& a, const UseRecord& b) { return a.began < b.began; });
  std::vector<std::vector<int>> resident(workload.components.size()), kept = resident;
  for (const UseRecord& use : uses) {
    resident[static_cast<size_t>(use.component)].push_back(use.granted);
    kept[static_cast<size_t>(use.component)].push_back(use.kept);
  }
  std::vector<ComponentPlan> plans;
  for (size_t c = 0; c < workload.components.size(); ++c) {
    ComponentPlan plan;
    plan.uses = static_cast<int>(resident[c].size());
    if (!kept[c].empty()) kept[c].pop_back();  // nothing comes after the last
    plan.resident = RangeOf(resident[c]).value_or(LayerRange());
    plan.kept = RangeOf(kept[c]);
    plans.push_back(plan);
  }
  return plans;
}

// Everything at once: all layers, and the largest need in every lane.
int64_t CapacityForAll(const Workload& w) {
  const int64_t lanes =
      std::min<int64_t>(w.max_concurrent_runs, static_cast<int64_t>(w.components.size()));
  int64_t bytes = w.device.reserve_bytes + FixedBytes(w) + lanes * FindLargestNeed(w).bytes();
  for (const Component& c : w.components) bytes += c.Layers().All().count();
  return bytes;
}

class Search {
 public:
  Search(const Workload& workload, const Options& options)
      : workload_(workload), options_(options) {
    options_.record = false;
    options_.clock = nullptr;
  }

  absl::Status Run(WhatIf* what_if) {
    int64_t high = RoundUpAsShown(CapacityForAll(workload_));
    const absl::StatusOr<double> best = StallOn(high);
    if (!best.ok()) return best.status();
    what_if->stall_at_best = *best;
    const double allowed = *best + kSecondsEach * static_cast<double>(workload_.runs.size());
    int64_t low = LeastCapacity(workload_) - 1;
    while (high - low > kFinest) {
      // Only cards that can be named exactly are looked at, so that the one found is one.
      const int64_t middle = RoundUpAsShown(low + (high - low) / 2);
      if (middle >= high) break;
      const absl::StatusOr<double> stall = StallOn(middle);
      if (!stall.ok()) return stall.status();
      (*stall <= allowed ? high : low) = middle;
    }
    what_if->capacity_at_best = high;
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<double> StallOn(int64_t capacity) {
    workload_.device.capacity_bytes = capacity;
    const absl::StatusOr<Result> result = Simulate(workload_, options_);
    if (!result.ok()) return result.status();
    return result->stall_seconds;
  }

  Workload workload_;
  Options options_;
};

}  // namespace

int64_t FixedBytes(const Workload& workload) {
  int64_t bytes = 0;
  for (const Component& c : workload.components) bytes += c.fixed_bytes;
  return bytes;
}

int64_t RoundUpAsShown(int64_t bytes) {
  // {unit, parts of it that are shown}
  constexpr std::pair<int64_t, int64_t> kShown[] = {
      {int64_t{1} << 30, 100}, {int64_t{1} << 20, 10}, {int64_t{1} << 10, 10}};
  for (const auto& [unit, parts] : kShown) {
    if (bytes < unit) continue;
    // Whole units apart, so that nothing overflows.
    const int64_t rest = bytes % unit;
    const int64_t shown = (rest * parts + unit - 1) / unit;
    return bytes - rest + shown * unit / parts;
  }
  return bytes;
}

LargestNeed FindLargestNeed(const Workload& w) {
  std::set<int> pipelines;
  for (const Run& run : w.runs) pipelines.insert(run.pipeline);
  LargestNeed largest;
  for (const int p : pipelines) {
    const std::vector<Stage>& stages = w.pipelines[static_cast<size_t>(p)].stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      const Component& c = w.components[static_cast<size_t>(stages[s].component)];
      const LargestNeed need{p, static_cast<int>(s), stages[s].component, stages[s].Declared(),
                             std::min(c.WindowBytes(), c.Layers().All().count())};
      if (need.bytes() > largest.bytes()) largest = need;
    }
  }
  return largest;
}

int64_t LeastCapacity(const Workload& workload) {
  return workload.device.reserve_bytes + FixedBytes(workload) + FindLargestNeed(workload).bytes();
}

absl::StatusOr<WhatIf> AskWhatIf(const Workload& workload, Options options) {
  if (absl::Status status = Validate(workload); !status.ok()) return status;
  WhatIf what_if;
  what_if.fits = workload.device.capacity_bytes >= LeastCapacity(workload);
  if (!what_if.fits) return what_if;
  options.rule = Rule::kBroker;
  options.record = true;
  absl::StatusOr<Result> result = Simulate(workload, options);
  if (!result.ok()) return result.status();
  what_if.result = *std::move(result);
  what_if.components = PlansOf(workload, what_if.result.uses);
  if (absl::Status s = Search(workload, options).Run(&what_if); !s.ok()) return s;
  return what_if;
}

}  // namespace vrambroker::sim
