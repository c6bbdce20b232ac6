#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "stage_workers/offload/workload_file.h"
#include "stage_workers/pipeline/commands.h"
#include "stage_workers/pipeline/demo.h"
#include "stage_workers/pipeline/demo_workload.h"
#include "stage_workers/pipeline/shared_flags.h"
#include "stage_workers/pipeline/weights.h"
#include "stage_workers/worker/command_line.h"

ABSL_FLAG(std::string, json, "", "File that the table is also written to, as JSON. Empty: none.");
ABSL_FLAG(int, requests, 5, "Requests of an arm that count: 1 to 1000.");
ABSL_FLAG(int, warmups, 1, "Requests of an arm before them that do not count: 0 to 1000.");
ABSL_FLAG(
    std::vector<std::string>, card_gib, std::vector<std::string>({"31.4", "23.5"}),
    "Sizes of the cards in GiB before scaling, separated by commas: each above 0, 16 at most.");
ABSL_FLAG(std::vector<std::string>, arms,
          std::vector<std::string>({"streamed", "set_released", "local_rule", "broker",
                                    "broker_all"}),
          "What is compared, separated by commas: these, and broker_ahead and broker_all_ahead. In "
          "this order on the first card, in reverse on "
          "every other one.");
ABSL_FLAG(bool, load_ahead, false,
          "Also run each of these arms that has a broker with the broker's --load-ahead on "
          "(broker_ahead, broker_all_ahead), and print a second table of what it changes.");
ABSL_FLAG(bool, check, false,
          "Also fail where the expectations of the demo are not met: the local rule runs on the "
          "largest card and runs out of memory on the smallest, and on each card the broker moves "
          "fewer bytes than streaming does.");

namespace vrambroker::pipeline {
namespace {

worker::CommandHelp Help() {
  return {
      "vram-pipeline demo",
      "vram-pipeline demo: the qwen-image-2.1 pipeline (text encoder, DiT, VAE) in three worker\n"
      "processes on emulated cards, without a broker and with one. Prints a table for each card;\n"
      "the status is 0 if every arm that must run ran and all results are the same.\n\n"
      "  vram-pipeline demo [--json=FILE] [--check]",
      {"json", "requests", "warmups", "card-gib", "arms", "load-ahead", "check", "bytes-scale",
       "time-scale", "work-dir", "bin-dir"}};
}

absl::StatusOr<std::vector<double>> CardSizes() {
  constexpr size_t kMaxCards = 16;
  std::vector<double> sizes;
  for (const std::string& text : absl::GetFlag(FLAGS_card_gib)) {
    double size = 0;
    if (!absl::SimpleAtod(text, &size) || !(size > 0) || size > 1024) {
      return absl::InvalidArgumentError(
          absl::StrCat("--card-gib: '", text, "' given; above 0, at most 1024 is allowed"));
    }
    sizes.push_back(size);
  }
  if (sizes.empty() || sizes.size() > kMaxCards) {
    return absl::InvalidArgumentError(
        absl::StrCat("--card-gib: ", sizes.size(), " cards given; 1 to 16 are allowed"));
  }
  return sizes;
}

// Those of --arms and, with --load-ahead, what it adds to them.
std::vector<std::string> ArmNames() {
  std::vector<std::string> names = absl::GetFlag(FLAGS_arms);
  if (!absl::GetFlag(FLAGS_load_ahead)) return names;
  for (const char* name : {"broker", "broker_all"}) {
    const std::string ahead = absl::StrCat(name, "_ahead");
    if (std::count(names.begin(), names.end(), name) > 0 &&
        std::count(names.begin(), names.end(), ahead) == 0) {
      names.push_back(ahead);
    }
  }
  return names;
}

absl::Status CheckCount(const char* flag, int value, int least) {
  if (value >= least && value <= 1000) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": ", value, " given; ", least, " to 1000 is allowed"));
}

