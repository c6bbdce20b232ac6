#include "broker/sim/broker_decider.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vrambroker::sim {
namespace {

using core::Bytes;

// Reports of each worker that the same moment can bring about; one or two are usual.
constexpr size_t kMostReports = 200;

constexpr char kDevice[] = "simulated";

core::Config ConfigOf(const Workload& workload, bool load_ahead, int horizon) {
  core::Config config;
  if (horizon > 0) config.horizon = horizon;
  config.load_ahead = load_ahead;
  config.max_runs = std::max(config.max_runs, static_cast<int>(workload.runs.size()));
  return config;
}

core::DeviceSpec DeviceOf(const Workload& workload) {
  core::DeviceSpec device;
  device.uuid = kDevice;
  device.capacity = Bytes(workload.device.capacity_bytes);
  device.reserve = Bytes(workload.device.reserve_bytes);
  device.link_rate = workload.device.link_rate;
  return device;
}

}  // namespace

BrokerDecider::BrokerDecider(const Workload& workload, Declared declared, bool load_ahead,
                             int horizon, std::function<int64_t()> clock, TellProgress progress,
                             Card* card)
    : workload_(workload),
      declared_(declared),
      clock_(std::move(clock)),
      progress_(std::move(progress)),
      card_(card),
      machine_(ConfigOf(workload, load_ahead, horizon), {DeviceOf(workload)}),
      workers_(workload.components.size()) {}

absl::Time BrokerDecider::Now() const {
  return std::max(at_least_, absl::UnixEpoch() + absl::Seconds(card_->now()));
}

core::ComponentSpec BrokerDecider::SpecOf(int component) const {
  const Component& c = workload_.components[static_cast<size_t>(component)];
  core::ComponentSpec spec;
  spec.name = c.name;
  spec.layers = card_->layers(component);
  spec.fixed = Bytes(c.fixed_bytes);
  spec.window = Bytes(c.WindowBytes());
  spec.pass_seconds = c.pass_seconds;
  return spec;
}

absl::Status BrokerDecider::Start() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].connection = core::ConnectionId(i + 1);
    core::AttachEvent attach;
    attach.connection = workers_[i].connection;
    attach.worker = workload_.components[i].name;
    attach.process = {static_cast<int32_t>(i + 1), 1};
    attach.attach_number = 1;
    attach.device_uuid = kDevice;
    attach.components = {SpecOf(static_cast<int>(i))};
    attach.snapshot = SnapshotOf(static_cast<int>(i));
    Post(std::move(attach));
  }
  core::AttachEvent driver;
  driver.connection = driver_connection_ = core::ConnectionId(workers_.size() + 1);
  driver.worker = "driver";
  driver.process = {static_cast<int32_t>(workers_.size() + 1), 1};
  driver.attach_number = 1;
  Post(std::move(driver));
  Deliver();
  if (!fault_.ok() || declared_ == Declared::kNone) return fault_;
  for (const Pipeline& pipeline : workload_.pipelines) {
    core::DeclarePipelineEvent declare;
    declare.header = Header(driver_, Call::Kind::kPipeline, 0);
    declare.pipeline = pipeline.name;
    for (const Stage& stage : pipeline.stages) {
      declare.stages.push_back({workload_.components[static_cast<size_t>(stage.component)].name,
                                stage.passes, Bytes(stage.Declared()), stage.shape, false});
    }
    Post(std::move(declare));
  }
  if (declared_ == Declared::kAll) {
    for (size_t run = 0; run < workload_.runs.size(); ++run) {
      DeclareRun(static_cast<int>(run), workload_.runs[run].arrival_seconds);
    }
  }
  Deliver();
  return fault_;
}

void BrokerDecider::DeclareRun(int run, double starts_in) {
  const Run& r = workload_.runs[static_cast<size_t>(run)];
  core::DeclareRunEvent declare;
  declare.header = Header(driver_, Call::Kind::kRun, run);
  declare.pipeline = workload_.pipelines[static_cast<size_t>(r.pipeline)].name;
  declare.starts_in = absl::Seconds(starts_in);
  Post(std::move(declare));
}

void BrokerDecider::RunBegins(int run) {
  if (declared_ != Declared::kCurrent) return;
  DeclareRun(run, 0);
  Deliver();
}

void BrokerDecider::RunEnds(int run) {
  const auto it = runs_.find(run);
  if (it == runs_.end()) return;
  core::FinishRunEvent finish;
  finish.header = Header(driver_, Call::Kind::kFinish, run);
  finish.run = it->second;
  runs_.erase(it);
  Post(std::move(finish));
  Deliver();
}

