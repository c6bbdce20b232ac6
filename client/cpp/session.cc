#include "client/cpp/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/session_proto.h"

namespace vrambroker::client {
namespace {

// Ids that are kept of a use that goes on across sessions: the first, and the newest.
constexpr size_t kFormerIds = 64;

}  // namespace

Session::Session(SessionOptions options)
    : options_(std::move(options)), backoff_(options_.retry_interval) {
  for (const v1::Component& spec : options_.components) {
    ComponentState c;
    c.spec = spec;
    c.layers = LayerCount(spec);
    components_.emplace(spec.name(), std::move(c));
  }
}

Effects Session::Step(const Event& event, absl::Time now) {
  now_ = std::max(now_, now);
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  DoWhatIsDue();
  NoteConverged();
  UpdateIfDue();
  ReportIfDue();
  AskToWake();
  return std::move(effects_);
}

// ---- Session ----

void Session::On(const Connect&) {
  if (closed_ || stream_open_) return;
  connect_at_ = absl::InfiniteFuture();
  stream_open_ = true;
  Emit(OpenStream{ComposeAttach()});
}

v1::AttachRequest Session::ComposeAttach() {
  ++attach_number_;
  session_id_ = 0;
  untold_.clear();
  withdrawals_.clear();  // uses that this Attach does not list have ended
  report_in_flight_ = false;
  report_due_ = false;
  pin_allowance_.reset();
  pin_freely_ = pins_given_up_ = false;
  update_.reset();
  v1::AttachRequest request;
  request.set_worker(options_.worker);
  request.set_pod(options_.pod);
  request.set_namespace_(options_.pod_namespace);
  request.set_container(options_.container);
  request.set_pid(options_.pid);
  request.set_start_time_ticks(options_.start_time_ticks);
  request.set_attach_number(attach_number_);
  request.set_min_version(1);
  request.set_max_version(1);
  for (auto& [ticket, use] : uses_) {
    use.listed = use.phase == Phase::kRunning;
    switch (use.phase) {
      case Phase::kWaiting:
        use.sent = false;
        break;
      case Phase::kRunning: {
        v1::RunningUse* running = request.add_running_uses();
        running->set_request_id(use.request.request_id());
        running->set_component(use.request.component());
        running->set_granted_layers(use.granted);
        running->set_window_bytes(use.window_bytes);
        running->set_activation_bytes(use.activation_bytes);
        running->set_generation(use.generation);
        NoteFormerId(&use);
        running->mutable_former_use_ids()->Assign(use.former_use_ids.begin(),
                                                  use.former_use_ids.end());
        break;
      }
      case Phase::kEnding:
        break;  // not listed: ended. Its caller hears of it with the welcome's target.
    }
  }
  for (auto& [name, c] : components_) {
    *request.add_components() = c.spec;
    c.target.reset();
    c.dropped_after = 0;  // the welcome's target follows from what is told here
    c.host_changed = false;
  }
  if (!components_.empty()) *request.mutable_host_memory() = options_.host_memory;
  if (!components_.empty()) *request.mutable_snapshot() = TakeSnapshot();
  return request;
}

void Session::NoteFormerId(UseState* use) {
  const uint64_t id = std::exchange(use->use_id, 0);
  std::vector<uint64_t>& former = use->former_use_ids;
  if (id == 0 || std::find(former.begin(), former.end(), id) != former.end()) return;
  if (former.size() >= kFormerIds) former.erase(former.begin() + 1);
  former.push_back(id);
}

void Session::On(const DirectiveReceived& e) {
  if (e.attach_number != attach_number_ || !stream_open_) return;
  if (e.directive.has_welcome()) TakeWelcome(e.directive.welcome());
  if (session_id_ == 0) return;  // nothing counts before the welcome
  for (const v1::Target& target : e.directive.targets()) TakeTarget(target);
  if (e.directive.trim_pool()) Emit(TrimPool{});
  if (e.directive.has_pin_allowance_bytes()) TakePinAllowance(e.directive.pin_allowance_bytes());
  if (!e.directive.has_welcome()) return;
  std::vector<Ticket> waiting, ending;
  for (const auto& [ticket, use] : uses_) {
    if (use.phase == Phase::kWaiting) waiting.push_back(ticket);
    if (use.phase == Phase::kEnding) ending.push_back(ticket);
  }
  for (Ticket ticket : ending) {
    if (uses_.at(ticket).listed) {
      SendEnding(ticket);  // it ended after the Attach that listed it was composed
      continue;
    }
    const ComponentState& c = components_.at(uses_.at(ticket).request.component());
    Close(ticket, c.target.has_value() ? std::min(c.held, c.target->layers) : 0);
  }
  for (const UseState& use : std::exchange(untold_, {})) Withdraw(use);
  for (Ticket ticket : waiting) SendWaiting(ticket);
}

void Session::TakeWelcome(const v1::Welcome& welcome) {
  session_id_ = welcome.session_id();
  epoch_ = welcome.broker_epoch();
  if (welcome.has_orphan_after()) orphan_after_ = FromProto(welcome.orphan_after());
  lost_at_ = absl::InfiniteFuture();
  orphaned_ = false;
  backoff_ = options_.retry_interval;
  for (const v1::ResumedUse& resumed : welcome.resumed_uses()) {
    for (auto& [ticket, use] : uses_) {
      if (use.request.request_id() == resumed.request_id()) use.use_id = resumed.use_id();
    }
  }
  refused_.clear();
  for (const v1::RefusedComponent& r : welcome.refused_components()) {
    refused_[r.component()] = r.message();
  }
  Emit(SessionChanged{true, absl::OkStatus()});
}

void Session::TakeTarget(const v1::Target& target) {
  const auto it = components_.find(target.component());
  if (it == components_.end()) return;
  ComponentState& c = it->second;
  if (c.target.has_value() && c.target->generation >= target.generation()) return;
  Target t;
  t.generation = target.generation();
  t.layers = std::clamp(target.layers(), 0, c.layers);
  t.pace = static_cast<double>(target.pace_bytes_per_second());
  if (target.has_start_after()) t.not_before = now_ + FromProto(target.start_after());
  t.put_off = t.not_before > now_;
  c.target = t;
  refused_.erase(target.component());  // a target admits it
  if (!c.fixed_placed && !c.placing) {
    c.placing = true;
    Emit(PlaceFixed{target.component()});
  }
  Emit(WorkChanged{target.component()});
}

void Session::On(const StreamEnded& e) {
  if (e.attach_number != attach_number_ || !stream_open_) return;
  stream_open_ = false;
  session_id_ = 0;
  report_in_flight_ = false;
  for (auto& [name, c] : components_) c.target.reset();
  for (auto& [ticket, use] : uses_) {
    if (use.phase == Phase::kWaiting) use.sent = false;
  }
  if (lost_at_ == absl::InfiniteFuture()) lost_at_ = now_;
  if (IsFinalRefusal(e.status)) {
    closed_ = true;
    std::vector<Ticket> waiting;
    for (const auto& [ticket, use] : uses_) {
      if (use.phase == Phase::kWaiting) waiting.push_back(ticket);
    }
    for (Ticket ticket : waiting) {
      uses_.erase(ticket);
      Emit(UseRefused{ticket, e.status});
    }
    Emit(SessionChanged{false, e.status, /*for_good=*/true});
    return;
  }
  Emit(SessionChanged{false, e.status});
  connect_at_ = now_ + backoff_;
  Emit(ConnectAt{connect_at_});
  backoff_ = std::min(backoff_ * 2, options_.retry_interval * 10);
}

// ---- Residency ----

const Session::UseState* Session::ActiveUse(const std::string& component) const {
  for (const auto& [ticket, use] : uses_) {
    if (use.phase != Phase::kWaiting && use.request.component() == component) return &use;
  }
  return nullptr;
}

void Session::On(const HeldChanged& e) {
  const auto it = components_.find(e.component);
  if (it == components_.end()) return;
  ComponentState& c = it->second;
  const int held = std::clamp(e.held, 0, c.layers);
  if (held < c.held && c.target.has_value() && held < c.target->layers &&
      c.completed >= c.target->generation) {
    c.dropped_after = std::max<uint64_t>(sequence_, 1);
  }
  c.held = held;
  c.copying = e.copying;
  if (e.pool_bytes.has_value()) pool_bytes_ = *e.pool_bytes;
  if (!e.copying) report_due_ = true;
}

void Session::On(const FixedPlaced& e) {
  const auto it = components_.find(e.component);
  if (it == components_.end()) return;
  it->second.fixed_placed = true;
  it->second.placing = false;
  report_due_ = true;
}

void Session::On(const PoolChanged& e) {
  report_due_ |= e.pool_bytes != pool_bytes_;
  pool_bytes_ = e.pool_bytes;
  pinned_host_bytes_ = e.pinned_host_bytes;
}

// A generation is completed when exactly its layers are held and no copy is in flight.
void Session::NoteConverged() {
  for (auto& [name, c] : components_) {
    if (!c.target.has_value() || c.copying || c.held != c.target->layers) continue;
    const UseState* use = ActiveUse(name);
    if (use != nullptr &&
        (use->phase == Phase::kRunning || use->generation != c.target->generation)) {
      continue;  // while it runs, what it holds is not told
    }
    if (c.completed >= c.target->generation) continue;
    c.completed = c.target->generation;
    report_due_ = true;
  }
}

v1::Snapshot Session::TakeSnapshot() {
  v1::Snapshot snapshot;
  snapshot.set_sequence(++sequence_);
  snapshot.set_pool_bytes(pool_bytes_);
  snapshot.set_pinned_host_bytes(PinnedBytes());
  for (const auto& [name, c] : components_) {
    v1::ComponentResidency* r = snapshot.add_components();
    r->set_component(name);
    r->set_held_layers(c.held);
    r->set_completed_generation(c.completed);
    r->set_fixed_placed(c.fixed_placed);
  }
  report_due_ = false;
  return snapshot;
}

void Session::ReportIfDue() {
  // A drop is told by a report of its own, whatever else has carried it: its answer is what counts.
  for (const auto& [name, c] : components_) {
    report_due_ |= c.dropped_after != 0 && c.dropped_after >= reported_sequence_;
  }
  if (!report_due_ || report_in_flight_ || session_id_ == 0 || components_.empty()) return;
  report_in_flight_ = true;
  report_again_ = absl::InfiniteFuture();
  v1::ReportResidencyRequest request;
  request.set_session_id(session_id_);
  *request.mutable_snapshot() = TakeSnapshot();
  reported_sequence_ = sequence_;
  Emit(SendReport{attach_number_, std::move(request)});
}

void Session::On(const ReportAnswered& e) {
  if (e.attach_number != attach_number_ || session_id_ == 0) return;
  if (!e.status.ok()) {
    report_due_ = true;  // what it said may not have arrived
    report_again_ = now_ + kSendAgain;
    // Whatever carries the snapshot meanwhile: a drop needs a report that is answered.
    for (auto& [name, c] : components_) {
      if (c.dropped_after != 0) c.dropped_after = std::max(c.dropped_after, reported_sequence_);
    }
    return;
  }
  report_in_flight_ = false;
  for (const v1::Target& target : e.response.targets()) TakeTarget(target);
  for (auto& [name, c] : components_) {
    if (c.dropped_after == 0 || c.dropped_after >= reported_sequence_) continue;
    c.dropped_after = 0;
    Emit(WorkChanged{name});
  }
}

// ---- Time ----

// Whatever step comes first does it, so that no time that is over hides a later one.
void Session::DoWhatIsDue() {
  for (auto& [ticket, use] : uses_) {
    if (use.send_again > now_ || session_id_ == 0) continue;
    use.send_again = absl::InfiniteFuture();
    if (use.phase == Phase::kWaiting) SendWaiting(ticket);
    if (use.phase == Phase::kEnding) Emit(SendEnd{attach_number_, use.end});
  }
  for (auto& [id, withdrawal] : withdrawals_) {
    if (withdrawal.send_again > now_ || session_id_ == 0) continue;
    withdrawal.send_again = absl::InfiniteFuture();
    Emit(SendEnd{attach_number_, withdrawal.request});
  }
  if (update_again_ <= now_ && session_id_ != 0 && update_.has_value()) {
    update_again_ = absl::InfiniteFuture();
    Emit(SendUpdate{attach_number_, *update_});
  }
  if (report_again_ <= now_) {
    report_again_ = absl::InfiniteFuture();
    report_in_flight_ = false;
  }
  if (!orphaned_ && session_id_ == 0 && lost_at_ < absl::InfiniteFuture() &&
      now_ - lost_at_ >= orphan_after_) {
    orphaned_ = true;
    for (const auto& [name, c] : components_) Emit(WorkChanged{name});
  }
  for (auto& [name, c] : components_) {
    if (!c.target.has_value() || !c.target->put_off || c.target->not_before > now_) continue;
    c.target->put_off = false;
    Emit(WorkChanged{name});
  }
}

void Session::AskToWake() {
  absl::Time at = report_again_;
  if (session_id_ != 0) {
    for (const auto& [ticket, use] : uses_) at = std::min(at, use.send_again);
    for (const auto& [id, w] : withdrawals_) at = std::min(at, w.send_again);
    at = std::min(at, update_again_);
  }
  if (session_id_ == 0 && !orphaned_ && lost_at_ < absl::InfiniteFuture()) {
    at = std::min(at, lost_at_ + orphan_after_);
  }
  for (const auto& [name, c] : components_) {
    if (c.target.has_value() && c.target->not_before > now_) {
      at = std::min(at, c.target->not_before);
    }
  }
  if (at == wake_at_) return;
  wake_at_ = at;
  if (at < absl::InfiniteFuture()) Emit(WakeAt{at});
}

bool Session::fixed_placed(const std::string& component) const {
  const auto it = components_.find(component);
  return it != components_.end() && it->second.fixed_placed;
}

int Session::layers(const std::string& component) const {
  const auto it = components_.find(component);
  return it == components_.end() ? 0 : it->second.layers;
}

int Session::held(const std::string& component) const {
  const auto it = components_.find(component);
  return it == components_.end() ? 0 : it->second.held;
}

}  // namespace vrambroker::client
