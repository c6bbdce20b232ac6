#include "broker/ctl/simulation_arguments.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/ctl/render.h"
#include "broker/ctl/simulate_report.h"
#include "broker/ctl/workload_file.h"
#include "broker/server/size.h"
#include "broker/sim/random_workload.h"
#include "broker/sim/what_if.h"

namespace vrambroker::ctl {

namespace {

// A number below it that has no unit was hardly meant as bytes.
constexpr int64_t kLeastWithoutUnit = int64_t{1} << 20;

}  // namespace

absl::Status InFlag(absl::string_view flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

absl::Status TakeWorkloads(const Arguments& arguments, std::vector<sim::Workload>* workloads) {
  for (const std::string& path : arguments.words()) {
    absl::StatusOr<sim::Workload> workload = LoadWorkload(path);
    if (!workload.ok()) return workload.status();
    workloads->push_back(*std::move(workload));
  }
  for (const std::string& text : arguments.All("random")) {
    uint64_t seed = 0;
    if (!absl::SimpleAtoi(text, &seed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--random: '", text, "' given, a number from 0 to 2^64 - 1 is allowed"));
    }
    workloads->push_back(sim::RandomWorkload(seed));
  }
  if (!workloads->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("no workload is named; a file, or --random SEED, is needed");
}

absl::Status CheckCapacities(const std::vector<sim::Workload>& workloads,
                             const std::vector<int64_t>& capacities) {
  for (const sim::Workload& w : workloads) {
    for (const int64_t capacity : capacities) {
      if (capacity > w.device.reserve_bytes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--capacity: ", RenderBytes(capacity), " given; ", w.name, " keeps ",
                       RenderBytes(sim::RoundUpAsShown(w.device.reserve_bytes)),
                       " of a card free, more than that is needed"));
    }
  }
  return absl::OkStatus();
}

absl::Status TakeCapacities(const Arguments& arguments, std::vector<int64_t>* capacities) {
  double number = 0;
  for (const std::string& text : arguments.All("capacity")) {
    const absl::StatusOr<int64_t> bytes = server::ParseBytes(text);
    if (!bytes.ok()) return InFlag("capacity", bytes.status());
    if (*bytes == 0) return absl::InvalidArgumentError("--capacity: 0 given, more is needed");
    if (*bytes < kLeastWithoutUnit && absl::SimpleAtod(text, &number)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--capacity: '", text,
          "' given, which is bytes; a size with its unit is needed, such as ", text, "GiB"));
    }
    capacities->push_back(*bytes);
  }
  return absl::OkStatus();
}

absl::Status TakeDeclared(const Arguments& arguments, sim::Declared* declared) {
  const std::string given = arguments.Get("declared", DeclaredName(*declared));
  for (const sim::Declared one :
       {sim::Declared::kAll, sim::Declared::kCurrent, sim::Declared::kNone}) {
    if (given != DeclaredName(one)) continue;
    *declared = one;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--declared: '", given, "' given, all, current or none is allowed"));
}

absl::Status TakeFormat(const Arguments& arguments, const std::vector<std::string>& allowed,
                        std::string* format) {
  *format = arguments.Get("format", allowed.front());
  if (std::find(allowed.begin(), allowed.end(), *format) != allowed.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--format: '", *format, "' given; ",
                                                 absl::StrJoin(allowed, ", "), " are allowed"));
}

}  // namespace vrambroker::ctl
