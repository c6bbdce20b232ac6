// What `vramctl plan` says, as text and as JSON.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "broker/ctl/plan_command.h"
#include "broker/ctl/render.h"

namespace vrambroker::ctl {
namespace {

struct Losses {
  double first = 0;
  double middle = 0;  // of those after the first
  double most = 0;
};

Losses LossesOf(const sim::Result& result) {
  std::vector<sim::RequestRecord> requests = result.requests;
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.arrived < b.arrived; });
  std::vector<double> later;
  for (size_t i = 1; i < requests.size(); ++i) later.push_back(requests[i].stall_seconds);
  Losses losses;
  losses.first = requests.front().stall_seconds;
  losses.middle = sim::Percentile(later, 50);
  losses.most = sim::Percentile(later, 100);
  return losses;
}

std::string Layers(const sim::LayerRange& range) {
  if (range.least == range.most) return absl::StrCat(range.most);
  return absl::StrFormat("%d (%d to %d)", range.middle, range.least, range.most);
}

int64_t BytesOf(const sim::Component& component, int layers) {
  return component.Layers().Of(layers).count();
}

std::string ComponentTable(const sim::Workload& w, const sim::WhatIf& what_if) {
  std::vector<std::vector<std::string>> rows = {
      {"component", ">layers", ">uses", ">during a use", ">bytes", ">between uses", ">bytes"}};
  for (size_t c = 0; c < w.components.size(); ++c) {
    const sim::Component& component = w.components[c];
    const sim::ComponentPlan& plan = what_if.components[c];
    std::vector<std::string> row = {component.name, absl::StrCat(component.Layers().count()),
                                    absl::StrCat(plan.uses)};
    if (plan.uses == 0) {
      row.insert(row.end(), {"-", "-"});
    } else {
      row.push_back(Layers(plan.resident));
      row.push_back(RenderBytes(BytesOf(component, plan.resident.middle)));
    }
    if (plan.kept.has_value()) {
      row.push_back(Layers(*plan.kept));
      row.push_back(RenderBytes(BytesOf(component, plan.kept->middle)));
    } else {
      row.insert(row.end(), {"-", "-"});
    }
    rows.push_back(std::move(row));
  }
  return RenderTable(rows);
}

// What is needed: rounded up, so that the figure shown is enough.
std::string Needed(int64_t bytes) { return RenderBytes(sim::RoundUpAsShown(bytes)); }

std::string Misfit(const sim::Workload& w) {
  const sim::LargestNeed need = sim::FindLargestNeed(w);
  const int64_t taken = w.device.reserve_bytes + sim::FixedBytes(w);
  return absl::StrFormat(
      "  It does not fit. Stage %d of %s, a use of %s, needs at least %s: %s of activation and %s\n"
      "  of layers. Beside the reserve of %s and fixed bytes of %s there are %s: %s are missing.\n"
      "  The least card for it is %s.\n",
      need.stage + 1, w.pipelines[static_cast<size_t>(need.pipeline)].name,
      w.components[static_cast<size_t>(need.component)].name, Needed(need.bytes()),
      RenderBytes(need.activation_bytes), RenderBytes(need.layer_bytes),
      RenderBytes(w.device.reserve_bytes), RenderBytes(sim::FixedBytes(w)),
      RenderBytes(std::max<int64_t>(0, w.device.capacity_bytes - taken)),
      Needed(sim::LeastCapacity(w) - w.device.capacity_bytes), Needed(sim::LeastCapacity(w)));
}

std::string Loss(const sim::Workload& w, const sim::WhatIf& what_if) {
  const sim::Result& r = what_if.result;
  const Losses losses = LossesOf(r);
  const bool one = r.requests.size() == 1;
  std::string out;
  if (one) {
    out =
        absl::StrFormat("  1 request loses %.3f s to loading. From its arrival it takes %.3f s.\n",
                        r.stall_seconds, r.request_p50_seconds);
  } else {
    out = absl::StrFormat(
        "  %d requests lose %.3f s to loading in all: the first %.3f s, a later one %.3f s (p50), "
        "%.3f s at most.\n  From their arrival they take %.3f s (p50), %.3f s (p95).\n",
        r.requests.size(), r.stall_seconds, losses.first, losses.middle, losses.most,
        r.request_p50_seconds, r.request_p95_seconds);
  }
  const std::string least =
      what_if.stall_at_best < 0.0005
          ? "nothing"
          : absl::StrFormat("no more than the first loads, %.3f s in all", what_if.stall_at_best);
  const bool best = w.device.capacity_bytes >= what_if.capacity_at_best;
  absl::StrAppendFormat(&out, "  From a card of %s on %s %s %s.\n",
                        RenderBytes(what_if.capacity_at_best), one ? "it" : "they",
                        best ? (one ? "loses" : "lose") : "would lose", least);
  return out;
}

