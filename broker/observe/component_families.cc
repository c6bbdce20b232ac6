#include "broker/observe/component_families.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace vrambroker::observe {
namespace {

struct ComponentSums {
  double held = 0;
  double target = 0;
  double charge = 0;
  double in_use = 0;
  double pass_seconds = 0;
  double link_rate = 0;
  double stall_per_byte = 0;
  double regret = 0;
};

// By UUID and "worker/component".
using Components = std::map<std::pair<std::string, std::string>, ComponentSums>;

Components SumsOf(const core::Picture& picture) {
  Components components;
  for (const core::DevicePicture& device : picture.devices) {
    for (const core::ComponentPicture& c : device.components) {
      ComponentSums& sums = components[{device.uuid, c.id}];
      sums.held += c.held_bytes.as_double();
      sums.target += c.target_bytes.as_double();
      sums.charge += c.charge.as_double();
      sums.in_use = std::max(sums.in_use, c.use ? 1.0 : 0.0);
      sums.pass_seconds = std::max(sums.pass_seconds, c.pass_seconds);
      sums.link_rate = std::max(sums.link_rate, c.link_rate);
      sums.stall_per_byte = std::max(sums.stall_per_byte, c.stall_per_byte);
      sums.regret += c.regret.as_double();
    }
  }
  return components;
}

MetricLabels LabelsOf(const std::pair<std::string, std::string>& key) {
  const auto& [uuid, id] = key;
  const size_t slash = id.find('/');
  return {{"UUID", uuid},
          {"worker", id.substr(0, slash)},
          {"component", slash == std::string::npos ? "" : id.substr(slash + 1)}};
}

// Reasons for which something was kept; the two usual ones from the start.
void AddKept(const Components& components, const Tally& tally, Families* out) {
  static const KeptTally nothing;
  const auto kept_by = [&](const auto& key) -> const KeptTally& {
    const auto device = tally.devices().find(key.first);
    if (device == tally.devices().end()) return nothing;
    const auto found = device->second.kept.find(key.second);
    return found == device->second.kept.end() ? nothing : found->second;
  };
  FamilyBuilder& family =
      out->Counter("component_kept_bytes_total",
                   "Bytes of layers that were kept at ends of uses of a component, by reason.");
  for (const auto& [key, sums] : components) {
    const KeptTally& kept = kept_by(key);
    for (size_t reason = 0; reason < kReasons; ++reason) {
      const bool usual = reason == static_cast<size_t>(core::Reason::kKeptForNextUse) ||
                         reason == static_cast<size_t>(core::Reason::kKeptByRecency);
      if (kept.bytes[reason] == 0 && !usual) continue;
      MetricLabels labels = LabelsOf(key);
      labels.push_back({"reason", kReasonNames[reason]});
      family.Add(std::move(labels), kept.bytes[reason]);
    }
  }
}

}  // namespace

void AddComponents(const Observation& seen, Families* out) {
  const Components components = SumsOf(seen.picture);
  const auto add = [&](FamilyBuilder& family, double ComponentSums::*value) {
    for (const auto& [key, sums] : components) family.Add(LabelsOf(key), sums.*value);
  };
  add(out->Gauge("component_held_bytes", "Bytes of the layers that a component holds."),
      &ComponentSums::held);
  add(out->Gauge("component_target_bytes", "Bytes of the layers that it may hold."),
      &ComponentSums::target);
  add(out->Gauge("component_charge_bytes",
                 "Bytes that a component is charged, fixed bytes and needs included."),
      &ComponentSums::charge);
  add(out->Gauge("component_in_use", "1 while a use of the component runs, else 0."),
      &ComponentSums::in_use);
  add(out->Gauge("component_pass_seconds",
                 "Compute of one pass as planned with, measured or declared. 0: not known."),
      &ComponentSums::pass_seconds);
  add(out->Gauge("component_link_bytes_per_second",
                 "Rate of its copies to the device as planned with, measured or declared."),
      &ComponentSums::link_rate);
  add(out->Gauge("component_stall_seconds_per_byte",
                 "Stall for each byte copied during its uses, as measured. 0: none, or not yet."),
      &ComponentSums::stall_per_byte);
  add(out->Counter("component_regret_bytes_total",
                   "Bytes that were released and loaded again within 10 s."),
      &ComponentSums::regret);
  AddKept(components, seen.tally, out);
}

}  // namespace vrambroker::observe
