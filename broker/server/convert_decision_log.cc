#include "broker/server/convert_decision_log.h"

#include <google/protobuf/util/json_util.h>

namespace vrambroker::server {
namespace {

using LayerRuns = google::protobuf::RepeatedPtrField<v1::LayerRun>;

static_assert(static_cast<int>(core::HostTier::kPinned) == v1::HOST_TIER_PINNED);

void WriteLayers(const core::LayerTable& layers, LayerRuns* out) {
  for (int i = 0; i < layers.count(); ++i) {
    const int64_t bytes = (layers.Of(i + 1) - layers.Of(i)).count();
    if (out->empty() || out->rbegin()->layer_bytes() != bytes) out->Add()->set_layer_bytes(bytes);
    out->rbegin()->set_count(out->rbegin()->count() + 1);
  }
}

void WriteComponent(const core::PlanComponent& c, const std::string& name,
                    v1::LoggedPlanComponent* out) {
  out->set_id(name);
  WriteLayers(*c.layers, out->mutable_layer_runs());
  out->set_exposed_seconds_per_byte(c.sigma);
  out->set_link_share(c.link_share);
  out->set_held_layers(c.held);
  out->set_keep_by_recency(c.keep_by_recency);
  out->set_keep_rank(c.keep_rank);
}

void WriteUse(const core::PlanUse& use, v1::LoggedPlanUse* out) {
  out->set_component(use.component);
  out->set_first_slot(use.first_slot);
  out->set_last_slot(use.last_slot);
  out->set_passes(use.passes);
  out->set_need_bytes(use.need.count());
  out->set_window_bytes(use.window.count());
  out->set_min_resident(use.min_resident);
  out->set_max_resident(use.max_resident);
  out->set_running(use.granted >= 0);
  if (use.granted >= 0) out->set_granted(use.granted);
  out->set_probability(use.probability);
  out->set_fill(use.fill);
}

}  // namespace

void WriteTime(absl::Time time, google::protobuf::Timestamp* out) {
  absl::Duration rest;
  out->set_seconds(absl::IDivDuration(time - absl::UnixEpoch(), absl::Seconds(1), &rest));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

void Write(const core::ComponentSpec& spec, v1::Component* out) {
  out->set_name(spec.name);
  WriteLayers(spec.layers, out->mutable_layer_runs());
  out->set_fixed_bytes(spec.fixed.count());
  out->set_window_bytes(spec.window.count());
  out->set_lifetime(spec.lifetime == core::Lifetime::kPermanent ? v1::LIFETIME_PERMANENT
                                                                : v1::LIFETIME_FORWARD);
  out->set_no_host_copy(spec.no_host_copy);
  out->set_pass_seconds(spec.pass_seconds);
  out->set_link_bytes_per_second(spec.link_rate);
  out->set_host_tier(static_cast<v1::HostTier>(spec.host_tier));
}

void Write(const core::DeviceSpec& device, v1::LoggedDevice* out) {
  out->set_uuid(device.uuid);
  out->set_capacity_bytes(device.capacity.count());
  out->set_reserve_bytes(device.reserve.count());
  out->set_link_bytes_per_second(device.link_rate);
}

void Write(const core::Knowledge& knowledge, v1::LoggedPlan* out) {
  const core::PlanProblem& problem = knowledge.problem;
  out->set_capacity_bytes(problem.capacity.count());
  out->mutable_slot_starts()->Add(knowledge.slot_starts.begin(), knowledge.slot_starts.end());
  out->mutable_link_bytes()->Add(problem.link.begin(), problem.link.end());
  for (size_t i = 0; i < problem.components.size(); ++i) {
    WriteComponent(problem.components[i], knowledge.components[i]->name, out->add_components());
  }
  for (const core::PlanUse& use : problem.uses) WriteUse(use, out->add_uses());
  out->set_deciding(knowledge.deciding + 1);
  out->mutable_resident()->Add(knowledge.resident.begin(), knowledge.resident.end());
  out->mutable_keep()->Add(knowledge.keep.begin(), knowledge.keep.end());
  out->mutable_ahead()->Add(knowledge.ahead.begin(), knowledge.ahead.end());
  out->set_saved_seconds(knowledge.saved_seconds);
}

std::string ToLine(const v1::DecisionLogLine& line) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(line, &json, options);
  return status.ok() ? json + "\n" : "";
}

}  // namespace vrambroker::server
