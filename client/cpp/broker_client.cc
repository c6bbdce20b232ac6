#include "client/cpp/broker_client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/credentials.h"
#include "client/cpp/engine.h"
#include "client/cpp/session_proto.h"

namespace vrambroker::client {
namespace {

// While a use waits, its caller is asked this often whether it still wants it.
constexpr absl::Duration kAskCaller = absl::Milliseconds(10);

absl::Status CheckName(const std::string& field, const std::string& name) {
  const bool good = !name.empty() && name.size() <= 128 &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": \"", name, "\" is not 1 to 128 of letters, digits, '.', '-' and '_'"));
}

// Until the use is granted or refused, its deadline passes or its caller gives up.
Engine::UseOutcome WaitForGrant(Engine& engine, Ticket ticket, const UseOptions& options,
                                bool* cancelled) {
  while (true) {
    absl::Time until = options.deadline;
    if (options.cancelled) until = std::min(until, absl::Now() + kAskCaller);
    Engine::UseOutcome outcome = engine.WaitForUse(ticket, /*closed=*/false, until);
    const bool decided = outcome.granted || outcome.refused;
    // Back before its time, undecided: the client is being destroyed.
    if (decided || absl::Now() < until || until >= options.deadline) return outcome;
    *cancelled = options.cancelled();
    if (*cancelled) return outcome;
  }
}

}  // namespace

class BrokerClient::Impl {
 public:
  Impl(ClientOptions options, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : engine_(std::move(options), credentials) {}

  Engine& engine() { return engine_; }

  // Pipelines belong to a session: declared again in each new one. A broker that has restarted may
  // give an earlier session's id again.
  absl::Status DeclareIn(const SessionInfo& session) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (declared_in_.id == session.id && declared_in_.epoch == session.epoch) {
      return absl::OkStatus();
    }
    for (auto& [name, pipeline] : pipelines_) {
      v1::DeclarePipelineRequest request = pipeline;
      request.set_session_id(session.id);
      request.set_request_id(engine_.NewRequestId());
      v1::DeclarePipelineResponse response;
      absl::Status status =
          engine_.Call(&v1::VramBroker::Stub::DeclarePipeline, request, &response);
      if (!status.ok()) return status;
    }
    declared_in_ = session;
    return absl::OkStatus();
  }

  absl::Status Declare(const v1::DeclarePipelineRequest& pipeline) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      pipelines_[pipeline.pipeline()] = pipeline;
      declared_in_ = {};
    }
    absl::Status status = InSession([](uint64_t) { return absl::OkStatus(); });
    if (status.ok()) return status;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!IsPassing(status)) pipelines_.erase(pipeline.pipeline());
    return status;
  }

  // Makes a call in the open session, again where it was lost meanwhile.
  template <typename F>
  absl::Status InSession(F call) {
    const absl::Time give_up = engine_.DriverGivesUpAt();
    absl::Status status;
    do {
      const SessionInfo session = engine_.WaitSession(give_up);
      if (session.id == 0) {
        return absl::UnavailableError("no session with the broker; is vram-brokerd running?");
      }
      status = DeclareIn(session);
      if (status.ok()) status = call(session.id);
      if (status.ok() || (!IsPassing(status) && !absl::IsAborted(status))) return status;
      absl::SleepFor(absl::Milliseconds(20));
    } while (absl::Now() < give_up);
    return status;
  }

 private:
  Engine engine_;
  std::mutex mutex_;
  std::map<std::string, v1::DeclarePipelineRequest> pipelines_;
  SessionInfo declared_in_;
};

struct Use::State {
  Engine* engine = nullptr;
  ManagedComponent* component = nullptr;
  std::string name;
  Ticket ticket = 0;
  std::unique_lock<std::mutex> lock;
  Engine::UseOutcome outcome;
  absl::Duration waited;
};

Use::Use(std::unique_ptr<State> state) : state_(std::move(state)) {}
Use::Use(Use&&) noexcept = default;
Use& Use::operator=(Use&& other) noexcept {
  if (state_ != nullptr) End({});
  state_ = std::move(other.state_);
  return *this;
}
Use::~Use() {
  if (state_ != nullptr) End({});
}

uint64_t Use::use_id() const { return state_->outcome.use_id; }
int Use::resident_layers() const { return state_->outcome.resident_layers; }
int64_t Use::activation_bytes() const { return state_->outcome.activation_bytes; }
bool Use::brokered() const { return state_->outcome.brokered; }
absl::Duration Use::waited() const { return state_->waited; }
v1::Reason Use::reason() const { return state_->outcome.reason; }

int Use::End(const v1::UseMeasurements& measured, absl::Duration patience) {
  const std::unique_ptr<State> s = std::move(state_);
  if (s == nullptr) return 0;
  s->component->FreeNeeds();
  s->engine->Deliver(
      UseOver{s->ticket, s->component->held_layers(), measured, s->engine->PoolBytes()});
  Engine::UseOutcome outcome =
      s->engine->WaitForUse(s->ticket, /*closed=*/true, absl::Now() + patience);
  if (!outcome.closed) {
    s->engine->Deliver(EndGivenUp{s->ticket});
    outcome = s->engine->WaitForUse(s->ticket, true, absl::Now() + patience);
  }
  if (s->component->held_layers() > outcome.keep) {
    // What cannot be released stays held, and is told as held.
    (void)s->component->ReleaseTo(outcome.keep);
  }
  const int kept = s->component->held_layers();
  s->engine->TellHeld(s->name, kept, false);
  // With no broker there is nobody to ask for what the allocator keeps, and others are short of it.
  if (!outcome.brokered || !s->engine->attached()) s->engine->TrimNow();
  s->engine->Forget(s->ticket);
  s->lock.unlock();
  s->engine->SignalWork();
  return kept;
}

