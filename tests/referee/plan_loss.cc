// vram-plan-loss: what the planner's plan of a whole sequential workload, everything known from the
// start, loses to loading. For the comparison with an integer program.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "broker/core/planner.h"
#include "broker/ctl/workload_file.h"

namespace vrambroker {
namespace {

// Every stage of every run is a use with a slot of its own.
double PlannedLoss(const sim::Workload& w, bool ahead) {
  core::PlanProblem problem;
  std::vector<std::unique_ptr<core::LayerTable>> tables;
  int64_t room = w.device.capacity_bytes - w.device.reserve_bytes;
  for (const sim::Component& c : w.components) {
    tables.push_back(std::make_unique<core::LayerTable>(c.Layers()));
    const core::Bytes all = tables.back()->All();
    core::PlanComponent planned;
    planned.layers = tables.back().get();
    planned.sigma = core::ExposedSecondsPerByte(c.pass_seconds, all, w.device.link_rate);
    planned.link_share = core::LinkShare(c.pass_seconds, all, w.device.link_rate);
    problem.components.push_back(planned);
    room -= c.fixed_bytes;
  }
  problem.capacity = core::Bytes(room);
  double all_streamed = 0;
  for (const sim::Run& run : w.runs) {
    for (const sim::Stage& stage : w.pipelines[static_cast<size_t>(run.pipeline)].stages) {
      const size_t c = static_cast<size_t>(stage.component);
      core::PlanUse use;
      use.component = stage.component;
      use.first_slot = use.last_slot = problem.slots++;
      use.passes = stage.passes;
      use.need = core::Bytes(stage.activation_bytes);
      use.window = core::Bytes(w.components[c].WindowBytes());
      use.max_resident = tables[c]->count();
      problem.uses.push_back(use);
      all_streamed += problem.components[c].sigma * tables[c]->All().as_double() * stage.passes;
      if (!ahead) continue;
      problem.link.push_back(w.device.link_rate * stage.passes * w.components[c].pass_seconds);
    }
  }
  return all_streamed - core::MakePlan(problem).saved_seconds;
}

constexpr char kUsage[] =
    "vram-plan-loss WORKLOAD.json...\n"
    "For each, a line: seconds that the plan of the whole workload loses to loading, without and\n"
    "with loading ahead. Runs go one after the other; what is asked must fit the card.\n";

int Run(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h") {
    std::fputs(kUsage, argc < 2 ? stderr : stdout);
    return argc < 2 ? 2 : 0;
  }
  for (int i = 1; i < argc; ++i) {
    const absl::StatusOr<sim::Workload> w = ctl::LoadWorkload(argv[i]);
    if (!w.ok() || !w->Sequential()) {
      std::fprintf(stderr, "%s: %s\n", argv[i],
                   w.ok() ? "not sequential" : w.status().ToString().c_str());
      return 2;
    }
    std::printf("%.9f %.9f\n", PlannedLoss(*w, false), PlannedLoss(*w, true));
  }
  return 0;
}

}  // namespace
}  // namespace vrambroker

int main(int argc, char** argv) { return vrambroker::Run(argc, argv); }
