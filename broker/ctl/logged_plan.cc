#include "broker/ctl/logged_plan.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "broker/ctl/field_checker.h"

namespace vrambroker::ctl {
namespace {

constexpr int kMostLayers = 4096;
constexpr int kMostPasses = 1'000'000;
constexpr int64_t kMostBytes = int64_t{1} << 46;
// Of all passes of a use, so that what the planner adds up stays within 63 bits.
constexpr double kMostStreamed = 1e18;
constexpr double kMostLink = 1e18;
constexpr double kMost = 1e12;
// Seconds: as many uses as a plan takes, each as long as its passes may be.
constexpr double kMostStart = 1e18;

using LayerRuns = google::protobuf::RepeatedPtrField<v1::LayerRun>;

core::LayerTable ReadLayers(const std::string& field, const LayerRuns& runs, FieldChecker* check) {
  std::vector<std::pair<int, core::Bytes>> read;
  int64_t layers = 0;
  double bytes = 0;
  for (const v1::LayerRun& run : runs) {
    check->Within(field + ".count", int64_t{run.count()}, 1, kMostLayers);
    check->Within(field + ".layer_bytes", run.layer_bytes(), 1, kMostBytes);
    layers += run.count();
    bytes += static_cast<double>(run.count()) * static_cast<double>(run.layer_bytes());
    check->Within(field + ": layers in all", layers, 1, kMostLayers);
    if (!check->ok()) return core::LayerTable();
    read.emplace_back(run.count(), core::Bytes(run.layer_bytes()));
  }
  check->Within(field + ": bytes in all", bytes, 0, static_cast<double>(kMostBytes));
  return check->ok() ? core::LayerTable(read) : core::LayerTable();
}

void ReadComponent(const std::string& field, const v1::LoggedPlanComponent& c, LoggedProblem* out,
                   FieldChecker* check) {
  out->layers.push_back(ReadLayers(field + ".layer_runs", c.layer_runs(), check));
  check->Within(field + ".exposed_seconds_per_byte", c.exposed_seconds_per_byte(), 0, kMost);
  check->Within(field + ".link_share", c.link_share(), 0, 1);
  check->Within(field + ".held_layers", int64_t{c.held_layers()}, 0, out->layers.back().count());
  check->Within(field + ".keep_rank", c.keep_rank(), -kMostLink, kMostLink);
  core::PlanComponent read;
  read.layers = &out->layers.back();
  read.sigma = c.exposed_seconds_per_byte();
  read.link_share = c.link_share();
  read.held = c.held_layers();
  read.keep_by_recency = c.keep_by_recency();
  read.keep_rank = c.keep_rank();
  out->problem.components.push_back(read);
}

void ReadUse(const std::string& field, const v1::LoggedPlanUse& u, core::PlanProblem* out,
             FieldChecker* check) {
  const int64_t components = static_cast<int64_t>(out->components.size());
  check->Within(field + ".component", int64_t{u.component()}, 0, components - 1);
  if (!check->ok()) return;
  const core::LayerTable& layers = *out->components[static_cast<size_t>(u.component())].layers;
  const int64_t before = out->uses.empty() ? 0 : out->uses.back().first_slot;
  check->Within(field + ".first_slot", int64_t{u.first_slot()}, before, out->slots - 1);
  check->Within(field + ".last_slot", int64_t{u.last_slot()}, u.first_slot(), out->slots - 1);
  check->Within(field + ".passes", int64_t{u.passes()}, 0, kMostPasses);
  check->Within(field + ".passes: bytes of all passes", layers.All().as_double() * u.passes(), 0,
                kMostStreamed);
  check->Within(field + ".need_bytes", u.need_bytes(), 0, kMostBytes);
  check->Within(field + ".window_bytes", u.window_bytes(), 0, kMostBytes);
  check->Within(field + ".min_resident", int64_t{u.min_resident()}, 0, layers.count());
  check->Within(field + ".max_resident", int64_t{u.max_resident()}, 0, layers.count());
  check->Within(field + ".granted", int64_t{u.granted()}, 0, layers.count());
  check->Within(field + ".probability", u.probability(), 0, 1);
  if (!check->ok()) return;
  core::PlanUse read;
  read.component = u.component();
  read.first_slot = u.first_slot();
  read.last_slot = u.last_slot();
  read.passes = u.passes();
  read.need = core::Bytes(u.need_bytes());
  read.window = core::Bytes(u.window_bytes());
  read.min_resident = u.min_resident();
  read.max_resident = u.max_resident();
  read.granted = u.running() ? u.granted() : -1;
  read.probability = u.probability();
  read.fill = u.fill();
  out->uses.push_back(read);
}

void CheckSizes(const v1::LoggedPlan& plan, FieldChecker* check) {
  check->Within("plan.capacity_bytes", plan.capacity_bytes(), 0, kMostBytes);
  check->Within("plan.slot_starts: entries", int64_t{plan.slot_starts_size()}, 1, kMostPlanSlots);
  if (plan.link_bytes_size() != 0) {
    check->Within("plan.link_bytes: entries", int64_t{plan.link_bytes_size()},
                  plan.slot_starts_size(), plan.slot_starts_size());
  }
  check->Within("plan.components: entries", int64_t{plan.components_size()}, 0,
                kMostPlanComponents);
  check->Within("plan.uses: entries", int64_t{plan.uses_size()}, 0, kMostPlanUses);
  check->Within("plan.deciding", int64_t{plan.deciding()}, 0, plan.uses_size());
}

// The first of a list that differs; what it is of is for the caller to name.
template <typename Logged>
int FirstDifference(const Logged& logged, const std::vector<int>& made) {
  for (int i = 0; i < logged.size() && i < static_cast<int>(made.size()); ++i) {
    if (logged.Get(i) != made[static_cast<size_t>(i)]) return i;
  }
  return logged.size() == static_cast<int>(made.size()) ? -1 : logged.size();
}

template <typename Logged>
std::string Both(const Logged& logged, const std::vector<int>& made, int at) {
  if (at >= logged.size() || at >= static_cast<int>(made.size())) {
    return absl::StrCat(logged.size(), " entries logged, ", made.size(), " made now");
  }
  return absl::StrCat(logged.Get(at), " logged, ", made[static_cast<size_t>(at)], " made now");
}

}  // namespace

absl::StatusOr<LoggedProblem> ReadProblem(const v1::LoggedPlan& plan) {
  FieldChecker check;
  CheckSizes(plan, &check);
  LoggedProblem out;
  out.problem.slots = plan.slot_starts_size();
  for (int i = 0; i < plan.slot_starts_size() && check.ok(); ++i) {
    check.Within(absl::StrCat("plan.slot_starts[", i, "]"), plan.slot_starts(i), -kMostStart,
                 kMostStart);
  }
  for (int i = 0; i < plan.link_bytes_size() && check.ok(); ++i) {
    check.Within(absl::StrCat("plan.link_bytes[", i, "]"), plan.link_bytes(i), 0, kMostLink);
    out.problem.link.push_back(plan.link_bytes(i));
  }
  for (int i = 0; i < plan.components_size() && check.ok(); ++i) {
    ReadComponent(absl::StrCat("plan.components[", i, "]"), plan.components(i), &out, &check);
  }
  for (int i = 0; i < plan.uses_size() && check.ok(); ++i) {
    ReadUse(absl::StrCat("plan.uses[", i, "]"), plan.uses(i), &out.problem, &check);
  }
  if (!check.ok()) return check.Take();
  out.problem.capacity = core::Bytes(plan.capacity_bytes());
  return out;
}

std::string Difference(const v1::LoggedPlan& logged, const core::Plan& made) {
  if (const int i = FirstDifference(logged.resident(), made.resident); i >= 0) {
    const int c = i < logged.uses_size() ? logged.uses(i).component() : -1;
    return absl::StrCat("layers resident in use ", i,
                        c >= 0 ? absl::StrCat(" of ", logged.components(c).id()) : "", ": ",
                        Both(logged.resident(), made.resident, i));
  }
  const std::pair<const char*, std::pair<const google::protobuf::RepeatedField<int32_t>*,
                                         const std::vector<int>*>>
      lists[] = {{"layers kept of ", {&logged.keep(), &made.keep}},
                 {"layers kept and loaded ahead of ", {&logged.ahead(), &made.ahead}}};
  for (const auto& [what, list] : lists) {
    const int i = FirstDifference(*list.first, *list.second);
    if (i < 0) continue;
    return absl::StrCat(
        what, i < logged.components_size() ? logged.components(i).id() : "further components", ": ",
        Both(*list.first, *list.second, i));
  }
  if (logged.saved_seconds() == made.saved_seconds) return "";
  return absl::StrFormat("seconds saved: %.17g logged, %.17g made now", logged.saved_seconds(),
                         made.saved_seconds);
}

}  // namespace vrambroker::ctl
