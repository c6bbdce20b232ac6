#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "stage_workers/offload/workload_file.h"
#include "stage_workers/pipeline/commands.h"
#include "stage_workers/pipeline/driver.h"
#include "stage_workers/pipeline/fleet.h"
#include "stage_workers/pipeline/run_report.h"
#include "stage_workers/pipeline/shared_flags.h"
#include "stage_workers/pipeline/weights.h"
#include "stage_workers/worker/command_line.h"

ABSL_FLAG(std::string, workload, "", "The workload: a JSON file (workload.proto). Needed.");
ABSL_FLAG(std::vector<std::string>, workers, {},
          "Where the worker of each component is: NAME=unix:PATH or NAME=HOST:PORT, separated by "
          "commas. Does nothing with --spawn.");
ABSL_FLAG(std::string, broker, "none",
          "The broker that the runs are declared to: unix:PATH or HOST:PORT; none: nothing is "
          "declared. With --spawn: none, or start for one of its own.");
ABSL_FLAG(std::string, tls_ca, "",
          "For a broker at HOST:PORT: PEM file of the CA of its certificate. Empty: "
          "$VRAM_BROKER_TLS_CA. Does nothing with --spawn.");
ABSL_FLAG(std::string, tls_cert, "",
          "The same: PEM file of the certificate to show. Empty: $VRAM_BROKER_TLS_CERT.");
ABSL_FLAG(std::string, tls_key, "",
          "The same: PEM file of that certificate's key. Empty: $VRAM_BROKER_TLS_KEY.");
ABSL_FLAG(std::string, declared, "all",
          "What the broker is told: all (each run when it arrives, waiting ones too), current (a "
          "run when it starts) or none. Does nothing with --broker=none.");
ABSL_FLAG(std::string, name, "pipeline",
          "Name of the driver's session with the broker. Does nothing with --broker=none.");
ABSL_FLAG(bool, spawn, false,
          "Start an emulated card of the workload's size, a worker for each component and, unless "
          "--broker=none, a broker; stop them at the end.");
ABSL_FLAG(std::string, weights_dir, "",
          "Weights files of the components, made where they are missing. Empty: below --work-dir. "
          "Does nothing without --spawn.");
ABSL_FLAG(std::vector<std::string>, permanent, {},
          "Components that stay on the card, separated by commas. Does nothing without --spawn.");
ABSL_FLAG(std::string, resident, "0",
          "Configured set of the other components, as --resident of vram-stage-worker. Does "
          "nothing without --spawn.");
ABSL_FLAG(std::string, retain, "none",
          "Local rule of the workers, as --retain of vram-stage-worker. Does nothing without "
          "--spawn, nor with a broker.");
ABSL_FLAG(std::string, allocate, "fit",
          "How workers allocate their set, as --allocate of vram-stage-worker. Does nothing "
          "without --spawn, nor with a broker.");
ABSL_FLAG(
    int, skip_first, 0,
    "The first so many runs are warm-ups: over before the others start, and not counted. 0 to "
    "one less than the workload's runs.");
ABSL_FLAG(absl::Duration, stage_timeout, absl::Minutes(10),
          "Longest time for one stage of a run, waiting for admission included, and for workers to "
          "become ready: above 0.");
ABSL_FLAG(std::string, format, "table", "table for people, json for programs; on stdout.");

namespace vrambroker::pipeline {
namespace {

worker::CommandHelp Help() {
  return {"vram-pipeline run",
          "vram-pipeline run: runs a workload over stage workers and reports times, bytes and "
          "results.\n\n"
          "  vram-pipeline run --workload=FILE.json --workers=te=unix:/run/te.sock,... "
          "--broker=unix:PATH\n"
          "  vram-pipeline run --workload=FILE.json --spawn --broker=start",
          {"workload",   "workers",  "broker",      "tls-ca",     "tls-cert",      "tls-key",
           "declared",   "name",     "format",      "skip-first", "stage-timeout", "bytes-scale",
           "time-scale", "spawn",    "weights-dir", "permanent",  "resident",      "retain",
           "allocate",   "work-dir", "bin-dir"}};
}

// "unix:PATH" or "HOST:PORT".
bool IsAddress(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) return false;
  if (parts[0] == "unix") return true;
  int port = 0;
  return absl::SimpleAtoi(text.substr(text.rfind(':') + 1), &port) && port > 0 && port <= 65535;
}

absl::Status CheckBroker(const std::string& broker, bool spawn) {
  if (broker == "none" || (spawn ? broker == "start" : IsAddress(broker))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--broker: '", broker, "' given; ",
      spawn ? "none or start is allowed with --spawn, whose workers have a card of their own and "
              "cannot use a broker that runs already"
            : "none, unix:PATH or HOST:PORT is allowed (start needs --spawn)"));
}

