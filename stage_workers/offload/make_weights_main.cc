// vram-make-weights: real weight files for the components of a workload, at a scale.
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "stage_workers/offload/weights_writer.h"
#include "stage_workers/offload/workload_file.h"
#include "stage_workers/worker/command_line.h"

ABSL_FLAG(std::string, workload, "", "The workload: a JSON file (workload.proto). Needed.");
ABSL_FLAG(int64_t, bytes_scale, 64,
          "Sizes are divided by this and rounded to multiples of 64 bytes: 1 to 1048576.");
ABSL_FLAG(std::string, output_dir, "",
          "Where the files go, as DIR/COMPONENT.safetensors; made where it is missing. Needed.");
ABSL_FLAG(std::string, component, "", "Only this component. Empty: all.");
ABSL_FLAG(
    std::string, block_lists, "",
    "Lengths of the block lists of some components, as in text_encoder=36,27,3;dit=60. Empty: "
    "one list for each group of layers.");
ABSL_FLAG(bool, force, false, "Write files anew that are there already and right.");
ABSL_FLAG(std::string, format, "table",
          "table or json: what was written, on standard output. Progress goes to standard error.");

namespace vrambroker::offload {
namespace {

constexpr char kProgram[] = "vram-make-weights";

worker::CommandHelp Help() {
  return {
      kProgram,
      "vram-make-weights writes one safetensors file for each component of a workload: real\n"
      "files whose layers have the sizes of the workload, divided by a scale. The same input\n"
      "gives the same bytes; a file that is there, of the right size and written for just these\n"
      "figures is left as it is.\n\n"
      "  vram-make-weights --workload FILE.json --output-dir DIR [options]\n\n"
      "Exit status: 0 done, 1 failed, 2 options or a workload that make no sense.",
      {"workload", "output-dir", "bytes-scale", "component", "block-lists", "force", "format"}};
}

struct Job {
  WeightsPlan plan;
  std::string path;
  bool current = false;
  double seconds = 0;
};

using BlockLists = std::map<std::string, std::vector<int>>;

absl::StatusOr<BlockLists> ParseBlockLists(const std::string& text) {
  BlockLists lists;
  for (const absl::string_view entry : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    for (const absl::string_view number : absl::StrSplit(parts.second, ',')) {
      int count = 0;
      if (!absl::SimpleAtoi(number, &count) || count < 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--block-lists: \"", entry, "\" given; COMPONENT=COUNT,COUNT,... is needed"));
      }
      lists[parts.first].push_back(count);
    }
  }
  return lists;
}

absl::StatusOr<std::vector<Job>> PlanJobs(const v1::Workload& workload) {
  absl::StatusOr<BlockLists> lists = ParseBlockLists(absl::GetFlag(FLAGS_block_lists));
  if (!lists.ok()) return lists.status();
  const std::string only = absl::GetFlag(FLAGS_component);
  const std::string directory = absl::GetFlag(FLAGS_output_dir);
  std::vector<Job> jobs;
  bool found = only.empty();
  for (const v1::WorkloadComponent& component : workload.components()) {
    const auto given = lists->find(component.name());
    std::vector<int> counts;
    if (given != lists->end()) {
      counts = given->second;
      lists->erase(given);
    }
    if (!only.empty() && component.name() != only) continue;
    found = true;
    absl::StatusOr<WeightsPlan> plan =
        PlanWeights(component, counts, absl::GetFlag(FLAGS_bytes_scale));
    if (!plan.ok()) return plan.status();
    Job job = {.plan = *std::move(plan), .path = WeightsPath(directory, component.name())};
    job.current = !absl::GetFlag(FLAGS_force) && WeightsAreCurrent(job.path, job.plan);
    jobs.push_back(std::move(job));
  }
  if (!found) {
    return absl::InvalidArgumentError(
        absl::StrCat("--component: the workload has no component \"", only, "\""));
  }
  if (!lists->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--block-lists: the workload has no component \"", lists->begin()->first, "\""));
  }
  return jobs;
}

