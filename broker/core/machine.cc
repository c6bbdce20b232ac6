#include "broker/core/machine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

Machine::Machine(const Config& config, std::vector<DeviceSpec> devices, std::vector<Owner> recorded)
    : impl_(std::make_unique<Impl>(config, std::move(devices), std::move(recorded))) {}
Machine::~Machine() = default;

Effects Machine::Step(const Event& event, absl::Time now) { return impl_->Step(event, now); }
Picture Machine::GetPicture(absl::Time now) const { return impl_->GetPicture(now); }
const std::deque<Decision>& Machine::decisions() const { return impl_->state.decisions; }
absl::StatusOr<Explanation> Machine::Explain(DecisionId id) const { return impl_->Explain(id); }
void Machine::CheckInvariants() const { impl_->CheckInvariants(); }

Machine::Impl::Impl(const Config& c, std::vector<DeviceSpec> devices, std::vector<Owner> recorded)
    : config(c) {
  for (DeviceSpec& spec : devices) {
    VRAM_CHECK(spec.link_rate > 0);
    VRAM_CHECK(spec.reserve <= spec.capacity);
    Device device;
    device.spec = std::move(spec);
    const std::string uuid = device.spec.uuid;
    VRAM_CHECK(state.devices.emplace(uuid, std::move(device)).second);
  }
  // What comes late of a session with an earlier broker is then of no session here.
  last_session = std::max<uint64_t>(config.epoch.value(), 1) - 1;
  Adopt(std::move(recorded));
}

Effects Machine::Impl::Step(const Event& event, absl::Time time) {
  now = std::max(now, time);
  effects.clear();
  directives.clear();
  records.clear();
  planned.reset();
  concerned = DeviceConcerned(event);
  std::visit([this](const auto& e) { On(e); }, event);
  TrackFloors();
  Settle();
  TrackFloors();
  FlushDirectives();
  AskToWake();
  RecordCharges();
  return std::move(effects);
}

// A use of a run moves the run on as it begins, and with it what is to come on other devices.
std::optional<std::string> Machine::Impl::DeviceConcerned(const Event& event) const {
  const auto device_of = [this](const CallHeader& header) {
    const auto it = state.sessions.find(header.session);
    return it == state.sessions.end() ? std::nullopt : std::optional(it->second.device);
  };
  if (std::holds_alternative<TickEvent>(event)) return "";
  if (const auto* report = std::get_if<ReportEvent>(&event)) return device_of(report->header);
  if (const auto* reading = std::get_if<ReadingEvent>(&event)) return reading->device_uuid;
  if (const auto* began = std::get_if<ReadingBeganEvent>(&event)) return began->device_uuid;
  if (const auto* begin = std::get_if<BeginUseEvent>(&event)) {
    return begin->use.run ? std::nullopt : device_of(begin->header);
  }
  if (const auto* end = std::get_if<EndUseEvent>(&event)) return device_of(end->header);
  return std::nullopt;
}

// What happens on a device is its own, and what comes by time comes with a tick: a step that is
// about one device leaves the others alone, so that it takes as long beside many as beside none.
bool Machine::Impl::IsElsewhere(const std::string& uuid) const {
  return concerned.has_value() && !concerned->empty() && *concerned != uuid;
}

void Machine::Impl::Settle() {
  const bool recovering = state.recovering;
  NoteRecovery();
  EndRuns();
  NoteExpectations();
  if (future_changed || pipelines_changed || recovering != state.recovering) concerned.reset();
  if (pipelines_changed) MarkPipelines();
  if (future_changed) MarkDeclared();
  std::vector<Device*> elsewhere;
  for (auto& [uuid, device] : state.devices) {
    if (IsElsewhere(uuid)) {
      elsewhere.push_back(&device);
    } else {
      SettleDevice(&device);
    }
  }
  // A shard group that has begun takes room on all its devices.
  for (Device* device : elsewhere) {
    if (!IsElsewhere(device->spec.uuid)) SettleDevice(device);
  }
  LevelPeers();
  AllowPins();
  future_changed = pipelines_changed = false;
}

void Machine::Impl::SettleDevice(Device* device) {
  const uint64_t decided = last_decision;
  DropProvenGone(device);
  RelieveOvercommitment(device);
  if (future_changed) ReleaseWithoutFuture(device);
  if (!state.recovering) AdmitRefused(device);
  AdmitWaiting(device);
  // With a tick nothing has happened; a plan for each device would make it as long as all of them.
  const bool touched = !concerned.has_value() || !concerned->empty() || last_decision != decided;
  if (!state.recovering && (touched || now >= device->load_at)) LoadAhead(device);
  NameLongWaits(*device);
  Remind(device);
  WantReadings(device);
}

