#include "broker/ctl/workload_file.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "broker/ctl/printable.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::ctl {
namespace {

using Index = std::map<std::string, int>;

// What the JSON parser says quotes the file: without control characters, and not without end.
std::string Shown(google::protobuf::StringPiece message) {
  constexpr size_t kShown = 400;
  return Printable(absl::string_view(message.data(), std::min<size_t>(message.size(), kShown)));
}

absl::StatusOr<int> Find(const std::string& field, const std::string& name, const Index& index,
                         const char* what) {
  const auto it = index.find(name);
  if (it != index.end()) return it->second;
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", sim::Quoted(name), " is no ", what, " of this workload"));
}

int OrDefault(int value, int otherwise) { return value == 0 ? otherwise : value; }

sim::Component ComponentOf(const v1::WorkloadComponent& message) {
  sim::Component c;
  c.name = message.name();
  for (const v1::LayerGroup& group : message.layer_groups()) {
    c.layer_groups.emplace_back(group.count(), group.layer_bytes());
  }
  c.fixed_bytes = message.fixed_bytes();
  c.window_layers = OrDefault(message.window_layers(), 2);
  c.pass_seconds = message.pass_seconds();
  return c;
}

absl::Status AddPipelines(const v1::Workload& message, const Index& components, sim::Workload* w) {
  for (int i = 0; i < message.pipelines_size(); ++i) {
    sim::Pipeline pipeline;
    pipeline.name = message.pipelines(i).name();
    for (int j = 0; j < message.pipelines(i).stages_size(); ++j) {
      const v1::WorkloadStage& stage = message.pipelines(i).stages(j);
      const auto component = Find(absl::StrCat("pipelines[", i, "].stages[", j, "].component"),
                                  stage.component(), components, "component");
      if (!component.ok()) return component.status();
      pipeline.stages.push_back({*component, OrDefault(stage.passes(), 1), stage.activation_bytes(),
                                 stage.shape(), stage.declared_activation_bytes()});
    }
    w->pipelines.push_back(std::move(pipeline));
  }
  return absl::OkStatus();
}

absl::StatusOr<sim::Workload> Convert(const v1::Workload& message) {
  sim::Workload w;
  w.name = message.name();
  w.device = {message.device().capacity_bytes(), message.device().reserve_bytes(),
              message.device().h2d_bytes_per_second()};
  w.max_concurrent_runs = OrDefault(message.max_concurrent_runs(), 1);
  Index components, pipelines;
  for (const v1::WorkloadComponent& c : message.components()) {
    components.emplace(c.name(), static_cast<int>(w.components.size()));
    w.components.push_back(ComponentOf(c));
  }
  for (const v1::WorkloadPipeline& p : message.pipelines()) {
    pipelines.emplace(p.name(), static_cast<int>(pipelines.size()));
  }
  if (absl::Status status = AddPipelines(message, components, &w); !status.ok()) return status;
  for (int i = 0; i < message.runs_size(); ++i) {
    const auto pipeline = Find(absl::StrCat("runs[", i, "].pipeline"), message.runs(i).pipeline(),
                               pipelines, "pipeline");
    if (!pipeline.ok()) return pipeline.status();
    w.runs.push_back({*pipeline, message.runs(i).arrival_seconds()});
  }
  if (absl::Status status = sim::Validate(w); !status.ok()) return status;
  return w;
}

// A file, or whatever else can be read to its end, such as a pipe.
absl::StatusOr<std::string> ReadAll(const std::string& path) {
  constexpr size_t kAtOnce = size_t{1} << 20;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  while (file && text.size() <= kMaxWorkloadFileBytes) {
    const size_t before = text.size();
    text.resize(before + kAtOnce);
    file.read(text.data() + before, kAtOnce);
    text.resize(before + static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read", errno == 0 ? "" : ": ",
                                            errno == 0 ? "" : std::strerror(errno)));
  }
  if (text.size() <= kMaxWorkloadFileBytes) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": more than ", kMaxWorkloadFileBytes, " bytes, which are the most read"));
}

}  // namespace

absl::StatusOr<sim::Workload> ParseWorkload(absl::string_view json) {
  v1::Workload message;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &message);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("no workload: ", Shown(parsed.message())));
  }
  return Convert(message);
}

absl::StatusOr<sim::Workload> LoadWorkload(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory; a JSON file of a workload is needed"));
  }
  const absl::StatusOr<std::string> text = ReadAll(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<sim::Workload> workload = ParseWorkload(*text);
  if (workload.ok()) return workload;
  return absl::Status(workload.status().code(),
                      absl::StrCat(path, ": ", workload.status().message()));
}

}  // namespace vrambroker::ctl