std::string RangeJson(const sim::LayerRange& range) {
  return absl::StrFormat("{\"least\": %d, \"middle\": %d, \"most\": %d}", range.least, range.middle,
                         range.most);
}

std::string ComponentJson(const sim::Component& component, const sim::ComponentPlan& plan) {
  std::string out = absl::StrFormat(
      "      {\"component\": \"%s\", \"layers\": %d, \"uses\": %d, \"resident_layers\": %s, "
      "\"kept_layers\": %s, \"kept_bytes\": %s}",
      component.name, component.Layers().count(), plan.uses,
      plan.uses == 0 ? "null" : RangeJson(plan.resident),
      plan.kept.has_value() ? RangeJson(*plan.kept) : "null",
      plan.kept.has_value() ? absl::StrCat(BytesOf(component, plan.kept->middle)) : "null");
  return out;
}

std::string MisfitJson(const sim::Workload& w) {
  const sim::LargestNeed need = sim::FindLargestNeed(w);
  return absl::StrFormat(
      "    \"does_not_fit\": {\"pipeline\": \"%s\", \"stage\": %d, \"component\": \"%s\", "
      "\"needed_bytes\": %d, \"activation_bytes\": %d, \"missing_bytes\": %d}\n",
      w.pipelines[static_cast<size_t>(need.pipeline)].name, need.stage,
      w.components[static_cast<size_t>(need.component)].name, need.bytes(), need.activation_bytes,
      sim::LeastCapacity(w) - w.device.capacity_bytes);
}

}  // namespace

std::string PlanText(const sim::Workload& w, const sim::WhatIf& what_if) {
  const std::string head =
      absl::StrCat(w.name, " on a card of ", RenderBytes(w.device.capacity_bytes), "\n");
  if (!what_if.fits) return head + Misfit(w);
  return absl::StrCat(head, "  It fits; the least card for it is ", Needed(sim::LeastCapacity(w)),
                      ". What is on the card:\n\n", ComponentTable(w, what_if), "\n",
                      Loss(w, what_if));
}

std::string PlanJson(const sim::Workload& w, const sim::WhatIf& what_if) {
  std::string out = absl::StrFormat(
      "  {\n    \"workload\": \"%s\",\n    \"capacity_bytes\": %d,\n    \"fits\": %s,\n"
      "    \"least_capacity_bytes\": %d,\n",
      w.name, w.device.capacity_bytes, what_if.fits ? "true" : "false", sim::LeastCapacity(w));
  if (!what_if.fits) return absl::StrCat(out, MisfitJson(w), "  }");
  const Losses losses = LossesOf(what_if.result);
  std::vector<std::string> components;
  for (size_t c = 0; c < w.components.size(); ++c) {
    components.push_back(ComponentJson(w.components[c], what_if.components[c]));
  }
  absl::StrAppend(&out, "    \"components\": [\n", absl::StrJoin(components, ",\n"), "\n    ],\n");
  absl::StrAppendFormat(
      &out,
      "    \"stall_seconds\": %.6f,\n    \"first_request_stall_seconds\": %.6f,\n"
      "    \"later_request_stall_p50_seconds\": %.6f,\n"
      "    \"later_request_stall_most_seconds\": %.6f,\n    \"request_p50_seconds\": %.6f,\n"
      "    \"request_p95_seconds\": %.6f,\n    \"best_stall_seconds\": %.6f,\n"
      "    \"best_capacity_bytes\": %d\n  }",
      what_if.result.stall_seconds, losses.first, losses.middle, losses.most,
      what_if.result.request_p50_seconds, what_if.result.request_p95_seconds, what_if.stall_at_best,
      what_if.capacity_at_best);
  return out;
}

}  // namespace vrambroker::ctl
