// The published workloads, each at four card sizes, under virtual time: what the broker loses to
// loading against the clairvoyant optimum and against the five rules.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "broker/ctl/workload_file.h"
#include "broker/sim/random_workload.h"
#include "tests/bench/bench.h"
#include "tests/lost.h"

namespace vrambroker::bench {
namespace {

using sim::Declared;
using sim::Rule;

// Within this of its reference a figure counts as equal.
constexpr double kSlackSeconds = 0.010;
constexpr double kGiB = 1073741824.0;
constexpr uint64_t kRandomWorkloads = 400;

enum Reference { kOptimum, kBestRule, kBestRuleFromTheThird, kLruFromTheThird };

// A line of the goals: what is declared, and what the broker's loss is held against.
struct Goal {
  const char* title;  // of the column
  const char* name;
  Declared declared;
  bool ahead;
  Reference reference;
  double most;  // times the reference, or kSlackSeconds above it
};
constexpr Goal kGoals[] = {
    {"optimum", "all declared / optimum", Declared::kAll, false, kOptimum, 1.02},
    {"opt., ahead", "all declared, loading ahead / optimum", Declared::kAll, true, kOptimum, 1.10},
    {"best rule", "all declared / best rule", Declared::kAll, false, kBestRule, 1.01},
    {"rule, ahead", "all declared, loading ahead / best rule", Declared::kAll, true, kBestRule,
     1.01},
    {"current", "started runs declared, from 3rd request / best rule", Declared::kCurrent, false,
     kBestRuleFromTheThird, 1.01},
    {"cur., ahead", "started runs declared, loading ahead, from 3rd request", Declared::kCurrent,
     true, kBestRuleFromTheThird, 1.01},
    {"none", "nothing declared, from 3rd repetition / lru_partial", Declared::kNone, false,
     kLruFromTheThird, 1.01},
    {"none, ahead", "nothing declared, loading ahead, from 3rd repetition", Declared::kNone, true,
     kLruFromTheThird, 1.01},
};
constexpr size_t kGoalCount = std::size(kGoals);

struct Cell {
  bool known = false;  // not every workload has every reference
  double lost = 0;
  double reference = 0;
  double limit = 0;

