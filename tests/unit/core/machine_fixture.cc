#include "tests/unit/core/machine_fixture.h"

#include <algorithm>

namespace vrambroker::core {

Effects MachineFixture::Step(const Event& event) {
  Effects effects = machine_->Step(event, now_);
  machine_->CheckInvariants();
  for (const Effect& effect : effects) {
    if (const auto* count = std::get_if<Count>(&effect)) counts_.push_back(*count);
    if (const auto* wake = std::get_if<WakeAt>(&effect)) last_wake_ = wake->time;
    if (const auto* logged = std::get_if<LogDecision>(&effect)) logged_.push_back(logged->decision);
    if (const auto* record = std::get_if<RecordCharge>(&effect)) {
      on_record_[record->owner.worker] = record->owner.charge;
    } else if (const auto* answer = std::get_if<Answer>(&effect)) {
      if (!answers_.insert({answer->call, *answer}).second) answered_twice_.push_back(answer->call);
    } else if (const auto* directive = std::get_if<SendDirective>(&effect)) {
      const uint64_t connection = directive->connection.value();
      for (const Target& t : directive->targets) told_[{connection, t.component}] = t;
      trims_[connection] += directive->trim_pool ? 1 : 0;
      if (directive->pin_allowance.has_value()) {
        pin_allowances_[connection] = *directive->pin_allowance;
      }
      const auto it = by_connection_.find(connection);
      if (it == by_connection_.end() || !directive->welcome.has_value()) continue;
      it->second->welcome = directive->welcome;
      it->second->session = directive->welcome->session.value();
    } else if (const auto* close = std::get_if<CloseStream>(&effect)) {
      const auto it = by_connection_.find(close->connection.value());
      if (it != by_connection_.end()) it->second->closed = close->status;
    }
  }
  EXPECT_TRUE(answered_twice_.empty()) << "a call was answered twice";
  last_effects_ = effects;
  return effects;
}

Snapshot MachineFixture::SnapshotOf(Worker* w) {
  Snapshot s;
  s.sequence = ++w->sequence;
  s.pool = Bytes(w->pool);
  s.pinned_host = Bytes(w->pinned_host);
  for (const ComponentSpec& c : w->components) {
    s.components.push_back(
        {c.name, w->held[c.name], Generation(w->completed[c.name]), w->placed && w->session != 0});
  }
  return s;
}

AttachEvent MachineFixture::AttachOf(Worker* w) {
  AttachEvent e;
  e.connection = ConnectionId(++last_connection_);
  e.worker = w->name;
  e.process = {w->pid, 1};
  e.attach_number = ++w->attach_number;
  if (!w->components.empty()) e.device_uuid = w->device;
  e.components = w->components;
  if (!w->components.empty()) e.snapshot = SnapshotOf(w);
  e.running_uses = w->running;
  e.host = w->host;
  return e;
}

void MachineFixture::Attach(Worker* w) {
  const AttachEvent e = AttachOf(w);
  w->connection = e.connection.value();
  w->welcome.reset();
  by_connection_[w->connection] = w;
  Step(e);
  if (w->welcome.has_value() && !w->components.empty()) Report(w);
}

void MachineFixture::Report(Worker* w) {
  for (const ComponentSpec& c : w->components) {
    const std::optional<Target> told = Told(*w, c.name);
    if (!told.has_value() || Look(absl::StrCat(w->name, "/", c.name)).use) continue;
    if (told->generation.value() < w->completed[c.name]) continue;
    w->held[c.name] = told->layers;
    w->completed[c.name] = told->generation.value();
  }
  Step(ReportEvent{Header(*w, ""), SnapshotOf(w)});
}

CallId MachineFixture::Begin(const Worker& w, const std::string& request,
                             const std::string& component, int64_t activation,
                             const std::function<void(UseSpec*)>& change) {
  BeginUseEvent e;
  e.header = Header(w, request);
  e.use.component = component;
  e.use.activation = Bytes(activation);
  if (change) change(&e.use);
  const CallId call = e.header.call;
  Step(e);
  return call;
}

std::optional<BeginAnswer> MachineFixture::Granted(CallId call, Worker* w,
                                                   const std::string& component) {
  const auto it = answers_.find(call);
  if (it == answers_.end()) return std::nullopt;
  const auto* granted = std::get_if<BeginAnswer>(&it->second.result);
  if (granted == nullptr) return std::nullopt;
  w->held[component] = granted->resident;
  w->completed[component] = granted->generation.value();
  return *granted;
}

CallId MachineFixture::SendEnd(Worker* w, const std::string& request,
                               const Measurements& measured) {
  EndUseEvent e;
  e.header = Header(*w, absl::StrCat("end-", ++last_request_));
  e.begin_request_id = request;
  e.snapshot = SnapshotOf(w);
  e.measured = measured;
  const CallId call = e.header.call;
  Step(e);
  return call;
}

Target MachineFixture::End(Worker* w, const std::string& request, const std::string& component,
                           const Measurements& measured) {
  const CallId call = SendEnd(w, request, measured);
  const auto it = answers_.find(call);
  if (it == answers_.end() || !std::holds_alternative<EndAnswer>(it->second.result)) {
    ADD_FAILURE() << "the end of " << request << " is not answered: " << Refused(call);
    return Target();
  }
  const Target target = std::get<EndAnswer>(it->second.result).target;
  const std::optional<Target> told = Told(*w, component);
  if (!told.has_value() || told->generation < target.generation) {
    told_[{w->connection, component}] = target;
  }
  Report(w);
  return target;
}

void MachineFixture::EndReading(std::vector<std::pair<int32_t, Bytes>> by_process) {
  ReadingEvent e;
  e.device_uuid = "GPU-0";
  e.reading = last_reading_;
  e.by_process_known = true;
  e.by_process = std::move(by_process);
  for (const auto& [pid, bytes] : e.by_process) e.total_used += bytes;
  Step(e);
}

void MachineFixture::Read(std::vector<std::pair<int32_t, Bytes>> by_process) {
  BeginReading();
  EndReading(std::move(by_process));
}

std::vector<RunId> MachineFixture::Declare(const Worker& driver,
                                           const std::vector<StageSpec>& stages, int runs) {
  Step(DeclarePipelineEvent{Header(driver, absl::StrCat("p", ++last_request_)), "p", stages});
  std::vector<RunId> ids;
  for (int i = 0; i < runs; ++i) {
    const CallHeader header = Header(driver, absl::StrCat("r", ++last_request_));
    Step(DeclareRunEvent{header, "p", absl::ZeroDuration()});
    const auto* answer = std::get_if<DeclareRunAnswer>(&answers_.at(header.call).result);
    if (answer != nullptr) ids.push_back(answer->run);
  }
  EXPECT_EQ(static_cast<int>(ids.size()), runs);
  return ids;
}

absl::Status MachineFixture::Refused(CallId call) const {
  const auto it = answers_.find(call);
  if (it == answers_.end()) return absl::OkStatus();
  const auto* status = std::get_if<absl::Status>(&it->second.result);
  return status == nullptr ? absl::OkStatus() : *status;
}

ComponentPicture MachineFixture::Look(const std::string& id) const {
  const Picture picture = machine_->GetPicture(now_);
  for (const DevicePicture& device : picture.devices) {
    for (const ComponentPicture& c : device.components) {
      if (c.id == id) return c;
    }
  }
  ADD_FAILURE() << id << " is not in the picture";
  return ComponentPicture();
}

SessionPicture MachineFixture::LookAt(const std::string& worker) const {
  const Picture picture = machine_->GetPicture(now_);
  for (const SessionPicture& s : picture.sessions) {
    if (s.worker == worker) return s;
  }
  ADD_FAILURE() << worker << " has no session";
  return SessionPicture();
}

int MachineFixture::Decided(DecisionKind kind) const {
  const auto& decisions = machine_->decisions();
  return static_cast<int>(std::count_if(decisions.begin(), decisions.end(),
                                        [&](const Decision& d) { return d.kind == kind; }));
}

}  // namespace vrambroker::core
