// Processor time of one decision: of the plan alone, and of the whole step of the core that begins
// or ends a use. Components, cards and orders of uses are made from numbers.
#include <algorithm>
#include <ctime>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/planner.h"
#include "broker/sim/simulate.h"
#include "tests/bench/bench.h"

namespace vrambroker::bench {
namespace {

constexpr double kLinkRate = 25e9;
constexpr int kProblems = 300;
constexpr int kWorkloads = 4;
constexpr int kStages = 32;

struct Size {
  int components;
  int uses;
  double goal_seconds;  // p99
};
constexpr Size kSizes[] = {{8, 32, 100e-6}, {32, 128, 1e-3}};

// Of this thread: what other processes take of the core does not count.
int64_t ProcessorNanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  // 0 to below - 1.
  int Of(int below) { return static_cast<int>(engine_() % static_cast<uint64_t>(below)); }

 private:
  std::mt19937_64 engine_;
};

sim::Component MakeComponent(int number, Dice* dice) {
  sim::Component c;
  c.name = absl::StrCat("c", number);
  c.layer_groups = {{8 + dice->Of(60), int64_t{20 + dice->Of(300)} << 20}};
  const double bytes = c.Layers().All().as_double();
  c.pass_seconds = bytes / kLinkRate * (0.2 + dice->Of(200) / 100.0);
  return c;
}

int PassesOf(Dice* dice) { return dice->Of(3) == 0 ? 1 + dice->Of(40) : 1; }
int64_t NeedOf(Dice* dice) { return int64_t{dice->Of(3000)} << 20; }

// Room for the largest need with its window, and a share of what all layers take.
int64_t RoomFor(double weights, int components, Dice* dice) {
  return static_cast<int64_t>(weights * (20 + dice->Of(60)) / 100 / (components > 8 ? 3 : 1)) +
         (int64_t{20} << 30);
}

// Each component comes again and again, between others at random.
int ComponentOf(int use, int components, Dice* dice) {
  return use % 3 == 0 ? use / 3 % components : dice->Of(components);
}

// One problem for the plan alone, with the layer tables that it points to.
struct MadeProblem {
  MadeProblem(const Size& size, Dice* dice) {
    std::vector<double> pass_seconds;
    double weights = 0;
    for (int i = 0; i < size.components; ++i) {
      const sim::Component made = MakeComponent(i, dice);
      tables.push_back(std::make_unique<core::LayerTable>(made.Layers()));
      const core::LayerTable& layers = *tables.back();
      core::PlanComponent c;
      c.layers = &layers;
      c.sigma = core::ExposedSecondsPerByte(made.pass_seconds, layers.All(), kLinkRate);
      c.link_share = core::LinkShare(made.pass_seconds, layers.All(), kLinkRate);
      c.held = dice->Of(2) == 0 ? 0 : dice->Of(layers.count());
      problem.components.push_back(c);
      pass_seconds.push_back(made.pass_seconds);
      weights += layers.All().as_double();
    }
    problem.capacity = core::Bytes(RoomFor(weights, size.components, dice));
    for (int i = 0; i < size.uses; ++i) {
      core::PlanUse use;
      use.component = ComponentOf(i, size.components, dice);
      const core::LayerTable& layers = *tables[static_cast<size_t>(use.component)];
      use.first_slot = use.last_slot = problem.slots++;
      use.passes = PassesOf(dice);
      use.need = core::Bytes(NeedOf(dice));
      use.window = core::Bytes(2 * layers.Of(1).count());
      use.max_resident = layers.count();
      problem.link.push_back(kLinkRate * use.passes *
                             pass_seconds[static_cast<size_t>(use.component)]);
      problem.uses.push_back(use);
    }
  }

  std::vector<std::unique_ptr<core::LayerTable>> tables;
  core::PlanProblem problem;
};

std::vector<double> TimePlans(const Size& size) {
  Dice dice(7);
  std::vector<double> seconds;
  for (int i = 0; i < kProblems; ++i) {
    const MadeProblem made(size, &dice);
    const int64_t began = ProcessorNanoseconds();
    const core::Plan plan = core::MakePlan(made.problem);
    seconds.push_back(static_cast<double>(ProcessorNanoseconds() - began) * 1e-9);
    if (plan.resident.size() != made.problem.uses.size()) return {};
  }
  return seconds;
}

// Runs of one pipeline, all declared from the start.
sim::Workload MakeWorkload(const Size& size, int runs, Dice* dice) {
  sim::Workload w;
  w.name = "decisions";
  double weights = 0;
  for (int i = 0; i < size.components; ++i) {
    w.components.push_back(MakeComponent(i, dice));
    weights += w.components.back().Layers().All().as_double();
  }
  w.device.link_rate = kLinkRate;
  w.device.capacity_bytes = RoomFor(weights, size.components, dice);
  sim::Pipeline pipeline;
  pipeline.name = "p";
  for (int i = 0; i < kStages; ++i) {
    pipeline.stages.push_back(
        {ComponentOf(i, size.components, dice), PassesOf(dice), NeedOf(dice)});
  }
  w.pipelines.push_back(pipeline);
  w.runs.assign(static_cast<size_t>(runs), sim::Run());
  return w;
}

// Each begin and each end of a use while as many uses are known as the size says.
absl::StatusOr<std::vector<double>> TimeSteps(const Size& size) {
  Dice dice(11);
  std::vector<double> seconds;
  for (int i = 0; i < kWorkloads; ++i) {
    const int runs = 2 * size.uses / kStages + 2;
    const sim::Workload w = MakeWorkload(size, runs, &dice);
    std::vector<int64_t> times;
    sim::Options options;
    options.horizon = size.uses;
    options.clock = [&times] { return times.emplace_back(ProcessorNanoseconds()); };
    const absl::StatusOr<sim::Result> result = sim::Simulate(w, options);
    if (!result.ok()) return result.status();
    if (!result->fits) return absl::InternalError("a use was refused in the decision workload");
    // The clock is read before and after each step; the last uses know fewer that follow.
    const size_t steps = static_cast<size_t>(runs * kStages - size.uses) * 2;
    for (size_t step = 0; step < steps && 2 * step + 1 < times.size(); ++step) {
      seconds.push_back(static_cast<double>(times[2 * step + 1] - times[2 * step]) * 1e-9);
    }
  }
  return seconds;
}

void Add(const std::string& what, const Size& size, std::vector<double> seconds, Figures* figures) {
  const std::string name =
      absl::StrCat(what, ", ", size.components, " components, ", size.uses, " known uses: ");
  figures->push_back({name + "p50", Percentile(&seconds, 0.50) * 1e6, "us", std::nullopt});
  figures->push_back(
      {name + "p99", Percentile(&seconds, 0.99) * 1e6, "us", size.goal_seconds * 1e6});
}

}  // namespace

absl::StatusOr<Figures> DecisionBench(const BenchOptions&) {
  Figures figures;
  for (const Size& size : kSizes) {
    Add("plan", size, TimePlans(size), &figures);
    const absl::StatusOr<std::vector<double>> steps = TimeSteps(size);
    if (!steps.ok()) return steps.status();
    Add("step", size, *steps, &figures);
  }
  return figures;
}

}  // namespace vrambroker::bench
