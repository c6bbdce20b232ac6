#include "stage_workers/pipeline/run_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "stage_workers/pipeline/sha256.h"
#include "stage_workers/pipeline/statistics.h"
#include "stage_workers/worker/command_line.h"

namespace vrambroker::pipeline {
namespace {

using worker::FormatBytes;
using Json = nlohmann::ordered_json;

std::string ShortDigest(const std::string& digest) { return digest.substr(0, 12); }

std::string RequestRow(const RequestRecord& request) {
  if (!request.status.ok()) {
    return absl::StrFormat("  %5d %-20s failed: %s\n", request.run, request.pipeline,
                           request.status.ToString());
  }
  std::vector<std::string> kept;
  for (const StageRecord& stage : request.stages) {
    kept.push_back(absl::StrFormat("%d/%d", stage.kept_layers, stage.component_layers));
  }
  return absl::StrFormat("  %5d %-20s %9.3f %9.3f %9.3f %11s %11s  %s  %s%s\n", request.run,
                         request.pipeline, request.queued_seconds, request.seconds,
                         request.stall_seconds, FormatBytes(request.bytes_to_device),
                         FormatBytes(request.peak_bytes), ShortDigest(request.result_sha256),
                         absl::StrJoin(kept, " "), request.warm_up ? "  (warm-up)" : "");
}

Json StageJson(const StageRecord& stage) {
  return {{"component", stage.component},
          {"seconds", stage.seconds},
          {"stall_seconds", stage.stall_seconds},
          {"waited_seconds", stage.waited_seconds},
          {"bytes_to_device", stage.bytes_to_device},
          {"resident_layers", stage.resident_layers},
          {"kept_layers", stage.kept_layers},
          {"component_layers", stage.component_layers},
          {"peak_bytes", stage.peak_bytes}};
}

Json RequestJson(const RequestRecord& request) {
  Json stages = Json::array();
  for (const StageRecord& stage : request.stages) stages.push_back(StageJson(stage));
  return {{"run", request.run},
          {"pipeline", request.pipeline},
          {"warm_up", request.warm_up},
          {"ran", request.status.ok()},
          {"error", request.status.ok() ? "" : request.status.ToString()},
          {"queued_seconds", request.queued_seconds},
          {"seconds", request.seconds},
          {"stall_seconds", request.stall_seconds},
          {"bytes_to_device", request.bytes_to_device},
          {"peak_bytes", request.peak_bytes},
          {"result_sha256", request.result_sha256},
          {"stages", stages}};
}

}  // namespace

RunTotals Totals(const DriverReport& report) {
  RunTotals totals;
  std::vector<double> seconds;
  std::vector<double> queued;
  std::vector<double> stalls;
  std::vector<std::string> results;
  for (const RequestRecord& request : report.requests) {
    results.push_back(request.result_sha256);
    if (!request.status.ok()) ++totals.failed;
    if (!request.status.ok() || request.warm_up) continue;
    seconds.push_back(request.seconds);
    queued.push_back(request.queued_seconds);
    stalls.push_back(request.stall_seconds);
  }
  totals.requests = static_cast<int>(seconds.size());
  totals.p50_seconds = Percentile(seconds, 50);
  totals.p95_seconds = Percentile(seconds, 95);
  totals.mean_queued_seconds = Mean(queued);
  totals.stall_seconds = Mean(stalls);
  totals.result_sha256 = results.empty() ? "" : Sha256Hex(absl::StrJoin(results, "\n"));
  return totals;
}

std::string RunTable(const std::string& workload, const DriverReport& report) {
  const RunTotals totals = Totals(report);
  std::string text = absl::StrFormat("%s on %s (%s)\n", workload, report.device_uuid,
                                     FormatBytes(report.device_capacity_bytes));
  absl::StrAppend(&text, absl::StrFormat("  %5s %-20s %9s %9s %9s %11s %11s  %-12s  %s\n", "run",
                                         "pipeline", "queued s", "request s", "lost s", "moved",
                                         "worker peak", "result", "layers kept after each stage"));
  for (const RequestRecord& request : report.requests) {
    absl::StrAppend(&text, RequestRow(request));
  }
  const auto seconds = [&totals](double value) {
    return totals.requests > 0 ? absl::StrFormat("%.3f s", value) : std::string("-");
  };
  absl::StrAppend(
      &text, totals.requests, " requests, ", totals.failed, " failed: p50 ",
      seconds(totals.p50_seconds), ", p95 ", seconds(totals.p95_seconds), ", queued ",
      seconds(totals.mean_queued_seconds), ", lost to loading ", seconds(totals.stall_seconds),
      " (means)\nmoved to the card: ",
      report.bytes_to_device.has_value()
          ? absl::StrCat(FormatBytes(*report.bytes_to_device), ", loading ahead included")
          : "not known, as a worker was gone at the end",
      "; highest use of the card: ",
      report.device_peak_bytes > 0 ? FormatBytes(report.device_peak_bytes)
                                   : "not counted by this card",
      "\nresults: ", totals.requests > 0 ? totals.result_sha256 : "-", "\n");
  if (report.undeclared_runs > 0) {
    absl::StrAppend(&text, report.undeclared_runs, " runs were not declared, the broker said: ",
                    report.undeclared_reason.ToString(), "\n");
  }
  return text;
}

std::string RunJson(const std::string& workload, const DriverReport& report) {
  const RunTotals totals = Totals(report);
  Json requests = Json::array();
  for (const RequestRecord& request : report.requests) requests.push_back(RequestJson(request));
  const auto figure = [&totals](double value) {
    return totals.requests > 0 ? Json(value) : Json(nullptr);
  };
  const Json moved =
      report.bytes_to_device.has_value() ? Json(*report.bytes_to_device) : Json(nullptr);
  const Json json = {{"workload", workload},
                     {"device_uuid", report.device_uuid},
                     {"device_capacity_bytes", report.device_capacity_bytes},
                     {"requests", requests},
                     {"totals",
                      {{"requests", totals.requests},
                       {"failed", totals.failed},
                       {"p50_seconds", figure(totals.p50_seconds)},
                       {"p95_seconds", figure(totals.p95_seconds)},
                       {"queued_seconds", figure(totals.mean_queued_seconds)},
                       {"stall_seconds", figure(totals.stall_seconds)},
                       {"bytes_to_device", moved},
                       {"peak_bytes", report.device_peak_bytes},
                       {"undeclared_runs", report.undeclared_runs},
                       {"result_sha256", totals.result_sha256}}}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace vrambroker::pipeline