absl::StatusOr<DemoOptions> OptionsFromFlags() {
  DemoOptions options;
  options.requests = absl::GetFlag(FLAGS_requests);
  options.warm_ups = absl::GetFlag(FLAGS_warmups);
  for (const absl::Status& status : {CheckScales(), CheckCount("requests", options.requests, 1),
                                     CheckCount("warmups", options.warm_ups, 0)}) {
    if (!status.ok()) return status;
  }
  options.bytes_scale = absl::GetFlag(FLAGS_bytes_scale);
  options.time_scale = absl::GetFlag(FLAGS_time_scale);
  absl::StatusOr<std::vector<double>> sizes = CardSizes();
  if (!sizes.ok()) return sizes.status();
  options.card_gib = *std::move(sizes);
  absl::StatusOr<std::vector<Arm>> arms = ChooseArms(ArmNames(), options.bytes_scale);
  if (!arms.ok()) return arms.status();
  options.arms = *std::move(arms);
  absl::StatusOr<v1::Workload> workload = DemoWorkload();
  if (!workload.ok()) return workload.status();
  options.workload = *std::move(workload);
  options.program_folder = BinFolder();
  const std::string folder = WorkFolder(absl::GetFlag(FLAGS_work_dir), "demo");
  options.weights_dir = absl::StrCat(folder, "/weights-", options.bytes_scale);
  options.log_folder = absl::StrCat(folder, "/logs/", getpid());
  options.progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return options;
}

absl::Status PrepareFolders(const DemoOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.log_folder, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat(options.log_folder, ": ", error.message()));
  }
  int last_percent = -1;
  return EnsureWeights(options.workload, DemoBlockLists(), options.bytes_scale, options.weights_dir,
                       [&](const std::string& component, int64_t written, int64_t all) {
                         const int percent =
                             static_cast<int>(written * 100 / std::max<int64_t>(all, 1));
                         if (percent / 25 == last_percent / 25 && last_percent >= 0) return;
                         last_percent = percent;
                         options.progress(absl::StrCat("weights of ", component, ": ", percent,
                                                       " % of ", worker::FormatBytes(all)));
                       });
}

// Prints what is wrong; whether anything is.
bool SayFaults(const DemoResult& result, const DemoOptions& options) {
  std::vector<std::string> faults = DemoFaults(result);
  if (absl::GetFlag(FLAGS_check)) {
    for (std::string& fault : ExpectationFaults(result)) faults.push_back(std::move(fault));
  }
  for (const std::string& fault : faults) std::fprintf(stderr, "FAILED: %s\n", fault.c_str());
  if (!faults.empty()) {
    std::fprintf(stderr, "logs of all processes: %s\n", options.log_folder.c_str());
  }
  return !faults.empty();
}

}  // namespace

int DemoCommand(int argc, char** argv) {
  const std::vector<std::string> rest = worker::ParseCommandLine(argc, argv, Help());
  if (!rest.empty()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("'", rest[0], "' is not a flag of demo")));
  }
  const absl::StatusOr<DemoOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(options.status());
  const std::string json_path = absl::GetFlag(FLAGS_json);
  if (!json_path.empty()) {
    // Before minutes of measuring.
    if (absl::Status status = CheckWritable("--json", json_path); !status.ok()) return Fail(status);
  }
  if (absl::Status status = PrepareFolders(*options); !status.ok()) return Fail(status);
  const absl::StatusOr<DemoResult> result = RunDemo(*options);
  if (!result.ok()) {
    std::fprintf(stderr, "logs of all processes: %s\n", options->log_folder.c_str());
    return Fail(result.status());
  }
  std::printf("%s", DemoTable(*result).c_str());
  std::fflush(stdout);
  if (!json_path.empty()) {
    if (absl::Status status = WriteFile(json_path, DemoJson(*result)); !status.ok()) {
      return Fail(status);
    }
  }
  if (SayFaults(*result, *options)) return 1;
  std::error_code ignored;
  std::filesystem::remove_all(options->log_folder, ignored);
  return 0;
}

}  // namespace vrambroker::pipeline