absl::Status CheckRuns(int skip_first, int runs) {
  if (skip_first >= 0 && (skip_first < runs || skip_first == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--skip-first: ", skip_first, " given; 0 to ", std::max(runs - 1, 0),
                   " is allowed, less than the workload's ", runs, " runs, or none would count"));
}

absl::Status CheckStageTimeout(absl::Duration timeout) {
  if (timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--stage-timeout: ", absl::FormatDuration(timeout),
                   " given; a duration above 0 is allowed, such as 30s or 10m"));
}

absl::StatusOr<std::map<std::string, std::string>> ParseWorkers() {
  std::map<std::string, std::string> workers;
  for (const std::string& entry : absl::GetFlag(FLAGS_workers)) {
    const std::vector<std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty() || !IsAddress(parts[1])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--workers: '", entry, "' given; NAME=unix:PATH or NAME=HOST:PORT is allowed"));
    }
    if (!workers.emplace(parts[0], parts[1]).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--workers: '", entry, "' given; ", parts[0], " has an address already"));
    }
  }
  return workers;
}

absl::StatusOr<DriverOptions> OptionsFromFlags() {
  if (absl::Status status = CheckScales(); !status.ok()) return status;
  if (absl::GetFlag(FLAGS_workload).empty()) {
    return absl::InvalidArgumentError("--workload is needed: a JSON file");
  }
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: '", format, "' given; table or json is allowed"));
  }
  DriverOptions options;
  absl::StatusOr<v1::Workload> workload = offload::LoadWorkload(absl::GetFlag(FLAGS_workload));
  if (!workload.ok()) return workload.status();
  options.workload = *std::move(workload);
  for (const absl::Status& status :
       {CheckRuns(absl::GetFlag(FLAGS_skip_first), options.workload.runs_size()),
        CheckStageTimeout(absl::GetFlag(FLAGS_stage_timeout)),
        CheckBroker(absl::GetFlag(FLAGS_broker), absl::GetFlag(FLAGS_spawn))}) {
    if (!status.ok()) return status;
  }
  absl::StatusOr<std::map<std::string, std::string>> workers = ParseWorkers();
  if (!workers.ok()) return workers.status();
  options.workers = *std::move(workers);
  absl::StatusOr<Declared> declared = ParseDeclared(absl::GetFlag(FLAGS_declared));
  if (!declared.ok()) return declared.status();
  options.declared = *declared;
  options.broker = absl::GetFlag(FLAGS_broker);
  options.tls = {absl::GetFlag(FLAGS_tls_ca), absl::GetFlag(FLAGS_tls_cert),
                 absl::GetFlag(FLAGS_tls_key)};
  options.name = absl::GetFlag(FLAGS_name);
  options.bytes_scale = absl::GetFlag(FLAGS_bytes_scale);
  options.time_scale = absl::GetFlag(FLAGS_time_scale);
  options.warm_ups = absl::GetFlag(FLAGS_skip_first);
  options.stage_timeout = absl::GetFlag(FLAGS_stage_timeout);
  options.notice = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  const int count = options.workload.runs_size();
  options.on_request = [count](const RequestRecord& request) {
    std::fprintf(stderr, "run %d of %d: %s\n", request.run, count,
                 request.status.ok() ? absl::StrCat(request.seconds, " s").c_str()
                                     : request.status.ToString().c_str());
  };
  return options;
}

