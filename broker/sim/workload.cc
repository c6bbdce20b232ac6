#include "broker/sim/workload.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::sim {
namespace {

constexpr int kMaxNamed = 256;
constexpr int kMaxLayers = 4096;
constexpr int kMaxStages = 64;
constexpr int kMaxRuns = 100'000;
constexpr int kMaxPasses = 1'000'000;
// Of anything that is counted in bytes. Sums over all components stay within 63 bits.
constexpr int64_t kMaxBytes = int64_t{1} << 46;
constexpr int64_t kMaxShapeBytes = 64;
constexpr double kMaxSeconds = 1e9;

bool GoodName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
         });
}

// Collects the first fault; later checks cost nothing.
class Checker {
 public:
  void Within(const std::string& field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    Fail(field, absl::StrCat(value, " given; ", least, " to ", most, " is allowed"));
  }
  void Within(const std::string& field, double value, double least, double most) {
    if (std::isfinite(value) && value >= least && value <= most) return;
    Fail(field, absl::StrCat(value, " given; ", least, " to ", most, " is allowed"));
  }
  void Index(const std::string& field, int value, size_t count, const char* what) {
    if (value >= 0 && static_cast<size_t>(value) < count) return;
    Fail(field, absl::StrCat(value, " given; there are ", count, " ", what));
  }
  void NewName(const std::string& field, const std::string& name, std::set<std::string>* names) {
    Name(field, name);
    if (!names->insert(name).second) Fail(field, absl::StrCat(Quoted(name), " is used before"));
  }
  void Name(const std::string& field, const std::string& name) {
    if (GoodName(name)) return;
    Fail(field, absl::StrCat(Quoted(name), " given; 1 to ", kMaxNameBytes,
                             " letters, digits, '.', '-' and '_' are allowed"));
  }
  void Fail(const std::string& field, const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
  }
  bool ok() const { return status_.ok(); }
  absl::Status Take() { return std::move(status_); }

 private:
  absl::Status status_;
};

void CheckComponent(const std::string& field, const Component& c, Checker* check) {
  check->Within(field + ".fixed_bytes", c.fixed_bytes, 0, kMaxBytes);
  check->Within(field + ".window_layers", int64_t{c.window_layers}, 1, kMaxLayers);
  check->Within(field + ".pass_seconds", c.pass_seconds, 0, kMaxSeconds);
  int64_t layers = 0;
  double bytes = static_cast<double>(c.fixed_bytes);
  for (size_t i = 0; i < c.layer_groups.size() && check->ok(); ++i) {
    const auto& [count, each] = c.layer_groups[i];
    const std::string place = absl::StrCat(field, ".layer_groups[", i, "]");
    check->Within(place + ".count", int64_t{count}, 1, kMaxLayers);
    check->Within(place + ".layer_bytes", each, 1, kMaxBytes);
    layers += count;
    bytes += static_cast<double>(count) * static_cast<double>(each);
  }
  if (!check->ok()) return;
  check->Within(field + ".layer_groups: layers in all", layers, 1, kMaxLayers);
  check->Within(field + ".layer_groups: bytes in all", bytes, 1, static_cast<double>(kMaxBytes));
  if (check->ok()) check->Within(field + ": bytes of the window", c.WindowBytes(), 1, kMaxBytes);
}

void CheckPipeline(const std::string& field, const Pipeline& p, size_t components, Checker* check) {
  check->Within(field + ".stages: entries", static_cast<int64_t>(p.stages.size()), 1, kMaxStages);
  for (size_t i = 0; i < p.stages.size() && check->ok(); ++i) {
    const std::string place = absl::StrCat(field, ".stages[", i, "]");
    check->Index(place + ".component", p.stages[i].component, components, "components");
    check->Within(place + ".passes", int64_t{p.stages[i].passes}, 1, kMaxPasses);
    check->Within(place + ".activation_bytes", p.stages[i].activation_bytes, 0, kMaxBytes);
    check->Within(place + ".shape: bytes", static_cast<int64_t>(p.stages[i].shape.size()), 0,
                  kMaxShapeBytes);
    // Who takes more than it is charged runs the card out of memory.
    const int64_t declared = p.stages[i].declared_activation_bytes;
    if (declared == 0) continue;
    check->Within(place + ".declared_activation_bytes", declared, p.stages[i].activation_bytes,
                  kMaxBytes);
  }
}

void CheckDevice(const Device& device, Checker* check) {
  check->Within("device.capacity_bytes", device.capacity_bytes, 1, kMaxBytes);
  check->Within("device.reserve_bytes", device.reserve_bytes, 0,
                std::max<int64_t>(1, device.capacity_bytes) - 1);
  check->Within("device.h2d_bytes_per_second", device.link_rate, 1.0, 1e18);
}

}  // namespace

core::LayerTable Component::Layers() const {
  std::vector<std::pair<int, core::Bytes>> runs;
  for (const auto& [count, bytes] : layer_groups) runs.emplace_back(count, core::Bytes(bytes));
  return core::LayerTable(runs);
}

int64_t Component::WindowBytes() const {
  int64_t largest = 0;
  for (const auto& [count, bytes] : layer_groups) largest = std::max(largest, bytes);
  return largest * window_layers;
}

bool Workload::Sequential() const {
  return max_concurrent_runs == 1 && std::all_of(runs.begin(), runs.end(), [](const Run& run) {
           return run.arrival_seconds == 0;
         });
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kShown = 40;
  return absl::StrCat(
      "\"", absl::CHexEscape(text.substr(0, kShown)),
      text.size() > kShown ? absl::StrCat("...\" (", text.size(), " bytes)") : "\"");
}

absl::Status Validate(const Workload& w) {
  Checker check;
  check.Name("name", w.name);
  CheckDevice(w.device, &check);
  check.Within("max_concurrent_runs", int64_t{w.max_concurrent_runs}, 1, kMaxConcurrentRuns);
  check.Within("components: entries", static_cast<int64_t>(w.components.size()), 1, kMaxNamed);
  check.Within("pipelines: entries", static_cast<int64_t>(w.pipelines.size()), 1, kMaxNamed);
  check.Within("runs: entries", static_cast<int64_t>(w.runs.size()), 1, kMaxRuns);
  std::set<std::string> names;
  for (size_t i = 0; i < w.components.size() && check.ok(); ++i) {
    const std::string field = absl::StrCat("components[", i, "]");
    check.NewName(field + ".name", w.components[i].name, &names);
    CheckComponent(field, w.components[i], &check);
  }
  names.clear();
  for (size_t i = 0; i < w.pipelines.size() && check.ok(); ++i) {
    const std::string field = absl::StrCat("pipelines[", i, "]");
    check.NewName(field + ".name", w.pipelines[i].name, &names);
    CheckPipeline(field, w.pipelines[i], w.components.size(), &check);
  }
  for (size_t i = 0; i < w.runs.size() && check.ok(); ++i) {
    const std::string field = absl::StrCat("runs[", i, "]");
    check.Index(field + ".pipeline", w.runs[i].pipeline, w.pipelines.size(), "pipelines");
    check.Within(field + ".arrival_seconds", w.runs[i].arrival_seconds, 0.0, kMaxSeconds);
  }
  return check.Take();
}

}  // namespace vrambroker::sim