void BrokerDecider::Ask(const Request& request) {
  asked_[request.id] = request;
  core::BeginUseEvent begin;
  begin.header = Header(workers_[static_cast<size_t>(request.component)].session,
                        Call::Kind::kBegin, request.id);
  begin.use.component = workload_.components[static_cast<size_t>(request.component)].name;
  if (const auto run = runs_.find(request.run); run != runs_.end()) {
    begin.use.run = run->second;
    begin.use.stage = request.stage;
  }
  begin.use.passes = request.passes;
  begin.use.activation = Bytes(request.declared);
  begin.use.shape = request.shape;
  Worker& worker = workers_[static_cast<size_t>(request.component)];
  ++worker.waiting;
  Post(std::move(begin));
  Deliver();
  if (worker.waiting > 0 && card_->place(request.component).loading) {
    card_->FinishLoad(request.component);
  }
}

void BrokerDecider::Ended(const Request& request, const Outcome& outcome) {
  Worker& worker = workers_[static_cast<size_t>(request.component)];
  core::EndUseEvent end;
  end.header = Header(worker.session, Call::Kind::kEnd, request.component);
  end.use = std::exchange(worker.use, core::UseId());
  end.snapshot = SnapshotOf(request.component);
  end.measured.peak_activation = Bytes(request.activation);
  end.measured.bytes_loaded = Bytes(static_cast<int64_t>(outcome.bytes_loaded));
  end.measured.stall_seconds = outcome.stall_seconds;
  end.measured.seconds = outcome.seconds;
  end.measured.compute_seconds = outcome.compute_seconds;
  end.measured.copy_seconds = outcome.bytes_loaded / workload_.device.link_rate;
  end.measured.passes = request.passes;
  asked_.erase(request.id);
  Post(std::move(end));
  Deliver();
}

void BrokerDecider::Loaded(int component) {
  Converge(component);
  Deliver();
}

double BrokerDecider::NextWake() const {
  if (wake_ == absl::InfiniteFuture()) return std::numeric_limits<double>::infinity();
  return absl::ToDoubleSeconds(wake_ - absl::UnixEpoch());
}

void BrokerDecider::Wake() {
  at_least_ = std::max(at_least_, std::exchange(wake_, absl::InfiniteFuture()));
  Post(core::TickEvent{});
  Deliver();
}

std::vector<Verdict> BrokerDecider::Take() { return std::exchange(verdicts_, {}); }

void BrokerDecider::CheckAll() const { machine_.CheckInvariants(); }

void BrokerDecider::Post(core::Event event) { events_.push_back(std::move(event)); }

void BrokerDecider::Deliver() {
  size_t reports = 0;
  while (!events_.empty() && fault_.ok()) {
    const core::Event event = std::move(events_.front());
    events_.pop_front();
    if (std::holds_alternative<core::ReportEvent>(event) &&
        ++reports > kMostReports * workers_.size()) {
      fault_ = absl::InternalError(
          absl::StrFormat("at %.6f s the broker's targets go round in circles: %s", card_->now(),
                          machine_.decisions().empty() ? "" : machine_.decisions().back().text));
    }
    for (const core::Effect& effect : Timed(event)) Carry(effect);
    if (progress_ && declared_ == Declared::kAll &&
        std::holds_alternative<core::DeclareRunEvent>(event)) {
      progress_("runs declared", static_cast<int64_t>(runs_.size()),
                static_cast<int64_t>(workload_.runs.size()));
    }
  }
}

core::Effects BrokerDecider::Timed(const core::Event& event) {
  const bool counts = std::holds_alternative<core::BeginUseEvent>(event) ||
                      std::holds_alternative<core::EndUseEvent>(event);
  const int64_t began = counts && clock_ ? clock_() : 0;
  core::Effects effects = machine_.Step(event, Now());
  const int64_t took = counts && clock_ ? clock_() - began : 0;
  if (observe_) observe_(event, effects, Now());
  if (!counts) return effects;
  const bool decided = std::any_of(effects.begin(), effects.end(), [](const core::Effect& effect) {
    return std::holds_alternative<core::LogDecision>(effect);
  });
  if (!decided) return effects;
  ++decisions_;
  if (clock_) decision_seconds_.push_back(static_cast<double>(took) * 1e-9);
  return effects;
}

void BrokerDecider::Carry(const core::Effect& effect) {
  if (const auto* directive = std::get_if<core::SendDirective>(&effect)) {
    Take(*directive);
  } else if (const auto* answer = std::get_if<core::Answer>(&effect)) {
    Take(*answer);
  } else if (const auto* wake = std::get_if<core::WakeAt>(&effect)) {
    wake_ = wake->time;
  } else if (const auto* close = std::get_if<core::CloseStream>(&effect)) {
    fault_.Update(
        absl::InternalError(absl::StrCat("a session was closed: ", close->status.ToString())));
  }
}

