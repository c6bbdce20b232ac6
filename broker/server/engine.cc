#include "broker/server/engine.h"

#include <fcntl.h>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {
namespace {

absl::Status Stopping() {
  return absl::UnavailableError(
      "the broker is stopping; keep what is held, try again with backoff");
}

absl::Status Full() {
  return absl::ResourceExhaustedError(
      absl::StrCat(Engine::kMailboxBound,
                   " calls wait for a decision, which is the bound; "
                   "try again with backoff"));
}

std::string Number(uint64_t number) { return absl::StrCat(number); }

observe::UniqueFd PidfdOfPeer(const PeerTable::PeerPtr& peer) {
  if (peer == nullptr || !peer->pidfd.valid()) return observe::UniqueFd();
  return observe::UniqueFd(fcntl(peer->pidfd.get(), F_DUPFD_CLOEXEC, 0));
}

// Of the process that a caller over TCP says it is, or that is on record. None where no process of
// this namespace has both that pid and that start time: it is of another namespace or machine. The
// descriptor comes first, so that a pid that is used again meanwhile does not pass.
observe::UniqueFd PidfdOfClaim(const core::Process& process) {
  if (!process.named_by_pid()) return observe::UniqueFd();
  auto pidfd = observe::OpenPidfd(process.pid);
  const bool here = observe::IsProcessHere(process.pid, process.start_time);
  return pidfd.ok() && here ? *std::move(pidfd) : observe::UniqueFd();
}

// Whether a broker that starts later can tell of its death, by nothing but its pid and start time.
bool CanBeProvenLater(const core::Process& process) {
  return process.named_by_pid() && process.start_time > 0;
}

}  // namespace

std::vector<core::Owner> AllFound(const Engine::Records& records) {
  std::vector<core::Owner> all;
  for (const auto& [uuid, record] : records) {
    all.insert(all.end(), record->found().begin(), record->found().end());
  }
  return all;
}

Engine::Engine(const core::Config& config, std::vector<core::DeviceSpec> devices,
               const Clock& clock, Log* log, observe::ProcessWatch* watch, Records records,
               EngineHooks hooks)
    : clock_(clock),
      log_(log),
      watch_(watch),
      records_(std::move(records)),
      hooks_(std::move(hooks)),
      machine_(config, std::move(devices), AllFound(records_)),
      mailbox_(kMailboxBound, [this](Item item) { Handle(std::move(item)); }) {}

// In the order of decisions: a worker that dies meanwhile is told of by another thread.
void Engine::WatchRecorded() {
  Inspect([this](const core::Machine&, absl::Time now) { WatchOwners(now); });
}

// Workers of an earlier broker whose death can be told: those that have died meanwhile, or whose
// pid is somebody else's by now, are gone.
void Engine::WatchOwners(absl::Time now) {
  for (const core::Owner& owner : AllFound(records_)) {
    log_->Write(LogLine{now,
                        "on_record",
                        {{"worker", owner.worker},
                         {"pid", absl::StrCat(owner.process.pid)},
                         {"device", owner.device},
                         {"charge", core::ToString(owner.charge)}}});
    if (!owner.provable) continue;
    observe::UniqueFd pidfd = PidfdOfClaim(owner.process);
    if (!pidfd.valid() || !Watch(owner.process, std::move(pidfd), owner.worker, now)) {
      Post(core::ProcessDiedEvent{owner.process});
    }
  }
}

bool Engine::Open(UnaryCall* call) {
  if (calls_.Add(call)) return true;
  call->Refuse(Stopping());
  return false;
}

void Engine::PostCall(core::CallId call, Item item) {
  const auto posted = mailbox_.TryPost(std::move(item));
  if (posted == Mailbox<Item>::Posted::kYes) return;
  UnaryCall* taken = calls_.Take(call);
  if (taken == nullptr) return;
  taken->Refuse(posted == Mailbox<Item>::Posted::kFull ? Full() : Stopping());
}

void Engine::SubmitDrain(UnaryCall* call) {
  if (Open(call)) PostCall(call->id(), core::Event(core::DrainEvent{call->id()}));
}

void Engine::SubmitInspection(
    UnaryCall* call, std::function<void(UnaryCall*, const core::Machine&, absl::Time)> look) {
  if (!Open(call)) return;
  const core::CallId id = call->id();
  PostCall(id, Inspection([this, id, look = std::move(look)](const core::Machine& machine,
                                                             absl::Time now) {
             if (UnaryCall* taken = calls_.Take(id); taken != nullptr) look(taken, machine, now);
           }));
}

