// The declared future: pipelines, runs and how far they are.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

void Machine::Impl::On(const DeclarePipelineEvent& e) {
  Session* session = OpenSession(e.header);
  if (session == nullptr || DealtWith(e.header, session)) return;
  if (!session->pipelines.contains(e.pipeline) &&
      static_cast<int>(session->pipelines.size()) >= config.max_pipelines_per_session) {
    return Fail(e.header.call, absl::ResourceExhaustedError(absl::StrCat(
                                   "pipeline: the session has declared ",
                                   config.max_pipelines_per_session, " pipelines, its most")));
  }
  session->pipelines[e.pipeline] = std::make_shared<const std::vector<StageSpec>>(e.stages);
  pipelines_changed = true;
  RequestRecord record;
  record.state = RequestRecord::State::kAnswered;
  record.answer = EmptyAnswer{};
  Remember(e.header, std::move(record), session);
  Finished(e.header.request_id, session);
  effects.push_back(Answer{e.header.call, EmptyAnswer{}});
}

void Machine::Impl::On(const DeclareRunEvent& e) {
  Session* session = OpenSession(e.header);
  if (session == nullptr || DealtWith(e.header, session)) return;
  const auto pipeline = session->pipelines.find(e.pipeline);
  if (pipeline == session->pipelines.end()) {
    return Fail(e.header.call,
                absl::FailedPreconditionError(absl::StrCat("pipeline: \"", e.pipeline,
                                                           "\" is not declared in this session")));
  }
  if (state.runs.size() >= config.max_runs) {
    return Fail(e.header.call,
                absl::ResourceExhaustedError(absl::StrCat(
                    "this broker knows ", config.max_runs,
                    " runs that have not ended, its most; finish some, or declare later")));
  }
  Run run;
  run.id = RunId(++last_run);
  run.driver = session->id;
  run.driver_name = session->worker;
  run.pipeline = e.pipeline;
  run.stages = pipeline->second;
  run.starts_at = now + e.starts_in;
  const DeclareRunAnswer answer{run.id};
  state.runs.Add(std::move(run));
  for (auto& [uuid, device] : state.devices) device.stirred = now;
  future_changed = true;
  RequestRecord record;
  record.state = RequestRecord::State::kAnswered;
  record.answer = answer;
  Remember(e.header, std::move(record), session);
  Finished(e.header.request_id, session);
  effects.push_back(Answer{e.header.call, answer});
}

void Machine::Impl::On(const FinishRunEvent& e) {
  Session* session = OpenSession(e.header);
  if (session == nullptr || DealtWith(e.header, session)) return;
  const Run* run = state.runs.Find(e.run);
  if (run != nullptr && run->driver != session->id) {
    return Fail(e.header.call, absl::PermissionDeniedError(absl::StrCat(
                                   "run_id: run ", e.run.value(), " belongs to another driver")));
  }
  if (run == nullptr) {
    return Fail(e.header.call, absl::FailedPreconditionError(absl::StrCat(
                                   "run_id: no run ", e.run.value(), " is known; it has ended")));
  }
  state.runs.Erase(e.run);
  future_changed = true;
  RequestRecord record;
  record.state = RequestRecord::State::kAnswered;
  record.answer = EmptyAnswer{};
  Remember(e.header, std::move(record), session);
  Finished(e.header.request_id, session);
  effects.push_back(Answer{e.header.call, EmptyAnswer{}});
}

// A driver that is lost may come back for its pipelines and runs until their grace is over.
void Machine::Impl::EndRuns() {
  future_changed |= state.runs.EraseEnded(now);
  std::vector<SessionId> over;
  for (const auto& [id, s] : state.sessions) {
    const bool lost = s.device.empty() && s.phase == SessionPhase::kLost;
    if (lost && now - s.lost_at >= config.run_grace) over.push_back(id);
  }
  for (SessionId id : over) Happens(SessionEvent::kGraceOver, id, "");
}

