#include "stage_workers/offload/workload_file.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "stage_workers/offload/layers.h"

namespace vrambroker::offload {
namespace {

constexpr int kMaxNamed = 256;
constexpr int kMaxStages = 64;
constexpr int kMaxRuns = 100'000;
constexpr int kMaxNameBytes = 128;
// As many uses as may wait at a broker.
constexpr int kMaxConcurrentRuns = 1024;
// Of anything that is counted in bytes, a component in all included: 64 TiB.
constexpr int64_t kMaxBytes = int64_t{1} << 46;
constexpr size_t kMaxShapeBytes = 64;

absl::Status Invalid(const std::string& field, const std::string& given,
                     const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", given, " given; ", allowed));
}

absl::Status AtLeast(const std::string& field, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return Invalid(field, absl::StrCat(value), absl::StrCat(least, " or more is allowed"));
}

absl::Status Bytes(const std::string& field, int64_t value, int64_t least) {
  if (value >= least && value <= kMaxBytes) return absl::OkStatus();
  return Invalid(field, absl::StrCat(value),
                 absl::StrCat(least, " to ", kMaxBytes, " (64 TiB) is allowed"));
}

absl::Status AtMostEntries(const std::string& field, int64_t count, int64_t most) {
  if (count <= most) return absl::OkStatus();
  return Invalid(field, absl::StrCat(count, " entries"),
                 absl::StrCat("at most ", most, " are allowed"));
}

absl::Status FiniteAtLeastZero(const std::string& field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Invalid(field, absl::StrCat(value), "a finite number of 0 or more is needed");
}

// What was given, escaped and cut so that it can go into a message.
std::string Quoted(absl::string_view text) {
  constexpr size_t kShown = 40;
  return absl::StrCat(
      "\"", absl::CHexEscape(text.substr(0, kShown)),
      text.size() > kShown ? absl::StrCat("...\" (", text.size(), " bytes)") : "\"");
}

// What the JSON parser says quotes the file: without control characters, and not without end.
std::string Shown(google::protobuf::StringPiece message) {
  constexpr size_t kShown = 400;
  return absl::Utf8SafeCHexEscape(
      absl::string_view(message.data(), std::min<size_t>(message.size(), kShown)));
}

absl::Status CheckName(const std::string& field, const std::string& name) {
  const bool good = !name.empty() && name.size() <= kMaxNameBytes &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
                    });
  if (good) return absl::OkStatus();
  return Invalid(
      field, Quoted(name),
      absl::StrCat("1 to ", kMaxNameBytes, " letters, digits, '.', '-' and '_' are allowed"));
}