void Engine::SubmitAttach(const std::shared_ptr<AttachStream>& stream, core::AttachEvent event) {
  if (absl::Status status = streams_.Add(stream); !status.ok()) {
    stream->Close(std::move(status));
    return;
  }
  event.connection = stream->id;
  const auto posted = mailbox_.TryPost(core::Event(std::move(event)));
  if (posted == Mailbox<Item>::Posted::kYes) return;
  streams_.Take(stream->id);
  stream->Close(posted == Mailbox<Item>::Posted::kFull ? Full() : Stopping());
}

void Engine::CallCancelled(core::CallId call) {
  if (calls_.Contains(call)) mailbox_.Post(core::Event(core::CallCancelledEvent{call}));
}

void Engine::StreamEnded(core::ConnectionId connection) {
  if (streams_.Find(connection) != nullptr) {
    mailbox_.Post(core::Event(core::StreamClosedEvent{connection}));
  }
}

void Engine::Stop() {
  mailbox_.Close();
  for (UnaryCall* call : calls_.Close()) call->Refuse(Stopping());
  for (const auto& stream : streams_.Close()) stream->Close(Stopping());
}

void Engine::Handle(Item item) {
  const absl::Time now = clock_.Now();
  if (auto* look = std::get_if<Inspection>(&item)) {
    (*look)(machine_, now);
    return;
  }
  const core::Event& event = std::get<core::Event>(item);
  if (!Before(event, now)) return;
  Step(event, now);
  After(event);
}

void Engine::Step(const core::Event& event, absl::Time now) {
  core::Effects effects = machine_.Step(event, now);
  const absl::Duration took = clock_.Now() - now;
  LogStep(event, now, took);
  if (hooks_.on_step != nullptr) hooks_.on_step(event, took);
  for (core::Effect& effect : effects) {
    if (hooks_.on_effect != nullptr) hooks_.on_effect(effect);
    CarryOut(effect, now);
  }
}

void Engine::LogStep(const core::Event& event, absl::Time now, absl::Duration took) {
  if (log_->Takes(LogLevel::kDebug)) log_->Write(ToLogLine(event, now, took));
  const auto* reading = std::get_if<core::ReadingEvent>(&event);
  if (reading == nullptr) return;
  const bool failed = !reading->status.ok();
  if (failed == unread_.contains(reading->device_uuid)) return;
  LogLine line{now, failed ? "reading_failed" : "reading_back", {}};
  line.fields.emplace_back("device", reading->device_uuid);
  if (failed) {
    line.fields.emplace_back("error", reading->status.ToString());
    unread_.insert(reading->device_uuid);
  } else {
    unread_.erase(reading->device_uuid);
  }
  log_->Write(std::move(line));
}

bool Engine::Before(const core::Event& event, absl::Time now) {
  if (const auto* closed = std::get_if<core::StreamClosedEvent>(&event)) {
    const std::shared_ptr<AttachStream> stream = streams_.Take(closed->connection);
    if (stream == nullptr) return false;
    sessions_.Erase(stream->session);
    log_->Write(LogLine{now,
                        "lost",
                        {{"worker", stream->worker},
                         {"session", Number(stream->session.value())},
                         {"pid", absl::StrCat(stream->process.pid)}}});
  } else if (const auto* died = std::get_if<core::ProcessDiedEvent>(&event)) {
    watched_.erase(died->process);
    log_->Write(LogLine{now, "gone", {{"pid", absl::StrCat(died->process.pid)}}});
  } else if (const auto* cancelled = std::get_if<core::CallCancelledEvent>(&event)) {
    return calls_.Contains(cancelled->call);
  }
  return true;
}

void Engine::After(const core::Event& event) {
  if (const auto* began = std::get_if<core::ReadingBeganEvent>(&event)) {
    hooks_.reading_began(*began);
    return;
  }
  if (const auto* cancelled = std::get_if<core::CallCancelledEvent>(&event)) {
    UnaryCall* call = calls_.Take(cancelled->call);
    if (call != nullptr) call->Refuse(absl::CancelledError("the caller stopped waiting"));
  }
  if (std::holds_alternative<core::DrainEvent>(event)) hooks_.draining();
  hooks_.changed();
}

void Engine::CarryOut(core::Effect& effect, absl::Time now) {
  std::visit([&](const auto& one) { CarryOut(one, now); }, effect);
}

