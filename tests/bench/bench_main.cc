// vram-bench: measures what the broker costs, against references of the same run.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "stage_workers/worker/command_line.h"
#include "tests/bench/bench.h"

ABSL_FLAG(std::string, only, "", "name of the one measurement to run; empty: all");
ABSL_FLAG(std::string, format, "table", "table, or json on stdout");
ABSL_FLAG(int, rounds, 2000, "passages through the pipeline that are timed, 10 to 1,000,000");
ABSL_FLAG(absl::Duration, rest, absl::Seconds(10),
          "how long the broker at rest is watched, from 1s on");

namespace vrambroker::bench {
namespace {

struct Entry {
  const char* name;
  const char* what;
  absl::StatusOr<Figures> (*run)(const BenchOptions& options);
};

constexpr Entry kEntries[] = {
    {"planning", "time lost to loading against the optimum and the rules, under virtual time",
     PlanningBench},
    {"decision", "processor time of one decision, loading ahead included", DecisionBench},
    {"record", "a charge written to the record that outlives the broker", RecordBench},
    {"metrics", "counting beside deciding, and a scrape of 1,024 components", MetricsBench},
    {"round_trip", "BeginUse and EndUse against a bare gRPC echo, same server and channel",
     RoundTripBench},
    {"scale", "the end of a use with 200 sessions on 8 devices against the same with 10",
     ScaleBench},
    {"reclaim", "from the driver's showing a killed worker's bytes as free to the grant of them",
     ReclaimBench},
    {"page", "one watcher of the page, of a broker under load", PageBench},
    {"rest", "a broker with three idle sessions", RestBench},
#ifdef VRAM_COPY_RATE_BENCH
    {"copy_rate", "copies of the offload path against memcpy paced by the same link",
     CopyRateBench},
#endif
};

std::string Goal(const Figure& figure) {
  if (!figure.goal.has_value()) return "";
  return absl::StrCat(figure.goal_is_most ? "<= " : ">= ", *figure.goal);
}

void PrintTable(const Entry& entry, const Figures& figures) {
  std::printf("%s: %s\n", entry.name, entry.what);
  for (const Figure& figure : figures) {
    if (figure.detail) continue;
    std::printf("  %-64s %12.3f %-8s %-10s %s\n", figure.name.c_str(), figure.value,
                figure.unit.c_str(), Goal(figure).c_str(),
                !figure.goal.has_value() ? "" : (figure.met() ? "met" : "MISSED"));
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::string JsonOf(const Entry& entry, const Figures& figures) {
  std::vector<std::string> parts;
  for (const Figure& figure : figures) {
    std::string goal;
    if (figure.goal.has_value()) {
      goal = absl::StrCat(", \"", figure.goal_is_most ? "at_most" : "at_least",
                          "\": ", *figure.goal, ", \"met\": ", figure.met() ? "true" : "false");
    }
    parts.push_back(absl::StrCat("    {\"name\": \"", figure.name,
                                 "\", \"value\": ", std::isfinite(figure.value) ? figure.value : -1,
                                 ", \"unit\": \"", figure.unit, "\"", goal, "}"));
  }
  return absl::StrCat("  {\"bench\": \"", entry.name, "\", \"figures\": [\n",
                      absl::StrJoin(parts, ",\n"), "]}");
}

// Which goals are missed, and by how much. `missed` and `goals` are of all measurements.
void PrintSummary(int goals, const std::vector<std::string>& missed) {
  std::printf("%zu of %d goals met\n", static_cast<size_t>(goals) - missed.size(), goals);
  for (const std::string& line : missed) std::printf("  missed: %s\n", line.c_str());
}

std::string MissedLine(const Figure& figure) {
  return absl::StrFormat("%s: %.3f %s, goal %s", absl::StripLeadingAsciiWhitespace(figure.name),
                         figure.value, figure.unit, Goal(figure));
}

std::string FolderOfThisProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

int Run() {
  BenchOptions options;
  options.rounds = std::clamp(absl::GetFlag(FLAGS_rounds), 10, 1000000);
  options.rest = std::max(absl::GetFlag(FLAGS_rest), absl::Seconds(1));
  options.bin_dir = FolderOfThisProgram();
  const std::string only = absl::GetFlag(FLAGS_only);
  const bool json = absl::GetFlag(FLAGS_format) == "json";
  options.table = !json;
  std::vector<std::string> parts, missed;
  int failed = 0, ran = 0, goals = 0;
  for (const Entry& entry : kEntries) {
    if (!only.empty() && only != entry.name) continue;
    ++ran;
    const absl::StatusOr<Figures> figures = entry.run(options);
    if (!figures.ok()) {
      std::fprintf(stderr, "vram-bench: %s: %s\n", entry.name, figures.status().ToString().c_str());
      ++failed;
      continue;
    }
    if (json) {
      parts.push_back(JsonOf(entry, *figures));
    } else {
      PrintTable(entry, *figures);
    }
    for (const Figure& figure : *figures) {
      if (figure.detail || !figure.goal.has_value()) continue;
      ++goals;
      if (!figure.met()) missed.push_back(MissedLine(figure));
    }
  }
  if (!json && ran > 0) PrintSummary(goals, missed);
  if (ran == 0) std::fprintf(stderr, "vram-bench: --only=%s names none\n", only.c_str());
  if (json) std::printf("[\n%s\n]\n", absl::StrJoin(parts, ",\n").c_str());
  return failed == 0 && ran > 0 ? 0 : 1;
}

std::string Usage() {
  std::string usage = "Measures what the broker costs. Measurements (--only):\n";
  for (const Entry& entry : kEntries)
    absl::StrAppend(&usage, "  ", entry.name, ": ", entry.what, "\n");
  absl::StrAppend(
      &usage, "Goals are printed, not enforced: exit status 0 where everything could be measured.");
  return usage;
}

}  // namespace

double Percentile(std::vector<double>* values, double fraction) {
  if (values->empty()) return 0;
  std::sort(values->begin(), values->end());
  const double position = fraction * static_cast<double>(values->size() - 1);
  return (*values)[static_cast<size_t>(std::lround(position))];
}

}  // namespace vrambroker::bench

int main(int argc, char** argv) {
  using vrambroker::worker::EndOfOutput;
  const std::vector<std::string> rest = vrambroker::worker::ParseCommandLine(
      argc, argv, {"vram-bench", vrambroker::bench::Usage(), {"only", "rounds", "rest", "format"}});
  if (!rest.empty()) {
    std::fprintf(stderr, "vram-bench: '%s' is not a flag; --help lists them\n", rest[0].c_str());
    return 2;
  }
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "json") {
    std::fprintf(stderr, "vram-bench: --format: '%s' given, table or json is allowed\n",
                 format.c_str());
    return 2;
  }
  return EndOfOutput("vram-bench", vrambroker::bench::Run());
}
