#include "tests/model/state.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/model/inspection.h"

namespace vrambroker::model {
namespace {

constexpr int32_t kFirstPid = 101;
constexpr int kDriver = 900;

client::SessionOptions OptionsOf(const Scenario& scenario, int worker) {
  client::SessionOptions options;
  options.worker = absl::StrCat("w", worker);
  options.pid = ProcessOf(worker).pid;
  options.start_time_ticks = ProcessOf(worker).start_time;
  v1::Component component;
  component.set_name("c");
  component.set_device_uuid("GPU-0");
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(scenario.layers);
  run->set_layer_bytes(kUnit);
  component.set_fixed_bytes(scenario.fixed * kUnit);
  component.set_window_bytes(scenario.window * kUnit);
  if (scenario.permanent && worker == scenario.last_worker()) {
    component.set_lifetime(v1::LIFETIME_PERMANENT);
  }
  options.components.push_back(std::move(component));
  return options;
}

// By a driver that stays.
void Declare(const Scenario& scenario, absl::Time now, core::Machine* machine) {
  core::AttachEvent attach;
  attach.connection = core::ConnectionId(kDriver);
  attach.worker = "driver";
  attach.process = {kDriver, 1};
  attach.attach_number = 1;
  core::SessionId session;
  for (const core::Effect& effect : machine->Step(attach, now)) {
    const auto* directive = std::get_if<core::SendDirective>(&effect);
    if (directive != nullptr && directive->welcome) session = directive->welcome->session;
  }
  core::DeclarePipelineEvent pipeline;
  pipeline.header = {core::CallId(kDriver), session, "pipeline", 1};
  pipeline.pipeline = "p";
  for (int i = 0; i <= scenario.last_worker(); ++i) {
    core::StageSpec stage;
    stage.component = absl::StrCat("w", i, "/c");
    stage.passes = 2;
    stage.activation = core::Bytes(scenario.need * kUnit);
    pipeline.stages.push_back(std::move(stage));
  }
  machine->Step(pipeline, now);
  for (int run = 0; run < scenario.declared_runs; ++run) {
    core::DeclareRunEvent declare;
    declare.header = {core::CallId(kDriver), session, absl::StrCat("run-", run), 1};
    declare.pipeline = "p";
    machine->Step(declare, now);
  }
}

void Tell(const Call& call, Digest* d) {
  const int owner = ProcessOf(call.worker).pid;
  d->Put(int64_t{call.worker} * 16 + static_cast<int64_t>(call.kind) * 4 + (call.orphan ? 1 : 0));
  d->Put(Name::kAttach, owner, call.attach_number);
  d->Put(Name::kCall, owner, call.number);
  if (call.begin != nullptr) {
    d->Put(Name::kSession, 0, call.begin->session_id());
    d->Put(Name::kRequest, owner, NumberOf(call.begin->request_id()));
  } else if (call.end != nullptr) {
    d->Put(Name::kSession, 0, call.end->session_id());
    d->Put(Name::kRequest, owner, NumberOf(call.end->request_id()));
    d->Put(Name::kRequest, owner, NumberOf(call.end->begin_request_id()));
    Tell(call.end->snapshot(), owner, d);
  } else {
    d->Put(Name::kSession, 0, call.report->session_id());
    Tell(call.report->snapshot(), owner, d);
  }
}

void Tell(const core::Target& target, int owner, Digest* d) {
  d->Put(Name::kGeneration, owner, target.generation.value());
  d->Put(target.component.empty() ? -1 : target.layers);
}

void Tell(const core::Answer& answer, int owner, Digest* d) {
  d->Put(static_cast<int64_t>(answer.result.index()));
  if (const auto* status = std::get_if<absl::Status>(&answer.result)) {
    d->Put(static_cast<int64_t>(status->code()));
  } else if (const auto* begin = std::get_if<core::BeginAnswer>(&answer.result)) {
    d->Put(Name::kUse, owner, begin->use.value());
    d->Put(Name::kGeneration, owner, begin->generation.value());
    d->Put(begin->resident);
    d->Put((begin->window + begin->activation).count());
  } else if (const auto* end = std::get_if<core::EndAnswer>(&answer.result)) {
    Tell(end->target, owner, d);
    d->Put(end->trim_pool);
  } else if (const auto* report = std::get_if<core::ReportAnswer>(&answer.result)) {
    for (const core::Target& target : report->targets) Tell(target, owner, d);
  }
}

void Tell(const v1::Directive& directive, int owner, Digest* d) {
  d->Put((directive.has_welcome() ? 2 : 0) + (directive.trim_pool() ? 1 : 0));
  d->Put(Name::kSession, 0, directive.welcome().session_id());
  d->Put(Name::kEpoch, 0, directive.welcome().broker_epoch());
  for (const v1::ResumedUse& use : directive.welcome().resumed_uses()) {
    d->Put(Name::kRequest, owner, NumberOf(use.request_id()));
    d->Put(Name::kUse, owner, use.use_id());
  }
  d->Put(directive.welcome().refused_components_size());
  for (const v1::Target& target : directive.targets()) Tell(target, owner, d);
}

void Tell(const Connection& c, Digest* d) {
  const int owner = ProcessOf(c.worker).pid;
  d->Put(c.worker * 64 + (c.arrived ? 16 : 0) + (c.lost ? 8 : 0) + (c.close_told ? 4 : 0) +
         (c.end_due ? 2 : 0));
  d->Put(Name::kConnection, owner, c.id);
  d->Put(Name::kAttach, owner, c.attach->attach_number());
  if (c.end_due) d->Put(static_cast<int64_t>(c.end_status.code()));
  if (!c.arrived) {
    Tell(c.attach->snapshot(), owner, d);
    for (const v1::RunningUse& use : c.attach->running_uses()) {
      d->Put(Name::kRequest, owner, NumberOf(use.request_id()));
      d->Put(Name::kGeneration, owner, use.generation());
      d->Put(use.granted_layers());
      for (uint64_t id : use.former_use_ids()) d->Put(Name::kUse, owner, id);
    }
  }
  d->Put(static_cast<int64_t>(c.down.size()));
  for (const auto& directive : c.down) Tell(*directive, owner, d);
}

void Tell(const Worker& w, int owner, Digest* d) {
  [[maybe_unused]] const auto& [alive, noticed, session, layers, fixed, needs, pool, copying,
                                program, ticket, granted, granted_needs, keep, uses_left,
                                connect_due, place_due, trim_due, last_call] = w;
  for (int n : {layers, fixed, needs, pool, granted, granted_needs, keep, uses_left}) d->Put(n);
  d->Put(static_cast<int64_t>(program) * 64 + (alive ? 32 : 0) + (noticed ? 16 : 0) +
         (copying ? 8 : 0) + (connect_due ? 4 : 0) + (place_due ? 2 : 0) + (trim_due ? 1 : 0));
  if (alive) client::SessionInspection::Tell(*session, owner, d);
}

std::set<std::string> RequestsOf(const State& state) {
  std::set<std::string> ids;
  const auto add = [&ids](const Call& call) {
    ids.insert(call.request_id);
    if (call.end != nullptr) ids.insert(call.end->begin_request_id());
  };
  for (const Call& call : state.calls) add(call);
  for (const auto& [id, pending] : state.pending) add(pending.call);
  for (const Connection& c : state.connections) {
    for (const v1::RunningUse& use : c.attach->running_uses()) ids.insert(use.request_id());
  }
  for (const Worker& w : state.workers) {
    if (!w.alive) continue;
    for (std::string& id : client::SessionInspection::Requests(*w.session)) {
      ids.insert(std::move(id));
    }
  }
  return ids;
}

// In an order that does not tell which was sent first.
template <typename T, typename Of>
std::vector<const Call*> Sorted(const T& all, Of of) {
  std::vector<const Call*> calls;
  calls.reserve(all.size());
  for (const auto& one : all) calls.push_back(&of(one));
  std::sort(calls.begin(), calls.end(), [](const Call* a, const Call* b) {
    return std::tie(a->worker, a->number) < std::tie(b->worker, b->number);
  });
  return calls;
}

}  // namespace

core::Process ProcessOf(int worker) {
  return {kFirstPid + worker, static_cast<uint64_t>(kFirstPid + worker) * 7};
}

State Blank(const Scenario& scenario) {
  State state;
  core::Config config;
  config.max_decisions = 1;
  core::DeviceSpec device;
  device.uuid = "GPU-0";
  device.capacity = core::Bytes(scenario.capacity * kUnit);
  device.has_probe = scenario.by_process;
  config.load_ahead = scenario.declared_runs > 0;
  auto machine =
      std::make_unique<core::Machine>(config, std::vector<core::DeviceSpec>{std::move(device)});
  if (scenario.declared_runs > 0) Declare(scenario, state.now, machine.get());
  state.machine = std::move(machine);
  for (int i = 0; i <= scenario.last_worker(); ++i) {
    Worker worker;
    worker.session = std::make_shared<client::Session>(OptionsOf(scenario, i));
    worker.uses_left = scenario.uses[static_cast<size_t>(i)];
    worker.connect_due = true;
    state.workers.push_back(std::move(worker));
  }
  state.left = scenario.faults;
  return state;
}

uint64_t DigestOf(const State& s) {
  Digest d(s.now);
  for (size_t i = 0; i < s.workers.size(); ++i) {
    Tell(s.workers[i], ProcessOf(static_cast<int>(i)).pid, &d);
  }
  const auto self = [](const Call& call) -> const Call& { return call; };
  for (const Call* call : Sorted(s.calls, self)) Tell(*call, &d);
  for (const Call* call :
       Sorted(s.pending, [](const auto& p) -> const Call& { return p.second.call; })) {
    Tell(*call, &d);
  }
  int64_t cancels = 0;
  for (const auto& [id, pending] : s.pending) cancels += pending.cancel_due ? 1 : 0;
  d.Put(cancels);
  std::vector<const Reply*> replies;
  for (const Reply& reply : s.replies) replies.push_back(&reply);
  std::sort(replies.begin(), replies.end(), [](const Reply* a, const Reply* b) {
    return std::make_tuple(a->call.worker, a->call.number, a->answer->result.index()) <
           std::make_tuple(b->call.worker, b->call.number, b->answer->result.index());
  });
  for (const Reply* reply : replies) {
    Tell(reply->call, &d);
    Tell(*reply->answer, ProcessOf(reply->call.worker).pid, &d);
  }
  std::vector<const Connection*> connections;
  for (const Connection& c : s.connections) connections.push_back(&c);
  std::sort(connections.begin(), connections.end(), [](const Connection* a, const Connection* b) {
    return std::tie(a->worker, a->id) < std::tie(b->worker, b->id);
  });
  for (const Connection* c : connections) Tell(*c, &d);
  for (const auto& [pid, owner] : s.record) {
    d.Put(owner.charge.count());
    d.Put(Name::kAttach, pid, owner.attach_number);
  }
  d.Put((s.reading_wanted ? 4 : 0) + static_cast<int>(s.reading.stage));
  d.Put(Name::kReading, 0, s.reading.number);
  for (int shown : s.reading.shown) d.Put(shown);
  const Faults& f = s.left;
  for (int n : {f.duplicate, f.fail, f.lose, f.give_up, f.give_up_end, f.restart, f.die, f.drop,
                f.reading, f.time}) {
    d.Put(n);
  }
  const std::set<std::string> known = RequestsOf(s);
  core::MachineInspection::Names names;
  names.matters = [&known](const std::string& id) { return known.contains(id); };
  names.call = [&s](core::CallId id) {
    const Call& call = s.pending.at(id.value()).call;
    return std::make_pair(ProcessOf(call.worker).pid, call.number);
  };
  core::MachineInspection::Tell(*s.machine, names, &d);
  return d.Finish();
}

}  // namespace vrambroker::model
