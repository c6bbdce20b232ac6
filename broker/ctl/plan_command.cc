#include "broker/ctl/plan_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/ctl/arguments.h"
#include "broker/ctl/progress.h"
#include "broker/ctl/render.h"
#include "broker/ctl/simulation_arguments.h"

namespace vrambroker::ctl {

namespace {

constexpr char kPlanUsage[] =
    "Says what a card would mean for a workload: whether it fits, what would stay between uses,\n"
    "what requests lose to loading, and from which card on they would lose nothing.\n\n"
    "  vramctl plan WORKLOAD.json... [flags]\n\n"
    "Flags:\n"
    "  --capacity=SIZE        the card, such as 24GiB; several may be given; default: the\n"
    "                         workload's own\n"
    "  --declared=HOW         runs that the broker is told of: all (from the start), current "
    "(each\n"
    "                         when it starts), none; default: all\n"
    "  --no-load-ahead        the broker has nothing loaded ahead of its use\n"
    "  --random=SEED          a workload made from this number instead of a file; several may be\n"
    "                         given\n"
    "  --format=FORMAT        table (words, for people) or json; default: table\n\n"
    "Exit status: 0 all fit, 1 one does not fit, 2 wrong arguments or a workload that cannot be\n"
    "read, 3 a simulation broke a guarantee of the broker.\n";

constexpr int kMisfit = 1;
constexpr int kWrong = 2;
constexpr int kBroken = 3;

struct Wanted {
  std::vector<sim::Workload> workloads;  // each on its card
  sim::Options options;
  std::string format;
};

std::vector<FlagSpec> Flags() {
  return {{"capacity", true, true},
          {"declared", true, false, "all|current|none"},
          {"no-load-ahead", false},
          {"random", true, true},
          {"format", true, false, "table|json"}};
}

absl::StatusOr<Wanted> Understand(const std::vector<std::string>& arguments) {
  const auto parsed = Arguments::Parse(arguments, Flags());
  if (!parsed.ok()) return parsed.status();
  Wanted wanted;
  std::vector<sim::Workload> workloads;
  std::vector<int64_t> capacities;
  if (absl::Status s = TakeWorkloads(*parsed, &workloads); !s.ok()) return s;
  if (absl::Status s = TakeCapacities(*parsed, &capacities); !s.ok()) return s;
  if (absl::Status s = CheckCapacities(workloads, capacities); !s.ok()) return s;
  if (absl::Status s = TakeDeclared(*parsed, &wanted.options.declared); !s.ok()) return s;
  if (absl::Status s = TakeFormat(*parsed, {"table", "json"}, &wanted.format); !s.ok()) return s;
  wanted.options.load_ahead = !parsed->Has("no-load-ahead");
  for (sim::Workload& workload : workloads) {
    for (const int64_t capacity : capacities) {
      wanted.workloads.push_back(workload);
      wanted.workloads.back().device.capacity_bytes = capacity;
    }
    if (capacities.empty()) wanted.workloads.push_back(std::move(workload));
  }
  return wanted;
}

}  // namespace

int Plan(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<Wanted> wanted = Understand(arguments);
  if (!wanted.ok()) {
    error << "vramctl plan: " << wanted.status().message() << "; --help says more\n";
    return kWrong;
  }
  const bool json = wanted->format == "json";
  bool fits = true;
  std::vector<std::string> parts;
  Progress progress(&error, SteadySeconds);
  for (const sim::Workload& workload : wanted->workloads) {
    sim::Options options = wanted->options;
    options.progress = progress.Begin(absl::StrCat(
        workload.name, " on ", RenderBytes(workload.device.capacity_bytes), " and other cards"));
    const absl::StatusOr<sim::WhatIf> what_if = sim::AskWhatIf(workload, options);
    if (!what_if.ok()) {
      progress.End();
      error << "vramctl plan: " << workload.name << ": " << what_if.status().message() << "\n";
      return what_if.status().code() == absl::StatusCode::kInvalidArgument ? kWrong : kBroken;
    }
    fits &= what_if->fits;
    parts.push_back(json ? PlanJson(workload, *what_if) : PlanText(workload, *what_if));
  }
  progress.End();
  if (json) {
    out << "[\n" << absl::StrJoin(parts, ",\n") << "\n]\n";
  } else {
    out << absl::StrJoin(parts, "\n");
  }
  return fits ? 0 : kMisfit;
}

Command PlanCommand() {
  return {"plan",
          "WORKLOAD.json...",
          "in words: whether it fits, what would stay, what each request loses",
          kPlanUsage,
          Flags(),
          Plan,
          kFileValue};
}

}  // namespace vrambroker::ctl
