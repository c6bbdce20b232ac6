#include "broker/server/convert_answers.h"

#include "broker/server/checks.h"

namespace vrambroker::server {
namespace {

// Both lists are in one order.
v1::Reason ToWire(core::Reason reason) { return static_cast<v1::Reason>(reason); }
static_assert(static_cast<int>(core::Reason::kCannotFit) == v1::REASON_CANNOT_FIT);
static_assert(static_cast<int>(core::DecisionKind::kLoadAhead) == v1::DECISION_KIND_LOAD_AHEAD);
static_assert(static_cast<int>(core::SessionPhase::kGone) == v1::SESSION_STATE_GONE);

void Write(const core::RefusedComponent& refused, v1::RefusedComponent* out) {
  out->set_component(refused.component);
  out->set_message(refused.message);
  out->set_missing_bytes(refused.missing.count());
}

void Write(absl::Time time, google::protobuf::Timestamp* out) {
  absl::Duration rest;
  out->set_seconds(absl::IDivDuration(time - absl::UnixEpoch(), absl::Seconds(1), &rest));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

void Write(const core::ComponentPicture& component, v1::ComponentPicture* out) {
  out->set_id(component.id);
  out->set_layers(component.layers);
  out->set_held_layers(component.held);
  out->set_target_layers(component.target);
  out->set_generation(component.generation.value());
  out->set_completed_generation(component.completed.value());
  out->set_held_bytes(component.held_bytes.count());
  out->set_charge_bytes(component.charge.count());
  out->set_use_id(component.use.value());
  out->set_granted_layers(component.granted);
  out->set_lifetime(component.lifetime == core::Lifetime::kPermanent ? v1::LIFETIME_PERMANENT
                                                                     : v1::LIFETIME_FORWARD);
  out->set_refused(component.refused);
  out->set_pass_seconds(component.pass_seconds);
  out->set_link_bytes_per_second(component.link_rate);
  out->set_stall_seconds_per_byte(component.stall_per_byte);
  out->set_activation_peak_bytes(component.activation_peak.count());
  out->set_measured_uses(component.measured_uses);
  out->set_regret_bytes(component.regret.count());
  out->set_layer_bytes(component.layer_bytes.count());
  out->set_session_id(component.session.value());
  if (component.release_asked.has_value()) {
    FromDuration(*component.release_asked, out->mutable_release_asked());
  }
  out->set_release_overdue(component.release_overdue);
}

void Write(const core::DevicePicture& device, v1::DevicePicture* out) {
  const core::Ledger& ledger = device.ledger;
  out->set_uuid(device.uuid);
  out->set_capacity_bytes(ledger.capacity.count());
  out->set_free_bytes(ledger.Free().count());
  out->set_in_use_bytes(ledger.in_use.count());
  out->set_retained_bytes(ledger.retained.count());
  out->set_permanent_bytes(ledger.permanent.count());
  out->set_pooled_bytes(ledger.pooled.count());
  out->set_draining_bytes(ledger.draining.count());
  out->set_external_bytes(ledger.external.count());
  out->set_external_known(ledger.external_known);
  out->set_reserve_bytes(ledger.reserve.count());
  out->set_overcommitted_bytes(ledger.Overcommitted().count());
  for (const core::ComponentPicture& one : device.components) Write(one, out->add_components());
}

void Write(const core::SessionPicture& session, v1::SessionPicture* out) {
  out->set_session_id(session.id.value());
  out->set_worker(session.worker);
  out->set_pid(session.pid);
  out->set_state(static_cast<v1::SessionState>(session.phase));
  out->set_pool_bytes(session.pool.count());
  out->set_recorded_bytes(session.recorded.count());
  out->set_unexplained_bytes(session.unexplained.count());
  out->set_under_released(session.under_released);
  out->set_overdue_targets(session.overdue_targets);
  out->set_pinned_host_bytes(session.pinned_host.count());
  out->set_pin_allowance_bytes(session.pin_allowance.count());
  out->set_pin_wish_bytes(session.pin_wish.count());
}

void Write(const std::string& domain, const core::HostPool& pool, v1::HostMemoryPicture* out) {
  out->set_domain(domain);
  out->set_limit_bytes(pool.limit.count());
  out->set_budget_known(pool.budget.has_value());
  out->set_budget_bytes(pool.budget.value_or(core::Bytes()).count());
  out->set_pinned_bytes(pool.pinned.count());
  out->set_allowed_bytes(pool.allowed.count());
  out->set_wished_bytes(pool.wished.count());
  out->set_charged_bytes(pool.charged.count());
}

void Write(const core::WaitingPicture& waiting, v1::WaitingUse* out) {
  out->set_component_id(waiting.component);
  out->set_request_id(waiting.request_id);
  FromDuration(waiting.waited, out->mutable_waited());
  out->set_needed_bytes(waiting.needed.count());
  out->set_priority(waiting.priority);
  out->set_blocked_by(waiting.blocked_by);
  out->set_is_long(waiting.is_long);
}

}  // namespace

void Write(const core::Target& target, v1::Target* out) {
  out->set_component(target.component);
  out->set_layers(target.layers);
  out->set_generation(target.generation.value());
  out->set_pace_bytes_per_second(static_cast<int64_t>(target.pace));
  out->set_reason(ToWire(target.reason));
  out->set_decision_id(target.decision.value());
}

void Write(const core::Welcome& welcome, v1::Welcome* out) {
  out->set_session_id(welcome.session.value());
  out->set_broker_epoch(welcome.epoch.value());
  out->set_version(welcome.version);
  FromDuration(welcome.release_deadline, out->mutable_release_deadline());
  FromDuration(welcome.orphan_after, out->mutable_orphan_after());
  for (const auto& [request_id, use] : welcome.resumed_uses) {
    v1::ResumedUse* resumed = out->add_resumed_uses();
    resumed->set_request_id(request_id);
    resumed->set_use_id(use.value());
  }
  for (const core::RefusedComponent& one : welcome.refused) {
    Write(one, out->add_refused_components());
  }
}

void Write(const core::BeginAnswer& answer, v1::BeginUseResponse* out) {
  out->set_use_id(answer.use.value());
  out->set_resident_layers(answer.resident);
  out->set_generation(answer.generation.value());
  out->set_decision_id(answer.decision.value());
  out->set_reason(ToWire(answer.reason));
  out->set_window_bytes(answer.window.count());
  out->set_activation_bytes(answer.activation.count());
  FromDuration(answer.waited, out->mutable_waited());
}

void Write(const core::EndAnswer& answer, v1::EndUseResponse* out) {
  if (!answer.target.component.empty()) Write(answer.target, out->mutable_target());
  out->set_trim_pool(answer.trim_pool);
  if (answer.expected_next_use.has_value()) {
    FromDuration(*answer.expected_next_use, out->mutable_expected_next_use());
  }
}

void Write(const core::ReportAnswer& answer, v1::ReportResidencyResponse* out) {
  for (const core::Target& target : answer.targets) Write(target, out->add_targets());
}

void Write(const core::UpdateAnswer& answer, v1::UpdateComponentsResponse* out) {
  for (const core::Target& target : answer.targets) Write(target, out->add_targets());
  for (const core::RefusedComponent& one : answer.refused) {
    Write(one, out->add_refused_components());
  }
}

void Write(const core::DeclareRunAnswer& answer, v1::DeclareRunResponse* out) {
  out->set_run_id(answer.run.value());
}

void Write(const core::Picture& picture, v1::Picture* out) {
  out->set_broker_epoch(picture.epoch.value());
  Write(picture.time, out->mutable_time());
  for (const core::DevicePicture& one : picture.devices) Write(one, out->add_devices());
  for (const core::SessionPicture& one : picture.sessions) Write(one, out->add_sessions());
  for (const core::WaitingPicture& one : picture.waiting) Write(one, out->add_waiting());
  out->set_draining(picture.draining);
  if (picture.recovery_left > absl::ZeroDuration()) {
    FromDuration(picture.recovery_left, out->mutable_recovery_left());
  }
  for (const auto& [domain, pool] : picture.host_memory)
    Write(domain, pool, out->add_host_memory());
}

void Write(const core::Decision& decision, v1::Decision* out) {
  out->set_id(decision.id.value());
  Write(decision.time, out->mutable_time());
  out->set_kind(static_cast<v1::DecisionKind>(decision.kind));
  out->set_reason(ToWire(decision.reason));
  out->set_component_id(decision.component);
  out->set_held_layers(decision.held);
  out->set_layers(decision.layers);
  out->set_component_layers(decision.component_layers);
  out->set_text(decision.text);
}

void Write(const core::RunPicture& run, v1::RunPicture* out) {
  out->set_run_id(run.id.value());
  out->set_pipeline(run.pipeline);
  out->set_driver(run.driver);
  out->set_next_stage(run.next_stage);
  out->set_stages(run.stages);
  out->set_started(run.started);
}

}  // namespace vrambroker::server