  bool met() const { return !known || lost <= limit; }
  // Within the slack counts as equal.
  double Ratio() const {
    return lost <= reference + kSlackSeconds && lost >= reference - kSlackSeconds
               ? 1
               : lost / std::max(reference, kSlackSeconds);
  }
};

struct Row {
  std::string workload;
  int64_t capacity = 0;
  std::map<bool, double> optimum;  // by whether layers are loaded ahead; absent: not known
  Rule best = Rule::kBroker;
  Cell cells[kGoalCount];
};

// What must never happen.
struct Broken {
  int runs = 0;
  int over_granted = 0;
  int starved = 0;
  int refused = 0;  // uses that fit
  int other = 0;
};

std::vector<Row> BoundRows(const nlohmann::json& bounds) {
  std::vector<Row> rows;
  for (const auto& [name, entry] : bounds.items()) {
    for (const nlohmann::json& value : entry.at("capacities")) {
      if (!value.at("fits").get<bool>()) continue;
      Row row;
      row.workload = name;
      row.capacity = std::stoll(value.at("capacity_bytes").get<std::string>());
      row.optimum = {{false, value.at("stall_seconds").get<double>()},
                     {true, value.at("ahead_stall_seconds").get<double>()}};
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

absl::StatusOr<sim::Workload> Load(const std::string& name) {
  return ctl::LoadWorkload(absl::StrCat(WORKLOAD_DIR, "/", name, ".json"));
}

// Workloads with arrivals or overlapping runs have no optimum.
absl::StatusOr<std::vector<Row>> UnboundRows() {
  std::vector<Row> rows;
  for (const char* name : {"qwen-image-2.1-24g-arrivals", "chat-beside-images-24g"}) {
    const absl::StatusOr<sim::Workload> w = Load(name);
    if (!w.ok()) return w.status();
    for (const double share : {0.5, 0.75, 1.0, 1.5}) {
      Row row;
      row.workload = name;
      row.capacity = static_cast<int64_t>(static_cast<double>(w->device.capacity_bytes) * share);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Simulates and counts what must never happen. Empty where the simulation broke off.
std::optional<sim::Result> Watched(const sim::Workload& w, const sim::Options& options,
                                   Broken* broken) {
  absl::StatusOr<sim::Result> result = sim::Simulate(w, options);
  if (options.rule == Rule::kBroker) ++broken->runs;
  if (result.ok()) {
    const bool fits = result->fits;
    if (!fits && sim::Feasible(w)) ++broken->refused;
    return *std::move(result);
  }
  std::fprintf(stderr, "%s: %s\n", w.name.c_str(), result.status().ToString().c_str());
  if (absl::StrContains(result.status().message(), "over-granted")) {
    ++broken->over_granted;
  } else if (absl::StrContains(result.status().message(), "requests have ended")) {
    ++broken->starved;
  } else {
    ++broken->other;
  }
  return std::nullopt;
}

struct Losses {
  double all = std::numeric_limits<double>::infinity();
  double from_the_third = std::numeric_limits<double>::infinity();
};

void Fill(const sim::Workload& w, Row* row, Broken* broken) {
  Losses best;
  double lru = 0;
  for (const Rule rule : sim::OtherRules()) {
    sim::Options options;
    options.rule = rule;
    const std::optional<sim::Result> result = Watched(w, options, broken);
    if (!result.has_value()) continue;
    const double lost = sim::LostSeconds(w, *result);
    if (lost < best.all) {
      best.all = lost;
      row->best = rule;
    }
    best.from_the_third = std::min(best.from_the_third,
                                   sim::LostFromTheThird(w, *result, /*of_each_pipeline=*/false));
    if (rule == Rule::kLruPartial) {
      lru = sim::LostFromTheThird(w, *result, /*of_each_pipeline=*/true);
    }
  }
  for (size_t i = 0; i < kGoalCount; ++i) {
    const Goal& goal = kGoals[i];
    sim::Options options;
    options.declared = goal.declared;
    options.load_ahead = goal.ahead;
    const std::optional<sim::Result> result = Watched(w, options, broken);
    Cell& cell = row->cells[i];
    if (!result.has_value()) continue;
    cell.known = true;
    cell.lost = sim::LostSeconds(w, *result);
    switch (goal.reference) {
      case kOptimum:
        cell.known = !row->optimum.empty();
        cell.reference = cell.known ? row->optimum.at(goal.ahead) : 0;
        break;
      case kBestRule:
        cell.reference = best.all;
        break;
      case kBestRuleFromTheThird:
        cell.lost = sim::LostFromTheThird(w, *result, false);
        cell.reference = best.from_the_third;
        break;
      case kLruFromTheThird:
        cell.lost = sim::LostFromTheThird(w, *result, true);
        cell.reference = lru;
        break;
    }
    cell.limit = std::max(cell.reference * goal.most, cell.reference + kSlackSeconds);
  }
}

std::string Text(const Cell& cell) {
  if (!cell.known) return "-";
  const std::string ratio = absl::StrFormat("%.3f", cell.Ratio());
  return cell.met() ? absl::StrCat(ratio, " met")
                    : absl::StrFormat("%s +%.2fs", ratio, cell.lost - cell.limit);
}

void PrintRows(const std::vector<Row>& rows) {
  std::printf(
      "planning: lost to loading, as a ratio to the reference of each column. \"met\", or the "
      "seconds\nbeyond the goal; within 10 ms of the reference is 1.000. current and none: from "
      "the "
      "third\nrequest on, and from the third of each pipeline on, against lru_partial.\n"
      "%-28s %9s %10s",
      "", "card", "optimum s");
  for (const Goal& goal : kGoals) std::printf("  %-14s", goal.title);
  std::printf("  best rule\n%-49s", "goal");
  for (const Goal& goal : kGoals) std::printf("  <= %-11.2f", goal.most);
  std::printf("\n");
  for (const Row& row : rows) {
    std::printf("%-28s %5.1f GiB %10s", row.workload.c_str(),
                static_cast<double>(row.capacity) / kGiB,
                row.optimum.empty() ? "-" : absl::StrFormat("%.3f", row.optimum.at(false)).c_str());
    for (const Cell& cell : row.cells) std::printf("  %-14s", Text(cell).c_str());
    std::printf("  %s\n", std::string(sim::RuleName(row.best)).c_str());
  }
  std::printf("\n");
}

void AddDetails(const Row& row, Figures* figures) {
  for (size_t i = 0; i < kGoalCount; ++i) {
    const Cell& cell = row.cells[i];
    if (!cell.known) continue;
    figures->push_back(
        {absl::StrFormat("%s at %d bytes: %s", row.workload, row.capacity, kGoals[i].name),
         cell.lost, "s", cell.limit, true, true});
  }
}

void AddSummary(const std::vector<Row>& rows, Figures* figures) {
  for (size_t i = 0; i < kGoalCount; ++i) {
    int known = 0, missed = 0;
    double worst = 0;
    for (const Row& row : rows) {
      const Cell& cell = row.cells[i];
      if (!cell.known) continue;
      ++known;
      missed += cell.met() ? 0 : 1;
      worst = std::max(worst, cell.Ratio());
    }
    figures->push_back({absl::StrCat(kGoals[i].name, ": worst"), worst, "x", kGoals[i].most});
    figures->push_back({absl::StrCat("  rows beyond it, of ", known), static_cast<double>(missed),
                        "", std::nullopt});
  }
}

}  // namespace

absl::StatusOr<Figures> PlanningBench(const BenchOptions& options) {
  std::ifstream in(BOUNDS_FILE);
  const nlohmann::json bounds = nlohmann::json::parse(in, nullptr, false);
  if (!bounds.is_object()) return absl::NotFoundError(absl::StrCat("no bounds in ", BOUNDS_FILE));
  std::vector<Row> rows = BoundRows(bounds);
  absl::StatusOr<std::vector<Row>> unbound = UnboundRows();
  if (!unbound.ok()) return unbound.status();
  rows.insert(rows.end(), unbound->begin(), unbound->end());
  Broken broken;
  for (Row& row : rows) {
    absl::StatusOr<sim::Workload> w = Load(row.workload);
    if (!w.ok()) return w.status();
    w->device.capacity_bytes = row.capacity;
    Fill(*w, &row, &broken);
  }
  for (uint64_t seed = 0; seed < kRandomWorkloads; ++seed) {
    Watched(sim::RandomWorkload(seed), sim::Options(), &broken);
  }
  if (options.table) PrintRows(rows);
  Figures figures;
  for (const Row& row : rows) AddDetails(row, &figures);
  AddSummary(rows, &figures);
  figures.push_back({"simulations, random workloads among them", static_cast<double>(broken.runs),
                     "", std::nullopt});
  figures.push_back({"  over-granted", static_cast<double>(broken.over_granted), "", 0});
  figures.push_back({"  with a use that never began", static_cast<double>(broken.starved), "", 0});
  figures.push_back(
      {"  with a use that fits and was refused", static_cast<double>(broken.refused), "", 0});
  figures.push_back({"  broken off otherwise", static_cast<double>(broken.other), "", 0});
  return figures;
}

}  // namespace vrambroker::bench