// The real order wins: a stage that begins passes over those before it.
void Machine::Impl::NoteStage(const UseSpec& use) {
  const Run* run = state.runs.Find(use.run);
  if (run == nullptr) return;
  state.runs.SetNextStage(run->id, std::clamp(use.stage + 1, run->next_stage, run->count()));
  if (run->started()) return;
  state.runs.Start(run->id, ++last_order);
  state.lanes = std::max(state.lanes, RunsUnderWay());
}

// Started runs with a stage to come or a use that goes on.
int Machine::Impl::RunsUnderWay() const {
  std::set<RunId> using_now;
  for (const auto& [id, c] : state.components) {
    if (c.use.has_value()) using_now.insert(c.use->spec.run);
  }
  const auto& started = state.runs.started();
  return static_cast<int>(std::count_if(started.begin(), started.end(), [&](const auto& r) {
    const Run& run = state.runs.At(r.second);
    return run.next_stage < run.count() || using_now.contains(run.id);
  }));
}

// Rounded up: a time that every use moves would have to be asked for with every use.
absl::Time Machine::Impl::ExpectsUntil(const Device& device) const {
  const absl::Time until = device.habits.last_begin() + device.habits.Patience(config.expect_for);
  const absl::Duration grain = std::max(absl::Milliseconds(100), config.expect_for / 4);
  return absl::UnixEpoch() + absl::Ceil(until - absl::UnixEpoch(), grain);
}

// What was expected and has not come for long is expected no more.
void Machine::Impl::NoteExpectations() {
  for (auto& [uuid, device] : state.devices) {
    const bool expecting = now < ExpectsUntil(device);
    future_changed |= device.expecting && !expecting;
    device.expecting = expecting;
  }
}

void Machine::Impl::MarkPipelines() {
  std::set<std::string> named;
  for (const auto& [id, s] : state.sessions) {
    for (const auto& [name, stages] : s.pipelines) {
      for (const StageSpec& stage : *stages) named.insert(stage.component);
    }
  }
  for (auto& [id, c] : state.components) {
    c.in_pipeline = named.contains(c.spec.name) || named.contains(ComponentName(c));
  }
}

void Machine::Impl::MarkDeclared() {
  for (auto& [id, c] : state.components) {
    if (c.ever_declared) continue;
    c.ever_declared = state.runs.Names(c.spec.name) || state.runs.Names(ComponentName(c));
  }
}

// Bytes of lost owners stay out of the plan; bytes on their way back are in it.
Problem Machine::Impl::BuildProblem(const Device& device, const WaitingUse* deciding) const {
  const Ledger ledger = DeriveLedger(state, device);
  Bytes away =
      ledger.reserve + ledger.permanent + MinusOrZero(ledger.external, ComingResidual(device));
  for (const auto& [id, s] : state.sessions) {
    if (s.device != device.spec.uuid || s.phase != SessionPhase::kLost) continue;
    away += s.pool + s.recorded;
    for (ComponentId cid : s.components) {
      const Component& c = state.components.at(cid);
      away += NeedsCharge(c) + (c.permanent() ? Bytes() : LayerCharge(c));
    }
  }
  Loading loading = Loading::kOff;
  if (config.load_ahead && !state.draining) {
    loading = now >= device.stirred + config.idle_before_load ? Loading::kWhileQuiet : Loading::kOn;
  }
  const Bytes capacity = MinusOrZero(ledger.capacity, away);
  const std::vector<KnownUse> uses =
      KnownUses(state, device, deciding, now, config.horizon, capacity);
  return MakeProblem(state, device, uses, capacity, loading);
}

void Machine::Impl::On(const TickEvent&) {}

void Machine::Impl::On(const DrainEvent& e) {
  state.draining = true;
  for (auto& [id, c] : state.components) {
    const Session& s = SessionOf(c);
    if (s.phase != SessionPhase::kAttached || c.use.has_value() || c.permanent()) continue;
    if (c.target() > 0) Revoke(&c, 0, Reason::kNoNextUse, false, "the broker is draining");
  }
  effects.push_back(Answer{e.call, EmptyAnswer{}});
}

}  // namespace vrambroker::core