void Machine::Impl::FlushDirectives() {
  for (auto& [connection, directive] : directives) effects.push_back(std::move(directive));
  directives.clear();
}

// A reading counts only against charges that were not higher when it was taken.
void Machine::Impl::TrackFloors() {
  for (auto& [id, session] : state.sessions) {
    if (session.device.empty() || IsElsewhere(session.device)) continue;
    const Bytes charge = SessionCharge(state, session);
    if (charge < session.last_charge) session.charge_fell = now;
    session.last_charge = charge;
    session.floor = std::min(session.floor, charge);
    session.next_floor = std::min(session.next_floor, charge);
    session.total_floor = std::min(session.total_floor, SessionHeld(state, session));
    session.raised_in_reading |= charge > session.next_floor;
    const Bytes excess = ShownBeyondFloor(state.devices.at(session.device), session);
    if (excess <= session.learned) {
      if (session.residual_since != absl::InfiniteFuture()) {
        effects.push_back(Count{Count::What::kShownFree, session.device, Bytes(),
                                now - session.residual_since, absl::ZeroDuration()});
      }
      session.residual_since = absl::InfiniteFuture();
    } else {
      session.residual_since = std::min(session.residual_since, now);
    }
  }
}

void Machine::Impl::AskToWake() {
  absl::Time at = absl::InfiniteFuture();
  auto consider = [&](absl::Time t) {
    if (t > now) at = std::min(at, t);
  };
  for (const auto& [order, w] : state.waiting) {
    consider(w.arrived + config.max_wait);
    consider(w.named_at);
    if (w.grow_until.has_value()) consider(*w.grow_until);
    if (w.end_until.has_value()) consider(*w.end_until);
  }
  consider(state.runs.next_end());
  if (state.recovering) consider(state.recovery_ends);
  if (pins_changed) consider(state.pins_open_at);
  for (const auto& [id, s] : state.sessions) {
    if (s.phase == SessionPhase::kGone) consider(s.gone_at + config.settling_time);
    if (s.phase == SessionPhase::kLost && s.device.empty()) consider(s.lost_at + config.run_grace);
    consider(s.residual_since + config.settling_time);
    if (PoolComing(s) > Bytes()) consider(s.trim_sent + config.release_deadline);
  }
  for (const auto& [id, c] : state.components) {
    if (c.held > c.target()) consider(c.last_reminder + config.release_deadline);
    if (ComingOf(c) > Bytes()) consider(c.target_sent + config.release_deadline);
  }
  for (const auto& [uuid, device] : state.devices) {
    if (ReadingWanted(device)) consider(device.next_wanted_reading);
    consider(device.load_at);
    if (device.expecting) consider(ExpectsUntil(device));
  }
  if (at == wake_at) return;
  wake_at = at;
  effects.push_back(WakeAt{at});
}

void Machine::Impl::Fail(CallId call, absl::Status status) {
  effects.push_back(Answer{call, std::move(status)});
}

std::string Machine::Impl::ComponentName(const Component& c) const {
  return absl::StrCat(state.sessions.at(c.session).worker, "/", c.spec.name);
}

void Machine::Impl::CountUp(Count::What what, const Component& c, Bytes bytes, absl::Duration time,
                            absl::Duration saved) {
  effects.push_back(Count{what, state.sessions.at(c.session).device, bytes, time, saved});
}

DecisionId Machine::Impl::Log(DecisionKind kind, Reason reason, const Component& c, int layers,
                              Bytes bytes, std::string text) {
  Decision d;
  d.id = DecisionId(++last_decision);
  d.time = now;
  d.kind = kind;
  d.reason = reason;
  d.component = ComponentName(c);
  d.held = c.held;
  d.layers = layers;
  d.component_layers = c.count();
  d.text = std::move(text);
  d.planned = NoteBasis(d.id, c.id);
  d.device = state.sessions.at(c.session).device;
  d.bytes = bytes;
  if (kind == DecisionKind::kRetention) {
    d.given_up = c.spec.layers.Of(c.held) - c.spec.layers.Of(layers);
  }
  state.decisions.push_back(d);
  while (static_cast<int>(state.decisions.size()) > config.max_decisions) {
    state.decisions.pop_front();
  }
  LogDecision logged{std::move(d), nullptr, 0};
  if (logged.decision.planned) {
    logged.knowledge = memory.entries().back().knowledge;
    logged.component = memory.entries().back().component;
  }
  effects.push_back(std::move(logged));
  return DecisionId(last_decision);
}

}  // namespace vrambroker::core
