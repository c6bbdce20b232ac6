#include "broker/ctl/simulate_command.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "broker/ctl/arguments.h"
#include "broker/ctl/plot_svg.h"
#include "broker/ctl/progress.h"
#include "broker/ctl/render.h"
#include "broker/ctl/simulate_report.h"
#include "broker/ctl/simulation_arguments.h"
#include "broker/sim/rules.h"

namespace vrambroker::ctl {

namespace {

constexpr char kSimulateUsage[] =
    "Runs a workload under virtual time: the broker's real decisions, modelled workers and "
    "link.\n\n"
    "  vramctl simulate WORKLOAD.json... [flags]\n"
    "  vramctl simulate --random SEED... [flags]\n\n"
    "Flags:\n"
    "  --capacity=SIZE        card to run it on, such as 24GiB; several may be given; default: "
    "the\n"
    "                         workload's own\n"
    "  --rule=NAME            who decides: broker, or a rule in its place: release_all, "
    "lru_whole,\n"
    "                         lru_partial, smallest_combination, smallest_first_partial; several\n"
    "                         may be given; default: broker\n"
    "  --declared=HOW         runs that the broker is told of: all (from the start), current "
    "(each\n"
    "                         when it starts), none; default: all\n"
    "  --no-load-ahead        the broker has nothing loaded ahead of its use\n"
    "  --random=SEED          a workload made from this number, 0 to 2^64 - 1, instead of a file;\n"
    "                         several may be given\n"
    "  --format=FORMAT        table, json or csv; default: table\n"
    "  --plot=FILE.svg        also draws the card over time; for one workload, card and rule\n\n"
    "Seconds of requests run from their arrival; \"lost to loading\" is the time that uses took\n"
    "beyond their compute, and waited while none ran. Bytes moved leave fixed bytes\n"
    "out, the peak has them in.\n\n"
    "Exit status: 0 all fit, 1 one does not fit (the reason is said, the others are simulated), 2\n"
    "wrong arguments or a workload that cannot be read, 3 the simulation broke a guarantee of the\n"
    "broker.\n";

constexpr int kMisfit = 1;
constexpr int kWrong = 2;
constexpr int kBroken = 3;

struct Wanted {
  std::vector<sim::Workload> workloads;
  std::vector<int64_t> capacities;  // empty: each workload's own
  std::vector<sim::Rule> rules;
  sim::Declared declared = sim::Declared::kAll;
  bool load_ahead = true;
  std::string format;
  std::string plot;
};

std::string RuleNames() {
  std::string names(sim::RuleName(sim::Rule::kBroker));
  for (const sim::Rule rule : sim::OtherRules()) absl::StrAppend(&names, "|", sim::RuleName(rule));
  return names;
}

std::vector<FlagSpec> Flags() {
  return {{"capacity", true, true},
          {"rule", true, true, RuleNames()},
          {"declared", true, false, "all|current|none"},
          {"no-load-ahead", false},
          {"random", true, true},
          {"format", true, false, "table|json|csv"},
          {"plot", true, false, kFileValue}};
}

absl::StatusOr<Wanted> Understand(const std::vector<std::string>& arguments) {
  const auto parsed = Arguments::Parse(arguments, Flags());
  if (!parsed.ok()) return parsed.status();
  Wanted wanted;
  if (absl::Status s = TakeWorkloads(*parsed, &wanted.workloads); !s.ok()) return s;
  if (absl::Status s = TakeCapacities(*parsed, &wanted.capacities); !s.ok()) return s;
  if (absl::Status s = CheckCapacities(wanted.workloads, wanted.capacities); !s.ok()) return s;
  for (const std::string& name : parsed->All("rule")) {
    const auto rule = sim::ParseRule(name);
    if (!rule.ok()) return InFlag("rule", rule.status());
    wanted.rules.push_back(*rule);
  }
  if (wanted.rules.empty()) wanted.rules.push_back(sim::Rule::kBroker);
  if (absl::Status s = TakeDeclared(*parsed, &wanted.declared); !s.ok()) return s;
  wanted.load_ahead = !parsed->Has("no-load-ahead");
  if (absl::Status s = TakeFormat(*parsed, {"table", "json", "csv"}, &wanted.format); !s.ok()) {
    return s;
  }
  wanted.plot = parsed->Get("plot", "");
  const size_t rows =
      wanted.workloads.size() * std::max<size_t>(1, wanted.capacities.size()) * wanted.rules.size();
  if (parsed->Has("plot") && (wanted.plot.empty() || rows != 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--plot: ",
        wanted.plot.empty() ? "no file named" : absl::StrCat(rows, " simulations asked for"),
        "; one file for one workload, card and rule is allowed"));
  }
  return wanted;
}

int64_t SteadyNanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

absl::StatusOr<std::vector<SimulationRow>> RunAll(const Wanted& wanted, Progress* progress) {
  std::vector<SimulationRow> rows;
  for (const sim::Workload& workload : wanted.workloads) {
    std::vector<int64_t> capacities = wanted.capacities;
    if (capacities.empty()) capacities.push_back(workload.device.capacity_bytes);
    for (const int64_t capacity : capacities) {
      for (const sim::Rule rule : wanted.rules) {
        sim::Options options;
        options.rule = rule;
        options.declared = wanted.declared;
        options.load_ahead = wanted.load_ahead;
        options.clock = SteadyNanoseconds;
        options.record = !wanted.plot.empty();
        options.progress = progress->Begin(
            absl::StrCat(workload.name, " on ", RenderBytes(capacity), ", ", sim::RuleName(rule)));
        sim::Workload on_card = workload;
        on_card.device.capacity_bytes = capacity;
        auto result = sim::Simulate(on_card, options);
        if (!result.ok()) {
          return absl::Status(result.status().code(),
                              absl::StrCat(workload.name, ": ", result.status().message()));
        }
        std::string reason = MisfitReason(on_card, *result);
        rows.push_back({workload.name, capacity, rule, wanted.declared, wanted.load_ahead,
                        *std::move(result), std::move(reason)});
      }
    }
  }
  return rows;
}

bool Draw(const Wanted& wanted, const SimulationRow& row) {
  sim::Workload workload = wanted.workloads.front();
  workload.device.capacity_bytes = row.capacity_bytes;
  std::string who(sim::RuleName(row.rule));
  if (row.rule == sim::Rule::kBroker) {
    absl::StrAppend(&who, ", declared: ", DeclaredName(row.declared),
                    row.load_ahead ? ", loading ahead" : ", nothing loaded ahead");
  }
  std::ofstream file(wanted.plot);
  file << PlotSvg(workload, row.result,
                  absl::StrFormat("%s on %s: %s; %.3f s lost to loading", row.workload,
                                  RenderBytes(row.capacity_bytes), who, row.result.stall_seconds));
  return file.flush().good();
}

}  // namespace