BrokerClient::BrokerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BrokerClient::~BrokerClient() = default;

absl::StatusOr<std::unique_ptr<BrokerClient>> BrokerClient::Create(ClientOptions options) {
  if (options.address.empty()) options.address = DefaultAddress();
  if (options.lock_dir.empty()) options.lock_dir = DefaultLockDir();
  if (absl::Status s = CheckName("worker", options.worker); !s.ok()) return s;
  if (options.retry_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("retry_interval: must be above 0");
  }
  for (const ManagedComponent* c : options.components) {
    if (absl::Status s = CheckName("component name", c->Describe().name()); !s.ok()) return s;
  }
  options.tls = WithEnvironment(std::move(options.tls));
  auto credentials = MakeCredentials(options.address, options.tls);
  if (!credentials.ok()) return credentials.status();
  return std::unique_ptr<BrokerClient>(
      new BrokerClient(std::make_unique<Impl>(std::move(options), *credentials)));
}

absl::Status BrokerClient::WaitReady(absl::Time deadline) {
  return impl_->engine().WaitReady(deadline);
}

absl::StatusOr<Use> BrokerClient::BeginUse(const std::string& component,
                                           const UseOptions& options) {
  Engine& engine = impl_->engine();
  ManagedComponent* managed = engine.Find(component);
  if (managed == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("component: \"", component, "\" is not one of this client's"));
  }
  v1::BeginUseRequest request;
  request.set_component(component);
  request.set_run_id(options.run_id);
  request.set_stage(options.stage);
  request.set_passes(options.passes);
  request.set_activation_bytes(options.activation_bytes);
  request.set_shape(options.shape);
  request.set_activation_is_exact(options.activation_is_exact);
  request.set_min_resident_layers(options.min_resident_layers);
  request.set_max_resident_layers(options.max_resident_layers);
  request.set_priority(options.priority);
  for (uint64_t id : options.held_use_ids) request.add_held_use_ids(id);
  if (!options.shard_group.empty()) {
    request.mutable_shard_group()->set_name(options.shard_group);
    request.mutable_shard_group()->set_size(options.shard_group_size);
  }

  const absl::Time asked = absl::Now();
  const Ticket ticket = engine.NewTicket(request);
  bool cancelled = false;
  Engine::UseOutcome outcome = WaitForGrant(engine, ticket, options, &cancelled);
  if (!outcome.granted && !outcome.refused) {
    engine.Deliver(UseGivenUp{ticket});
    outcome = engine.WaitForUse(ticket, false, absl::Now());  // it may have come in between
  }
  if (!outcome.granted) {
    engine.Forget(ticket);
    if (outcome.refused) return outcome.status;
    if (cancelled) return absl::CancelledError("the caller stopped waiting");
    return absl::DeadlineExceededError(absl::StrCat(
        "no use of ", component, " was admitted within ", absl::FormatDuration(absl::Now() - asked),
        "; vramctl status shows who holds the card"));
  }
  auto state = std::make_unique<Use::State>();
  state->engine = &engine;
  state->component = managed;
  state->name = component;
  state->ticket = ticket;
  state->outcome = outcome;
  state->waited = absl::Now() - asked;
  state->lock = std::unique_lock<std::mutex>(managed->lock());
  return Use(std::move(state));
}

absl::Status BrokerClient::ReleaseAll() {
  Engine& engine = impl_->engine();
  return engine.ReleaseAllComponents();
}

absl::Status BrokerClient::DeclarePipeline(const v1::DeclarePipelineRequest& pipeline) {
  if (absl::Status s = CheckName("pipeline", pipeline.pipeline()); !s.ok()) return s;
  return impl_->Declare(pipeline);
}

absl::StatusOr<uint64_t> BrokerClient::DeclareRun(const std::string& pipeline) {
  const std::string request_id = impl_->engine().NewRequestId();
  v1::DeclareRunResponse response;
  absl::Status status = impl_->InSession([&](uint64_t session) {
    v1::DeclareRunRequest request;
    request.set_session_id(session);
    request.set_request_id(request_id);
    request.set_pipeline(pipeline);
    return impl_->engine().Call(&v1::VramBroker::Stub::DeclareRun, request, &response);
  });
  if (!status.ok()) return status;
  return response.run_id();
}

absl::Status BrokerClient::FinishRun(uint64_t run_id) {
  const std::string request_id = impl_->engine().NewRequestId();
  return impl_->InSession([&](uint64_t session) {
    v1::FinishRunRequest request;
    request.set_session_id(session);
    request.set_request_id(request_id);
    request.set_run_id(run_id);
    v1::FinishRunResponse response;
    return impl_->engine().Call(&v1::VramBroker::Stub::FinishRun, request, &response);
  });
}

void BrokerClient::Poll() { (void)impl_->engine().ApplyOnce(); }
int BrokerClient::poll_descriptor() const { return impl_->engine().poll_descriptor(); }
bool BrokerClient::attached() const { return impl_->engine().attached(); }
SessionInfo BrokerClient::session() const { return impl_->engine().session(); }
std::string BrokerClient::WhyPageable(const std::string& component) const {
  return impl_->engine().WhyPageable(component);
}
std::string BrokerClient::WaitingFor() const { return impl_->engine().WaitingFor(); }

}  // namespace vrambroker::client