// Makes the folder and sees whether what is to be written fits on its disk.
absl::Status PrepareFolder(const std::vector<Job>& jobs) {
  const std::string directory = absl::GetFlag(FLAGS_output_dir);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  struct statvfs disk;
  if (error || statvfs(directory.c_str(), &disk) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--output-dir: ", directory, ": ",
                                                   error ? error.message() : std::strerror(errno)));
  }
  int64_t needed = 0;
  for (const Job& job : jobs) {
    if (!job.current) needed += job.plan.data_bytes();
  }
  const int64_t free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  if (needed > free) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: %.1f MB are to be written, %.1f MB are free: make room or raise "
                        "--bytes-scale",
                        directory, needed / 1e6, free / 1e6));
  }
  std::fprintf(stderr, "%.1f MB to write to %s, %.1f MB free\n", needed / 1e6, directory.c_str(),
               free / 1e6);
  return absl::OkStatus();
}

absl::Status Write(Job& job) {
  const double total = static_cast<double>(std::max<int64_t>(job.plan.data_bytes(), 1));
  const bool show = isatty(STDERR_FILENO) != 0;
  int shown = -1;
  const auto begin = std::chrono::steady_clock::now();
  absl::Status status = WriteWeights(job.path, job.plan, [&](int64_t done) {
    const int percent = static_cast<int>(100 * (done / total));
    if (!show || percent == shown) return;
    shown = percent;
    std::fprintf(stderr, "\r%s: %3d %%", job.plan.component.c_str(), percent);
  });
  job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::fprintf(stderr, "%s%s: %s\n", show ? "\r" : "", job.plan.component.c_str(),
               status.ok() ? "written" : "failed");
  return status;
}

void PrintTable(const std::vector<Job>& jobs) {
  std::printf("%-20s %7s %12s %12s %9s  %s\n", "component", "layers", "layers MB", "fixed MB",
              "written", "file");
  for (const Job& job : jobs) {
    const double fixed = job.plan.fixed_bytes / 1e6;
    std::printf("%-20s %7zu %12.1f %12.1f %9s  %s\n", job.plan.component.c_str(),
                job.plan.layer_bytes.size(), job.plan.data_bytes() / 1e6 - fixed, fixed,
                job.current ? "was there" : absl::StrFormat("%.2f s", job.seconds).c_str(),
                job.path.c_str());
  }
}

void PrintJson(const std::vector<Job>& jobs) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const Job& job : jobs) {
    nlohmann::ordered_json lists = nlohmann::ordered_json::array();
    for (const BlockList& list : job.plan.lists) {
      lists.push_back({{"name", list.name}, {"count", list.count}});
    }
    files.push_back({{"component", job.plan.component},
                     {"path", job.path},
                     {"bytes_scale", job.plan.bytes_scale},
                     {"block_lists", lists},
                     {"data_bytes", job.plan.data_bytes()},
                     {"fixed_bytes", job.plan.fixed_bytes},
                     {"written", !job.current},
                     {"seconds", job.seconds}});
  }
  std::printf("%s\n", files.dump(1).c_str());
}

absl::Status Run() {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: \"", format, "\" given; table and json are allowed"));
  }
  if (absl::GetFlag(FLAGS_workload).empty() || absl::GetFlag(FLAGS_output_dir).empty()) {
    return absl::InvalidArgumentError("--workload and --output-dir are needed; see --help");
  }
  absl::StatusOr<v1::Workload> workload = LoadWorkload(absl::GetFlag(FLAGS_workload));
  if (!workload.ok()) return workload.status();
  absl::StatusOr<std::vector<Job>> jobs = PlanJobs(*workload);
  if (!jobs.ok()) return jobs.status();
  if (absl::Status status = PrepareFolder(*jobs); !status.ok()) return status;
  for (Job& job : *jobs) {
    if (job.current) continue;
    if (absl::Status status = Write(job); !status.ok()) return status;
  }
  format == "json" ? PrintJson(*jobs) : PrintTable(*jobs);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const std::vector<std::string> rest = worker::ParseCommandLine(argc, argv, Help());
  const absl::Status status = rest.empty()
                                  ? Run()
                                  : absl::InvalidArgumentError(absl::StrCat(
                                        "'", rest[0], "' given; only flags are taken, see --help"));
  if (status.ok()) return worker::EndOfOutput(kProgram, 0);
  std::fprintf(stderr, "%s: %s\n", kProgram, std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace
}  // namespace vrambroker::offload

int main(int argc, char** argv) { return vrambroker::offload::Main(argc, argv); }