void Engine::CarryOut(const core::SendDirective& directive, absl::Time now) {
  const std::shared_ptr<AttachStream> stream = streams_.Find(directive.connection);
  if (stream == nullptr) return;  // ended meanwhile; the core will hear of it
  if (directive.welcome.has_value()) Welcome(stream.get(), *directive.welcome, now);
  stream->Send(directive);
}

void Engine::Welcome(AttachStream* stream, const core::Welcome& welcome, absl::Time now) {
  stream->session = welcome.session;
  sessions_.Put(welcome.session,
                {stream->worker, stream->process, stream->caller, stream->device_uuid});
  WatchProcess(*stream, now);
  LogLine line{now,
               "attach",
               {{"worker", stream->worker},
                {"session", Number(welcome.session.value())},
                {"pid", absl::StrCat(stream->process.pid)},
                {"components", absl::StrCat(stream->components)}}};
  if (!stream->caller.certificate.empty()) {
    line.fields.emplace_back("certificate", stream->caller.certificate);
  }
  for (const core::RefusedComponent& refused : welcome.refused) {
    line.fields.emplace_back("refused", absl::StrCat(refused.component, ": ", refused.message));
  }
  log_->Write(std::move(line));
}

void Engine::WatchProcess(const AttachStream& stream, absl::Time now) {
  observe::UniqueFd pidfd = stream.caller.transport == Transport::kUnix
                                ? PidfdOfPeer(stream.caller.peer)
                                : PidfdOfClaim(stream.process);
  if (!pidfd.valid() || !Watch(stream.process, std::move(pidfd), stream.worker, now)) return;
  if (!CanBeProvenLater(stream.process)) return;
  for (const auto& [uuid, record] : records_) record->SetProvable(stream.worker, stream.process);
}

bool Engine::Watch(const core::Process& process, observe::UniqueFd pidfd, const std::string& worker,
                   absl::Time now) {
  if (!watched_.insert(process).second) return true;
  const auto watched = watch_->WatchPidfd(
      std::move(pidfd), [this, process] { Post(core::ProcessDiedEvent{process}); });
  if (watched.ok()) return true;
  watched_.erase(process);
  log_->Write(LogLine{now,
                      "not_watched",
                      {{"worker", worker},
                       {"pid", absl::StrCat(process.pid)},
                       {"error", std::string(watched.status().message())}}});
  return false;
}

void Engine::CarryOut(const core::RecordCharge& record, absl::Time now) {
  const auto it = records_.find(record.owner.device);
  if (it == records_.end()) return;
  core::Owner owner = record.owner;
  owner.provable = CanBeProvenLater(owner.process) && watched_.contains(owner.process);
  const absl::Status status = it->second->Put(owner);
  if (status.ok()) return;
  log_->Write(LogLine{
      now, "not_recorded", {{"worker", owner.worker}, {"error", std::string(status.message())}}});
}

void Engine::CarryOut(const core::LongWait& wait, absl::Time now) {
  log_->Write(LogLine{now,
                      "long_wait",
                      {{"component", wait.component},
                       {"device", wait.device},
                       {"request", wait.request_id},
                       {"waited", absl::FormatDuration(absl::Trunc(wait.waited, absl::Seconds(1)))},
                       {"blocked_by", wait.blocked_by},
                       {"holders", wait.holders}}});
}

void Engine::CarryOut(const core::CloseStream& close, absl::Time now) {
  const std::shared_ptr<AttachStream> stream = streams_.Take(close.connection);
  if (stream == nullptr) return;
  sessions_.Erase(stream->session);
  log_->Write(LogLine{now,
                      "closed",
                      {{"worker", stream->worker},
                       {"session", Number(stream->session.value())},
                       {"pid", absl::StrCat(stream->process.pid)},
                       {"status", close.status.ToString()}}});
  stream->Close(close.status);
}

void Engine::CarryOut(const core::Answer& answer, absl::Time now) {
  UnaryCall* call = calls_.Take(answer.call);
  if (call == nullptr) return;
  const auto* status = std::get_if<absl::Status>(&answer.result);
  if (status != nullptr && !status->ok() && !absl::IsCancelled(*status)) {
    LogLine line{now, "refused", {{"status", status->ToString()}}};
    if (!call->request_id().empty()) line.fields.emplace_back("request", call->request_id());
    log_->Write(std::move(line));
  }
  call->Complete(answer.result);
}

}  // namespace vrambroker::server
