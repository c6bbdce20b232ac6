#include <algorithm>

#include "broker/core/machine_impl.h"
#include "tests/model/inspection.h"

namespace vrambroker::core {
namespace {

using model::Digest;
using model::Name;
using model::NumberOf;

void Put(Bytes bytes, Digest* d) { d->Put(bytes.count()); }

void Tell(const RequestRecord& record, int owner, Digest* d) {
  [[maybe_unused]] const auto& [state, fingerprint, answer, live, mark] = record;
  d->Put(static_cast<int64_t>(state) * 4 + (live ? 2 : 0) + (mark ? 1 : 0));
  d->Put(static_cast<int64_t>(answer.index()));
  if (const auto* begin = std::get_if<BeginAnswer>(&answer)) {
    d->Put(Name::kUse, owner, begin->use.value());
    d->Put(begin->resident);
    d->Put(Name::kGeneration, owner, begin->generation.value());
    d->Put((begin->window + begin->activation).count());
  } else if (const auto* end = std::get_if<EndAnswer>(&answer)) {
    d->Put(end->target.layers);
    d->Put(Name::kGeneration, owner, end->target.generation.value());
    d->Put(end->trim_pool);
  }
}

void Tell(const RunningUse& use, int owner, Digest* d) {
  [[maybe_unused]] const auto& [id, formerly, request_id, spec, granted, held_at_begin, window,
                                activation, ask, generation, began, order] = use;
  d->Put(Name::kUse, owner, id.value());
  for (UseId former : formerly) d->Put(Name::kUse, owner, former.value());
  d->Put(Name::kRequest, owner, NumberOf(request_id));
  d->Put(granted * 64 + held_at_begin);
  Put(window, d);
  Put(activation, d);
  d->Put(ask.has_value());
  d->Put(Name::kGeneration, owner, generation.value());
  d->PutSince(began, absl::Minutes(1));
  d->Put(Name::kOrder, 0, order);
}

void Tell(const Run& run, Digest* d) {
  [[maybe_unused]] const auto& [id, driver, name, pipeline, stages, next, order, starts_at,
                                ends_at] = run;
  d->Put(Name::kRun, 0, id.value());
  d->Put(next);
  d->Put(Name::kOrder, 0, order);
  d->PutDeadline(starts_at);
  d->Put(ends_at);
}

}  // namespace

std::unique_ptr<Machine> MachineInspection::Copy(const Machine& machine) {
  auto copy = std::make_unique<Machine>(machine.impl_->config, std::vector<DeviceSpec>());
  copy->impl_ = std::make_unique<Machine::Impl>(*machine.impl_);
  copy->impl_->planned.reset();  // it points into the other; of one step only
  return copy;
}

std::unique_ptr<Machine> MachineInspection::Next(const Machine& machine, Epoch epoch,
                                                 std::vector<Owner> recorded) {
  Config config = machine.impl_->config;
  config.epoch = epoch;
  std::vector<DeviceSpec> devices;
  for (const auto& [uuid, device] : machine.impl_->state.devices) devices.push_back(device.spec);
  return std::make_unique<Machine>(config, std::move(devices), std::move(recorded));
}

absl::Time MachineInspection::WakeAt(const Machine& machine) { return machine.impl_->wake_at; }

std::optional<Bytes> MachineInspection::Charge(const Machine& machine, const Process& process) {
  std::optional<Bytes> charge;
  for (const auto& [id, s] : machine.impl_->state.sessions) {
    if (s.process != process) continue;
    charge = charge.value_or(Bytes()) + SessionCharge(machine.impl_->state, s);
  }
  return charge;
}

Ledger MachineInspection::LedgerOf(const Machine& machine) {
  const State& state = machine.impl_->state;
  return DeriveLedger(state, state.devices.begin()->second);
}

bool MachineInspection::RevokesARunningUse(const Machine& machine) {
  const auto& components = machine.impl_->state.components;
  return std::any_of(components.begin(), components.end(), [](const auto& entry) {
    const Component& c = entry.second;
    return c.use.has_value() && c.target() < c.use->granted;
  });
}

void MachineInspection::Tell(const Device& device, const Config& config, Digest* d) {
  [[maybe_unused]] const auto& [spec, reading_known, reading_total, by_process_known, by_process,
                                unlisted, pids_match, quiet_total_known, quiet_total, reading_begun,
                                next_wanted_reading, readings_fail_since, stirred, load_at,
                                ahead_pace, habits, expecting, link_rates] = device;
  d->Put(reading_known * 16 + by_process_known * 8 + pids_match * 4 + quiet_total_known * 2 +
         expecting);
  Put(reading_total, d);
  for (const auto& [pid, bytes] : by_process) {
    d->Put(pid);
    Put(bytes, d);
  }
  Put(unlisted, d);
  Put(quiet_total, d);
  d->Put(Name::kReading, 0, reading_begun);
  d->PutDeadline(next_wanted_reading);
  d->PutSince(readings_fail_since, config.settling_time);
  d->PutSince(stirred, config.idle_before_load);
  d->PutDeadline(load_at);
  d->PutReal(ahead_pace);
  d->PutSince(habits.last_begin(), absl::Minutes(10));
  d->Put(absl::ToInt64Nanoseconds(habits.Patience(config.expect_for)));
}

void MachineInspection::Tell(const Session& session, const Config& config, const Names& names,
                             Digest* d) {
  [[maybe_unused]] const auto& [id, worker, place, process, attach_number, phase, connection,
                                device, components, sequence, pool, host, pinned_host, pin_told,
                                pin_budget, machine_pin_budget, requests, finished, marks,
                                pipelines, lost_at, gone_at, trim_sent, trimmed_in_vain, recorded,
                                provable, on_record, attach_on_record, floor, next_floor,
                                total_floor, raised_in_reading, charge_when_reading_began,
                                learned_known, last_charge, charge_fell, learned, residual_since,
                                gone_before_reading, quiet_when_reading_began] = session;
  const int owner = process.pid;
  d->Put(owner);
  d->Put(Name::kSession, 0, id.value());
  d->Put(Name::kAttach, owner, attach_number);
  d->Put(static_cast<int64_t>(phase));
  d->Put(Name::kConnection, owner, connection.value());
  d->Put(Name::kSequence, owner, sequence);
  for (Bytes bytes : {pool, recorded, on_record, floor, next_floor, total_floor,
                      charge_when_reading_began, last_charge, learned}) {
    Put(bytes, d);
  }
  for (const auto& [request, record] : requests) {
    if (!names.matters(request)) continue;
    d->Put(Name::kRequest, owner, NumberOf(request));
    core::Tell(record, owner, d);
  }
  d->PutSince(lost_at, config.run_grace);
  d->PutSince(gone_at, config.settling_time);
  d->PutSince(trim_sent, config.release_deadline);
  d->Put(Name::kAttach, owner, attach_on_record);
  d->PutSince(charge_fell, config.settling_time);
  d->PutSince(residual_since, config.settling_time);
  d->Put(trimmed_in_vain * 64 + provable * 32 + raised_in_reading * 16 + learned_known * 8 +
         gone_before_reading * 4 + quiet_when_reading_began * 2);
}

void MachineInspection::Tell(const Component& component, int owner, const Config& config,
                             Digest* d) {
  [[maybe_unused]] const auto& [id, session, spec, held, completed, generation, open, fall, use,
                                may_pin, admitted, fixed_placed, ever_declared, in_pipeline, peers,
                                runs_seen, newest_run, last_used, reason, decision, target_sent,
                                last_reminder, pace, revoked_at, revoked_from, estimates, regret,
                                regret_bytes] = component;
  d->Put(owner);
  d->Put(Name::kComponent, 0, id.value());
  d->Put(Name::kSession, 0, session.value());
  d->Put(held);
  for (Generation g : {completed, generation, fall}) d->Put(Name::kGeneration, owner, g.value());
  for (const OpenTarget& t : open) {
    d->Put(Name::kGeneration, owner, t.generation.value());
    d->Put(t.layers);
  }
  d->Put(use.has_value());
  if (use.has_value()) core::Tell(*use, owner, d);
  d->Put(admitted * 8 + fixed_placed * 4 + ever_declared * 2 + in_pipeline);
  d->Put(std::min(runs_seen, 2));
  d->Put(Name::kRun, 0, newest_run.value());
  d->Put(Name::kUsed, 0, last_used);
  d->Put(static_cast<int64_t>(reason));
  d->PutSince(target_sent, config.release_deadline);
  d->PutSince(last_reminder, config.release_deadline);
  d->PutReal(pace);
  d->Put(revoked_at.has_value() * 64 + revoked_from);
  d->PutSince(regret.came(), config.minimum_residency);
}

void MachineInspection::Tell(const WaitingUse& waiting, int owner, const Config& config,
                             const Names& names, Digest* d) {
  [[maybe_unused]] const auto& [order, call, session, request_id, component, spec, ask, arrived,
                                grow_until, end_until, named_at, blocked_by] = waiting;
  d->Put(Name::kOrder, 0, order);
  const auto [caller, number] = names.call(call);
  d->Put(Name::kCall, caller, number);
  d->Put(Name::kRequest, owner, NumberOf(request_id));
  d->Put(Name::kComponent, 0, component.value());
  d->PutSince(arrived, config.max_wait);
  for (const auto& until : {grow_until, end_until}) {
    d->Put(until.has_value());
    if (until.has_value()) d->PutDeadline(*until);
  }
}

void MachineInspection::Tell(const Machine& machine, const Names& names, Digest* d) {
  const Machine::Impl& m = *machine.impl_;
  [[maybe_unused]] const auto& [devices, sessions, components, connections, waiting_calls, waiting,
                                runs, lanes, decisions, draining, recovering, recovery_ends,
                                pins_open_at] = m.state;
  d->Put(Name::kEpoch, 0, m.config.epoch.value());
  for (const auto& [uuid, device] : devices) Tell(device, m.config, d);
  for (const auto& [id, session] : sessions) Tell(session, m.config, names, d);
  for (const auto& [id, c] : components) {
    Tell(c, sessions.at(c.session).process.pid, m.config, d);
    d->PutReal(devices.begin()->second.habits.Weight(m.ComponentName(c)));
    d->Put(absl::ToInt64Nanoseconds(devices.begin()->second.habits.Interval(m.ComponentName(c))));
  }
  for (const auto& [order, w] : waiting) {
    Tell(w, sessions.at(w.session).process.pid, m.config, names, d);
  }
  for (const auto& [id, run] : runs.all()) core::Tell(run, d);
  d->Put(lanes * 4 + draining * 2 + recovering);
  d->PutDeadline(recovery_ends);
  d->PutDeadline(m.wake_at);
}

}  // namespace vrambroker::core