void BrokerDecider::Take(const core::SendDirective& directive) {
  if (directive.connection == driver_connection_) {
    if (directive.welcome.has_value()) driver_ = directive.welcome->session;
    return;
  }
  const int component = static_cast<int>(directive.connection.value()) - 1;
  if (directive.welcome.has_value()) {
    workers_[static_cast<size_t>(component)].session = directive.welcome->session;
  }
  for (const core::Target& target : directive.targets) TakeTarget(component, target);
}

void BrokerDecider::Take(const core::Answer& answer) {
  const auto node = calls_.extract(answer.call);
  if (node.empty()) {
    fault_.Update(absl::InternalError(
        absl::StrCat("call ", answer.call.value(), " was answered twice, or never made")));
    return;
  }
  const Call call = node.mapped();
  if (const auto* status = std::get_if<absl::Status>(&answer.result)) {
    Refused(call, *status);
  } else if (const auto* begin = std::get_if<core::BeginAnswer>(&answer.result)) {
    Granted(call.about, *begin);
  } else if (const auto* end = std::get_if<core::EndAnswer>(&answer.result)) {
    TakeTarget(call.about, end->target);
  } else if (const auto* report = std::get_if<core::ReportAnswer>(&answer.result)) {
    for (const core::Target& target : report->targets) TakeTarget(call.about, target);
  } else if (const auto* run = std::get_if<core::DeclareRunAnswer>(&answer.result)) {
    runs_[call.about] = run->run;
  }
}

void BrokerDecider::Refused(const Call& call, const absl::Status& status) {
  if (call.kind != Call::Kind::kBegin) {
    fault_.Update(absl::InternalError(absl::StrCat("a call failed: ", status.ToString())));
    return;
  }
  const auto asked = asked_.extract(call.about);
  --workers_[static_cast<size_t>(asked.mapped().component)].waiting;
  verdicts_.push_back({call.about, false, std::string(status.message())});
}

void BrokerDecider::Granted(int request, const core::BeginAnswer& answer) {
  const Request& asked = asked_.at(request);
  Worker& worker = workers_[static_cast<size_t>(asked.component)];
  --worker.waiting;
  worker.use = answer.use;
  worker.target.generation = worker.completed = answer.generation;
  worker.target.layers = answer.resident;
  card_->Begin(asked.component, request, answer.resident, asked.passes, asked.activation);
  verdicts_.push_back({request, true, ""});
}

void BrokerDecider::TakeTarget(int component, const core::Target& target) {
  Worker& worker = workers_[static_cast<size_t>(component)];
  worker.placed = true;  // what has a target is admitted
  card_->PlaceFixed(component);
  if (target.generation <= worker.target.generation) return;
  worker.target = target;
  Converge(component);
}

// A component without a use. One that waits for its use keeps to its target as well, and what it
// copies for that is nothing that could wait: it takes its share of the link.
void BrokerDecider::Converge(int component) {
  Worker& worker = workers_[static_cast<size_t>(component)];
  const Place& p = card_->place(component);
  if (p.use.has_value()) return;
  const int target = worker.target.layers;
  if (p.loading) {
    if (target < p.held || worker.waiting > 0) {
      card_->FinishLoad(component);
    } else {
      card_->Load(component, worker.target.pace);
    }
    return;
  }
  if (p.held < target) {
    card_->Load(component, worker.target.pace);
    if (worker.waiting > 0) card_->FinishLoad(component);
  } else {
    card_->Release(component, target);
    worker.completed = worker.target.generation;
  }
  Report(component);
}

void BrokerDecider::Report(int component) {
  const Worker& worker = workers_[static_cast<size_t>(component)];
  core::ReportEvent report;
  report.header = Header(worker.session, Call::Kind::kReport, component);
  report.snapshot = SnapshotOf(component);
  Post(std::move(report));
}

core::Snapshot BrokerDecider::SnapshotOf(int component) {
  Worker& worker = workers_[static_cast<size_t>(component)];
  core::Snapshot snapshot;
  snapshot.sequence = ++worker.sequence;
  core::Residency residency;
  residency.component = workload_.components[static_cast<size_t>(component)].name;
  residency.held = card_->place(component).held;
  residency.completed = worker.completed;
  residency.fixed_placed = worker.placed;
  snapshot.components.push_back(std::move(residency));
  return snapshot;
}

core::CallHeader BrokerDecider::Header(core::SessionId session, Call::Kind kind, int about) {
  const core::CallId call(++last_call_);
  calls_[call] = {kind, about};
  return {call, session, absl::StrCat("call-", last_call_), last_call_};
}

}  // namespace vrambroker::sim