absl::StatusOr<FleetOptions> FleetFromFlags(const DriverOptions& driver) {
  const std::string folder = WorkFolder(absl::GetFlag(FLAGS_work_dir), "run");
  FleetOptions fleet;
  fleet.workload = driver.workload;
  fleet.bytes_scale = driver.bytes_scale;
  fleet.time_scale = driver.time_scale;
  fleet.weights_dir = absl::GetFlag(FLAGS_weights_dir);
  if (fleet.weights_dir.empty()) {
    fleet.weights_dir =
        absl::StrCat(folder, "/weights-", driver.workload.name(), "-", driver.bytes_scale);
  }
  fleet.broker = driver.broker != "none";
  fleet.program_folder = BinFolder();
  fleet.notice = driver.notice;
  const std::string logs = absl::StrCat(folder, "/logs/", getpid());
  fleet.log_prefix = logs + "/run";
  for (const v1::WorkloadComponent& component : driver.workload.components()) {
    fleet.workers[component.name()] = {.resident = absl::GetFlag(FLAGS_resident),
                                       .retain = absl::GetFlag(FLAGS_retain),
                                       .allocate = absl::GetFlag(FLAGS_allocate)};
  }
  for (const std::string& name : absl::GetFlag(FLAGS_permanent)) {
    const auto found = fleet.workers.find(name);
    if (found == fleet.workers.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--permanent: '", name, "' given; it is no component of ", driver.workload.name()));
    }
    found->second.lifetime = "permanent";
  }
  std::error_code error;
  std::filesystem::create_directories(logs, error);
  if (error) return absl::UnavailableError(absl::StrCat(logs, ": ", error.message()));
  absl::Status made = EnsureWeights(
      fleet.workload, {}, fleet.bytes_scale, fleet.weights_dir,
      [last = std::string()](const std::string& component, int64_t, int64_t all) mutable {
        if (component == last) return;
        last = component;
        std::fprintf(stderr, "weights of %s: making %s\n", component.c_str(),
                     worker::FormatBytes(all).c_str());
      });
  if (!made.ok()) return made;
  return fleet;
}

// Runs with what is there, or with a fleet of its own. `stopped`: how that one ended.
absl::StatusOr<DriverReport> Run(DriverOptions options, absl::Status* stopped) {
  if (!absl::GetFlag(FLAGS_spawn)) return RunWorkload(options);
  const absl::StatusOr<FleetOptions> fleet_options = FleetFromFlags(options);
  if (!fleet_options.ok()) return fleet_options.status();
  absl::StatusOr<std::unique_ptr<Fleet>> fleet = Fleet::Start(*fleet_options);
  if (!fleet.ok()) return fleet.status();
  options.workers = (*fleet)->workers();
  options.broker = (*fleet)->broker();
  absl::StatusOr<DriverReport> report = RunWorkload(options);
  *stopped = (*fleet)->Stop();
  const bool failed = !report.ok() || !stopped->ok() ||
                      std::any_of(report->requests.begin(), report->requests.end(),
                                  [](const RequestRecord& r) { return !r.status.ok(); });
  if (failed) {
    std::fprintf(stderr, "logs of all processes: %s-*.log\n", fleet_options->log_prefix.c_str());
  }
  if (!failed) {
    std::error_code ignored;
    std::filesystem::remove_all(std::filesystem::path(fleet_options->log_prefix).parent_path(),
                                ignored);
  }
  return report;
}

}  // namespace

int RunCommand(int argc, char** argv) {
  const std::vector<std::string> rest = worker::ParseCommandLine(argc, argv, Help());
  if (!rest.empty()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("'", rest[0], "' is not a flag of run")));
  }
  absl::StatusOr<DriverOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(options.status());
  const std::string workload = options->workload.name();
  absl::Status stopped;
  const absl::StatusOr<DriverReport> report = Run(*std::move(options), &stopped);
  if (!report.ok()) return Fail(report.status());
  const bool json = absl::GetFlag(FLAGS_format) == "json";
  std::printf("%s",
              json ? RunJson(workload, *report).c_str() : RunTable(workload, *report).c_str());
  std::fflush(stdout);
  // What was done stays worth saying, whatever became of a process.
  if (!stopped.ok()) return Fail(stopped);
  return Totals(*report).failed == 0 ? 0 : 1;
}

}  // namespace vrambroker::pipeline
