#include "broker/server/convert_explanation.h"

#include "broker/server/convert_answers.h"

namespace vrambroker::server {
namespace {

// Both lists are in one order.
static_assert(static_cast<int>(core::AlternativeKind::kKeepAll) == v1::ALTERNATIVE_KIND_KEEP_ALL);

void WriteComponent(const core::ExplainedComponent& component, v1::ExplainedComponent* out) {
  out->set_id(component.name);
  out->set_layers(component.layers);
  out->set_layer_bytes(component.bytes.count());
  out->set_held_layers(component.held);
  out->set_exposed_seconds_per_byte(component.sigma);
  out->set_keep_layers(component.keep);
  out->set_ahead_layers(component.ahead);
}

void WriteUse(const core::ExplainedUse& use, const std::string& component, v1::ExplainedUse* out) {
  out->set_component_id(component);
  out->set_start_seconds(use.start_seconds);
  out->set_passes(use.passes);
  out->set_need_bytes(use.need.count());
  out->set_window_bytes(use.window.count());
  out->set_probability(use.probability);
  out->set_running(use.running);
  out->set_deciding(use.deciding);
  out->set_resident_layers(use.resident);
  out->set_kept_layers(use.kept);
  out->set_loaded_layers(use.loaded);
  out->set_saved_seconds(use.saved_seconds);
}

void WriteAlternative(const core::Alternative& alternative, v1::Alternative* out) {
  out->set_kind(static_cast<v1::AlternativeKind>(alternative.kind));
  out->set_layers(alternative.layers);
  out->set_chosen(alternative.chosen);
  out->set_cost_seconds(alternative.cost_seconds);
  out->set_missing_bytes(alternative.missing.count());
  out->set_loser(alternative.loser);
  out->set_loser_seconds(alternative.loser_seconds);
}

}  // namespace

void Write(const core::Explanation& explanation, v1::ExplainDecisionResponse* out) {
  Write(explanation.decision, out->mutable_decision());
  out->set_planned(explanation.planned);
  if (!explanation.planned) return;
  out->set_capacity_bytes(explanation.capacity.count());
  out->set_load_ahead(explanation.load_ahead);
  for (const core::ExplainedComponent& one : explanation.components) {
    WriteComponent(one, out->add_components());
  }
  for (const core::ExplainedUse& use : explanation.uses) {
    WriteUse(use, explanation.components[static_cast<size_t>(use.component)].name, out->add_uses());
  }
  out->set_planned_layers(explanation.planned_layers);
  out->set_saved_seconds(explanation.saved_seconds);
  out->set_reproduced(explanation.reproduced);
  for (const core::Alternative& one : explanation.alternatives) {
    WriteAlternative(one, out->add_alternatives());
  }
}

}  // namespace vrambroker::server
