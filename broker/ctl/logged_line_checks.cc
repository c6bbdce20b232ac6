#include "broker/ctl/logged_line_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "broker/ctl/field_checker.h"

namespace vrambroker::ctl {
namespace {

constexpr int kMostLayers = 4096;
constexpr int kMostPasses = 1'000'000;
constexpr int64_t kMostBytes = int64_t{1} << 46;
constexpr double kMostRate = 1e18;
// 9999-12-31T23:59:59Z.
constexpr int64_t kLastSecond = 253402300799;

void CheckSeconds(const std::string& field, double seconds, FieldChecker* check) {
  check->Within(field, seconds, 0, kMostLoggedSeconds);
}

void Check(const v1::DecisionLogHeader& header, FieldChecker* check) {
  for (int i = 0; i < header.devices_size(); ++i) {
    const v1::LoggedDevice& device = header.devices(i);
    const std::string field = absl::StrCat("header.devices[", i, "]");
    check->Within(field + ".capacity_bytes", device.capacity_bytes(), 0, kMostBytes);
    check->Within(field + ".reserve_bytes", device.reserve_bytes(), 0, kMostBytes);
    check->Within(field + ".link_bytes_per_second", device.link_bytes_per_second(), 0, kMostRate);
  }
}

void Check(const std::string& field, const v1::Component& component, FieldChecker* check) {
  int64_t layers = 0;
  double bytes = 0;
  for (int i = 0; i < component.layer_runs_size() && check->ok(); ++i) {
    const v1::LayerRun& run = component.layer_runs(i);
    const std::string place = absl::StrCat(field, ".layer_runs[", i, "]");
    check->Within(place + ".count", int64_t{run.count()}, 1, kMostLayers);
    check->Within(place + ".layer_bytes", run.layer_bytes(), 1, kMostBytes);
    layers += run.count();
    bytes += static_cast<double>(run.count()) * static_cast<double>(run.layer_bytes());
  }
  check->Within(field + ".layer_runs: layers in all", layers, 0, kMostLayers);
  check->Within(field + ".layer_runs: bytes in all", bytes, 0, static_cast<double>(kMostBytes));
  check->Within(field + ".fixed_bytes", component.fixed_bytes(), 0, kMostBytes);
  check->Within(field + ".window_bytes", component.window_bytes(), 0, kMostBytes);
  CheckSeconds(field + ".pass_seconds", component.pass_seconds(), check);
  check->Within(field + ".link_bytes_per_second", component.link_bytes_per_second(), 0, kMostRate);
}

void Check(const v1::LoggedUseBegan& use, FieldChecker* check) {
  check->Within("use_began.passes", int64_t{use.passes()}, 0, kMostPasses);
  check->Within("use_began.declared_activation_bytes", use.declared_activation_bytes(), 0,
                kMostBytes);
  check->Within("use_began.activation_bytes", use.activation_bytes(), 0, kMostBytes);
  CheckSeconds("use_began.waited_seconds", use.waited_seconds(), check);
}

void Check(const v1::LoggedUseEnded& use, FieldChecker* check) {
  check->Within("use_ended.passes", int64_t{use.passes()}, 0, kMostPasses);
  CheckSeconds("use_ended.seconds", use.seconds(), check);
  CheckSeconds("use_ended.compute_seconds", use.compute_seconds(), check);
  CheckSeconds("use_ended.stall_seconds", use.stall_seconds(), check);
  CheckSeconds("use_ended.copy_seconds", use.copy_seconds(), check);
  check->Within("use_ended.loaded_bytes", use.loaded_bytes(), 0, INT64_MAX);
}

}  // namespace

double SecondsOf(const v1::DecisionLogLine& line) {
  return static_cast<double>(line.time().seconds()) + 1e-9 * line.time().nanos();
}

absl::Status CheckLoggedLine(const v1::DecisionLogLine& line) {
  FieldChecker check;
  if (line.has_time()) {
    check.Within("time: seconds since 1970", line.time().seconds(), 0, kLastSecond);
  }
  if (line.has_header()) Check(line.header(), &check);
  for (int i = 0; i < line.worker().components_size(); ++i) {
    Check(absl::StrCat("worker.components[", i, "]"), line.worker().components(i), &check);
  }
  if (line.has_use_began()) Check(line.use_began(), &check);
  if (line.has_use_ended()) Check(line.use_ended(), &check);
  if (line.has_run_declared()) {
    CheckSeconds("run_declared.starts_in_seconds", line.run_declared().starts_in_seconds(), &check);
  }
  return check.Take();
}

}  // namespace vrambroker::ctl
