#include <algorithm>
#include <tuple>

#include "broker/core/machine_impl.h"

namespace vrambroker::core {

Picture Machine::Impl::GetPicture(absl::Time at) const {
  Picture picture;
  picture.epoch = config.epoch;
  picture.time = at;
  picture.draining = state.draining;
  if (state.recovering) {
    picture.recovery_left = std::min(config.recovery_window, state.recovery_ends - at);
  }
  std::map<SessionId, std::pair<int, Bytes>> overdue;
  for (const auto& [uuid, device] : state.devices) {
    DevicePicture d;
    d.uuid = uuid;
    d.ledger = DeriveLedger(state, device);
    for (const auto& [id, c] : state.components) {
      if (state.sessions.at(c.session).device != uuid) continue;
      ComponentPicture p;
      p.id = ComponentName(c);
      p.layers = c.count();
      p.held = c.held;
      p.target = c.target();
      p.generation = c.generation;
      p.completed = c.completed;
      p.layer_bytes = c.spec.layers.Of(c.count());
      p.held_bytes = c.spec.layers.Of(c.held);
      p.target_bytes = c.spec.layers.Of(c.target());
      p.charge = ComponentCharge(c);
      p.use = c.use.has_value() ? c.use->id : UseId();
      p.granted = c.use.has_value() ? c.use->granted : 0;
      p.lifetime = c.spec.lifetime;
      p.refused = !c.admitted;
      p.pass_seconds = c.pass_seconds();
      p.link_rate = LinkRate(c, device);
      p.stall_per_byte = c.estimates.StallPerByte();
      p.activation_peak = c.estimates.ActivationPeak();
      p.measured_uses = c.estimates.uses();
      p.regret = c.regret_bytes;
      p.session = c.session;
      if (!c.use.has_value() && c.held > c.target()) {
        p.release_asked = at - c.revoked_at.value_or(c.target_sent);
        p.release_overdue = at - c.target_sent > config.release_deadline;
      }
      if (p.release_overdue) {
        auto& [targets, bytes] = overdue[c.session];
        ++targets;
        bytes += p.held_bytes - p.target_bytes;
      }
      d.components.push_back(std::move(p));
    }
    picture.devices.push_back(std::move(d));
  }
  for (const auto& [id, s] : state.sessions) {
    SessionPicture p;
    p.id = id;
    p.worker = s.worker;
    p.place = s.place;
    p.pid = s.process.pid;
    p.phase = s.phase;
    p.pool = s.pool;
    p.recorded = s.recorded;
    if (s.phase != SessionPhase::kGone) {
      p.pinned_host = s.pinned_host;
      p.pin_allowance = PinAllowance(s);
      p.pin_wish = PinWish(s);
    }
    std::tie(p.overdue_targets, p.overdue) = overdue[id];
    if (const auto d = state.devices.find(s.device); d != state.devices.end()) {
      p.unexplained = UnexplainedBytes(d->second, s);
      p.under_released = p.unexplained > s.learned + config.unexplained_tolerance &&
                         at - s.residual_since >= config.settling_time;
    }
    picture.sessions.push_back(std::move(p));
  }
  for (const auto& [order, w] : state.waiting) {
    const Component& c = state.components.at(w.component);
    picture.waiting.push_back({ComponentName(c), w.request_id, at - w.arrived,
                               FewestBytes(c, w.spec), w.spec.priority, w.blocked_by,
                               at - w.arrived >= config.long_wait});
  }
  for (const auto& [id, run] : state.runs.all()) {
    picture.runs.push_back(
        {id, run.pipeline, run.driver_name, run.next_stage, run.count(), run.started()});
  }
  picture.host_memory = HostMemoryNow();
  return picture;
}

}  // namespace vrambroker::core
