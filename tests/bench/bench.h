// A measurement of vram-bench: what it returns and how it joins the others.
//
// To add one: declare its function here, define it in a file of its own, and enter it into the
// table of bench_main.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace vrambroker::bench {

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  // What is aimed at, and whether it is the most or the least. Absent: for information.
  std::optional<double> goal;
  bool goal_is_most = true;
  // One of many, which the measurement shows in a table of its own: listed in JSON only.
  bool detail = false;

  bool met() const { return !goal.has_value() || (goal_is_most ? value <= *goal : value >= *goal); }
};
using Figures = std::vector<Figure>;

struct BenchOptions {
  // Passages through the pipeline that are timed.
  int rounds = 2000;
  // How long the broker at rest is watched.
  absl::Duration rest = absl::Seconds(10);
  // Where the programs are that are measured as processes.
  std::string bin_dir;
  // Whether a measurement may print a table of its own to stdout.
  bool table = true;
};

// Round trips of BeginUse and EndUse against a bare echo on the same server and channel.
absl::StatusOr<Figures> RoundTripBench(const BenchOptions& options);
// The end of a use with 200 sessions against the same with 10.
absl::StatusOr<Figures> ScaleBench(const BenchOptions& options);
// From a driver's showing the bytes of a killed worker as free to the grant of them.
absl::StatusOr<Figures> ReclaimBench(const BenchOptions& options);
// Processor time and memory of a broker with three idle sessions.
absl::StatusOr<Figures> RestBench(const BenchOptions& options);
// Rate of the offload path's copies against memcpy paced by the same link.
absl::StatusOr<Figures> CopyRateBench(const BenchOptions& options);
// Stall of the simulated broker on every published workload and card size against the optimum and
// against the rules, and whether every guarantee held meanwhile.
absl::StatusOr<Figures> PlanningBench(const BenchOptions& options);
// What writing a charge to the record takes, beside a copy of as many bytes.
absl::StatusOr<Figures> RecordBench(const BenchOptions& options);
// What counting adds to a decision, and what a scrape of a large broker takes.
absl::StatusOr<Figures> MetricsBench(const BenchOptions& options);
// What one watcher of the page costs a broker under load.
absl::StatusOr<Figures> PageBench(const BenchOptions& options);
// Processor time of one decision with many known uses.
absl::StatusOr<Figures> DecisionBench(const BenchOptions& options);

// The value below which the fraction (0 to 1) of all values lies; 0 of none. Sorts them.
double Percentile(std::vector<double>* values, double fraction);

}  // namespace vrambroker::bench