// A good one, and not taken before.
absl::Status NewName(const std::string& field, const std::string& name,
                     std::set<std::string>& names) {
  if (absl::Status status = CheckName(field, name); !status.ok()) return status;
  if (names.insert(name).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", Quoted(name), " is used before"));
}

absl::Status KnownName(const std::string& field, const std::string& name,
                       const std::set<std::string>& names, const char* what) {
  if (names.count(name) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", Quoted(name), " is no ", what, " of this workload"));
}

// The first of several checks that fails.
absl::Status First(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& status : checks) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// 0 stands for 1.
absl::Status CheckConcurrentRuns(int count) {
  if (count >= 0 && count <= kMaxConcurrentRuns) return absl::OkStatus();
  return Invalid("max_concurrent_runs", absl::StrCat(count),
                 absl::StrCat("1 to ", kMaxConcurrentRuns, " is allowed"));
}

absl::Status CheckDevice(const v1::WorkloadDevice& device) {
  if (absl::Status status = First({Bytes("device.capacity_bytes", device.capacity_bytes(), 1),
                                   Bytes("device.reserve_bytes", device.reserve_bytes(), 0)});
      !status.ok()) {
    return status;
  }
  if (device.reserve_bytes() >= device.capacity_bytes()) {
    return Invalid(
        "device.reserve_bytes", absl::StrCat(device.reserve_bytes()),
        absl::StrCat("less than the capacity of ", device.capacity_bytes(), " is allowed"));
  }
  const double rate = device.h2d_bytes_per_second();
  if (std::isfinite(rate) && rate > 0) return absl::OkStatus();
  return Invalid("device.h2d_bytes_per_second", absl::StrCat(rate),
                 "a finite number above 0 is needed");
}

absl::Status CheckComponent(const std::string& field, const v1::WorkloadComponent& component) {
  if (absl::Status status =
          First({Bytes(field + ".fixed_bytes", component.fixed_bytes(), 0),
                 AtLeast(field + ".window_layers", component.window_layers(), 0),
                 FiniteAtLeastZero(field + ".pass_seconds", component.pass_seconds())});
      !status.ok()) {
    return status;
  }
  int64_t layers = 0;
  double bytes = static_cast<double>(component.fixed_bytes());
  for (int i = 0; i < component.layer_groups_size(); ++i) {
    const v1::LayerGroup& group = component.layer_groups(i);
    const std::string place = absl::StrCat(field, ".layer_groups[", i, "]");
    if (absl::Status status = First({AtLeast(place + ".count", group.count(), 1),
                                     Bytes(place + ".layer_bytes", group.layer_bytes(), 1)});
        !status.ok()) {
      return status;
    }
    layers += group.count();
    bytes += static_cast<double>(group.count()) * static_cast<double>(group.layer_bytes());
  }
  if (layers < 1 || layers > kMaxLayers) {
    return Invalid(field + ".layer_groups", absl::StrCat(layers, " layers"),
                   absl::StrCat("1 to ", kMaxLayers, " are allowed"));
  }
  if (bytes > static_cast<double>(kMaxBytes)) {
    return Invalid(field, absl::StrCat(bytes, " bytes in all"),
                   absl::StrCat("at most ", kMaxBytes, " are allowed"));
  }
  return absl::OkStatus();
}

// Who takes more than it declares runs the card out of memory.
absl::Status Declared(const std::string& field, const v1::WorkloadStage& stage) {
  if (stage.declared_activation_bytes() == 0) return absl::OkStatus();
  return Bytes(field, stage.declared_activation_bytes(), stage.activation_bytes());
}

absl::Status ShapeOf(const std::string& field, const std::string& shape) {
  if (shape.size() <= kMaxShapeBytes) return absl::OkStatus();
  return Invalid(field, absl::StrCat(shape.size(), " bytes"),
                 absl::StrCat("at most ", kMaxShapeBytes, " are allowed"));
}

absl::Status CheckPipeline(const std::string& field, const v1::WorkloadPipeline& pipeline,
                           const std::set<std::string>& components) {
  if (pipeline.stages_size() < 1 || pipeline.stages_size() > kMaxStages) {
    return Invalid(field + ".stages", absl::StrCat(pipeline.stages_size(), " stages"),
                   absl::StrCat("1 to ", kMaxStages, " are allowed"));
  }
  for (int i = 0; i < pipeline.stages_size(); ++i) {
    const v1::WorkloadStage& stage = pipeline.stages(i);
    const std::string place = absl::StrCat(field, ".stages[", i, "]");
    absl::Status status =
        First({KnownName(place + ".component", stage.component(), components, "component"),
               AtLeast(place + ".passes", stage.passes(), 0),
               Bytes(place + ".activation_bytes", stage.activation_bytes(), 0),
               ShapeOf(place + ".shape", stage.shape()),
               Declared(place + ".declared_activation_bytes", stage)});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWorkload(const v1::Workload& workload) {
  if (absl::Status status =
          First({CheckName("name", workload.name()), CheckDevice(workload.device()),
                 CheckConcurrentRuns(workload.max_concurrent_runs()),
                 AtMostEntries("components", workload.components_size(), kMaxNamed),
                 AtMostEntries("pipelines", workload.pipelines_size(), kMaxNamed),
                 AtMostEntries("runs", workload.runs_size(), kMaxRuns)});
      !status.ok()) {
    return status;
  }
  std::set<std::string> components;
  for (int i = 0; i < workload.components_size(); ++i) {
    const std::string field = absl::StrCat("components[", i, "]");
    absl::Status status =
        First({NewName(field + ".name", workload.components(i).name(), components),
               CheckComponent(field, workload.components(i))});
    if (!status.ok()) return status;
  }
  std::set<std::string> pipelines;
  for (int i = 0; i < workload.pipelines_size(); ++i) {
    const std::string field = absl::StrCat("pipelines[", i, "]");
    absl::Status status = First({NewName(field + ".name", workload.pipelines(i).name(), pipelines),
                                 CheckPipeline(field, workload.pipelines(i), components)});
    if (!status.ok()) return status;
  }
  for (int i = 0; i < workload.runs_size(); ++i) {
    const std::string field = absl::StrCat("runs[", i, "]");
    absl::Status status =
        First({KnownName(field + ".pipeline", workload.runs(i).pipeline(), pipelines, "pipeline"),
               FiniteAtLeastZero(field + ".arrival_seconds", workload.runs(i).arrival_seconds())});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Workload> LoadWorkload(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory; a JSON file of a workload is needed"));
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  const int64_t bytes = static_cast<int64_t>(file.tellg());
  if (bytes < 0 || bytes > kMaxWorkloadFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", bytes, " bytes; at most ", kMaxWorkloadFileBytes, " are read"));
  }
  std::string text(bytes, '\0');
  file.seekg(0);
  if (!file.read(text.data(), bytes)) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  v1::Workload workload;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &workload);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no workload: ", Shown(parsed.message())));
  }
  if (absl::Status status = CheckWorkload(workload); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  return workload;
}

}  // namespace vrambroker::offload