int Simulate(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  const auto wanted = Understand(arguments);
  if (!wanted.ok()) {
    error << "vramctl simulate: " << wanted.status().message() << "; --help says more\n";
    return kWrong;
  }
  Progress progress(&error, SteadySeconds);
  const absl::StatusOr<std::vector<SimulationRow>> rows = RunAll(*wanted, &progress);
  progress.End();
  if (!rows.ok()) {
    error << "vramctl simulate: " << rows.status().message() << "\n";
    return rows.status().code() == absl::StatusCode::kInvalidArgument ? kWrong : kBroken;
  }
  if (!wanted->plot.empty() && !Draw(*wanted, rows->front())) {
    error << "vramctl simulate: --plot: " << wanted->plot << " cannot be written\n";
    return kWrong;
  }
  out << (wanted->format == "json"  ? SimulationJson(*rows)
          : wanted->format == "csv" ? SimulationCsv(*rows)
                                    : SimulationTable(*rows));
  const bool fits = std::all_of(rows->begin(), rows->end(),
                                [](const SimulationRow& row) { return row.result.fits; });
  return fits ? 0 : kMisfit;
}

Command SimulateCommand() {
  return {"simulate",
          "WORKLOAD.json...",
          "the workload under virtual time: stall, request times, bytes",
          kSimulateUsage,
          Flags(),
          Simulate,
          kFileValue};
}

}  // namespace vrambroker::ctl
