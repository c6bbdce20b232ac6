// The plan against the clairvoyant optimum in whole layers: the published workloads, each at four
// card sizes, everything known from the start. bounds.json holds the optimum of an integer program
// for each.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "broker/core/planner.h"
#include "tests/published_bounds.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::core {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

template <typename Message>
Message ReadJson(const std::string& path) {
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(ReadFile(path), &message);
  EXPECT_TRUE(status.ok()) << path << ": " << status.ToString();
  return message;
}

// A sequential workload as one problem: each stage of each run is a use with a slot of its own.
struct Sequential {
  Sequential(const v1::Workload& w, int64_t capacity, bool ahead) {
    int64_t reserve = w.device().reserve_bytes();
    for (const auto& c : w.components()) {
      std::vector<std::pair<int, Bytes>> runs;
      for (const auto& g : c.layer_groups()) runs.emplace_back(g.count(), Bytes(g.layer_bytes()));
      tables.push_back(std::make_unique<LayerTable>(runs));
      PlanComponent p;
      p.layers = tables.back().get();
      p.sigma = ExposedSecondsPerByte(c.pass_seconds(), p.layers->All(),
                                      w.device().h2d_bytes_per_second());
      p.link_share =
          LinkShare(c.pass_seconds(), p.layers->All(), w.device().h2d_bytes_per_second());
      pass_seconds.push_back(c.pass_seconds());
      index[c.name()] = static_cast<int>(problem.components.size());
      int64_t largest = 0;
      for (const auto& g : c.layer_groups()) largest = std::max(largest, g.layer_bytes());
      windows.push_back(largest * (c.window_layers() == 0 ? 2 : c.window_layers()));
      problem.components.push_back(p);
      reserve += c.fixed_bytes();
    }
    problem.capacity = Bytes(capacity - reserve);
    std::map<std::string, const v1::WorkloadPipeline*> pipelines;
    for (const auto& p : w.pipelines()) pipelines[p.name()] = &p;
    for (const auto& run : w.runs()) {
      for (const auto& stage : pipelines.at(run.pipeline())->stages()) {
        PlanUse use;
        use.component = index.at(stage.component());
        use.first_slot = use.last_slot = problem.slots++;
        use.passes = std::max(1, stage.passes());
        use.need = Bytes(stage.activation_bytes());
        use.window = Bytes(windows[static_cast<size_t>(use.component)]);
        const PlanComponent& c = problem.components[static_cast<size_t>(use.component)];
        use.max_resident = c.layers->count();
        if (ahead) {
          problem.link.push_back(w.device().h2d_bytes_per_second() * use.passes *
                                 pass_seconds[static_cast<size_t>(use.component)]);
        }
        all_streamed += c.sigma * c.layers->All().as_double() * use.passes;
        problem.uses.push_back(use);
      }
    }
  }

  // Whether every slot of the plan is within the card and the link.
  bool Fits(const Plan& plan) const {
    std::vector<int64_t> used(static_cast<size_t>(problem.slots), 0);
    std::vector<double> link = problem.link;
    std::map<int, int> previous;
    for (size_t i = 0; i < problem.uses.size(); ++i) {
      const PlanUse& u = problem.uses[i];
      const LayerTable& layers = *problem.components[static_cast<size_t>(u.component)].layers;
      const int k = plan.resident[i];
      used[i] += (layers.Of(k) + u.need).count();
      if (k < layers.count()) used[i] += u.window.count();
      if (const auto it = previous.find(u.component); it != previous.end()) {
        const int kept = plan.kept[static_cast<size_t>(it->second)];
        if (kept > k || kept > plan.resident[static_cast<size_t>(it->second)]) return false;
        for (size_t s = static_cast<size_t>(it->second) + 1; s < i; ++s) {
          used[s] += layers.Of(kept).count();
        }
      }
      int kept = 0;
      if (const auto it = previous.find(u.component); it != previous.end()) {
        kept = plan.kept[static_cast<size_t>(it->second)];
      }
      previous[u.component] = static_cast<int>(i);
      if (link.empty()) continue;
      const int there = kept + plan.loaded[i];
      if (there > k) return false;
      int64_t loaded = 0;
      for (size_t j = 0; j < plan.loads[i].size() && j < i; ++j) {
        const int64_t bytes = plan.loads[i][j];
        loaded += bytes;
        link[i - 1 - j] -= static_cast<double>(bytes);
        for (size_t s = i - 1 - j; s < i; ++s) used[s] += bytes;
      }
      if (loaded != (layers.Of(there) - layers.Of(kept)).count()) return false;
      const double streamed = (layers.All() - layers.Of(there)).as_double() +
                              (layers.All() - layers.Of(k)).as_double() * (u.passes - 1);
      link[i] -= streamed * problem.components[static_cast<size_t>(u.component)].link_share;
    }
    for (double bytes : link) {
      if (bytes < -1) return false;
    }
    for (int64_t bytes : used) {
      if (bytes > problem.capacity.count()) return false;
    }
    return true;
  }

  PlanProblem problem;
  std::vector<std::unique_ptr<LayerTable>> tables;
  std::vector<int64_t> windows;
  std::vector<double> pass_seconds;
  std::map<std::string, int> index;
  double all_streamed = 0;
};

// Prints each row, and holds its stall to `most` times the optimum or 10 ms above it.
void CompareWithTheOptimum(bool ahead, double most) {
  int rows = 0;
  for (const BoundRow& row : BoundRows()) {
    if (!row.fits) continue;
    const auto w = ReadJson<v1::Workload>(std::string(WORKLOAD_DIR) + "/" + row.workload + ".json");
    const Sequential s(w, row.capacity, ahead);
    const Plan plan = MakePlan(s.problem);
    EXPECT_TRUE(s.Fits(plan)) << row.workload << " at " << row.capacity;
    const double optimum = ahead ? row.optimum_ahead : row.optimum;
    const double stall = s.all_streamed - plan.saved_seconds;
    std::printf("%-26s %6.2f GiB  stall %8.4f s  optimum %8.4f s  ratio %.4f\n",
                row.workload.c_str(), static_cast<double>(row.capacity) / (1 << 30), stall, optimum,
                optimum > 0 ? stall / optimum : 1.0);
    EXPECT_GE(stall, optimum - 1e-3) << row.workload << ": below the proven optimum";
    EXPECT_TRUE(stall <= optimum * most || stall <= optimum + 0.010)
        << row.workload << " at " << row.capacity << " bytes: " << stall << " s, optimum "
        << optimum << " s";
    ++rows;
  }
  EXPECT_EQ(rows, 24);
}

TEST(PlannerBounds, IsWithinTwoPercentOfTheOptimumOnEveryPublishedRow) {
  CompareWithTheOptimum(false, 1.02);
}

TEST(PlannerBounds, IsWithinTenPercentOfTheOptimumWithLoadingAhead) {
  CompareWithTheOptimum(true, 1.10);
}

}  // namespace
}  // namespace vrambroker::core
