#include "client/cpp/engine.h"

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/defaults.h"

namespace vrambroker::client {
namespace {

// While there is no session, the device's lock is looked at this often.
constexpr absl::Duration kLookForBroker = absl::Milliseconds(200);

SessionOptions ToSession(const ClientOptions& options) {
  SessionOptions s;
  s.worker = options.worker;
  s.pid = static_cast<int32_t>(getpid());
  s.start_time_ticks = OwnStartTimeTicks();
  for (const ManagedComponent* c : options.components) s.components.push_back(c->Describe());
  for (const auto& [name, layers] : options.configured_resident) {
    s.configured_resident[name] = layers;
  }
  s.retry_interval = options.retry_interval;
  return s;
}

}  // namespace

// The session's stream: one read in flight; ends itself.
class Engine::Stream : public grpc::ClientReadReactor<v1::Directive> {
 public:
  Stream(Engine* engine, const v1::AttachRequest& request) : engine_(engine), request_(request) {}

  void Start() {
    engine_->stub_->async()->Attach(&context_, &request_, this);
    StartRead(&directive_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    engine_->Deliver(DirectiveReceived{request_.attach_number(), directive_});
    StartRead(&directive_);
  }
  void OnDone(const grpc::Status& status) override {
    Engine* engine = engine_;
    {
      const std::lock_guard<std::mutex> lock(engine->mutex_);
      if (engine->stream_ == this) engine->stream_ = nullptr;
    }
    engine->Deliver(StreamEnded{request_.attach_number(), FromGrpc(status)});
    delete this;
    engine->CallEnded();
  }

 private:
  Engine* const engine_;
  const v1::AttachRequest request_;
  v1::Directive directive_;
  grpc::ClientContext context_;
};

// One unary call, from sending to its answer's event.
template <typename Request, typename Response, typename Answered>
struct UnaryCall {
  Engine* engine;
  uint64_t attach_number;
  Request request;
  Response response = {};
  grpc::ClientContext context = {};

  void Answer(const grpc::Status& status, const std::string& request_id) {
    Answered e;
    e.attach_number = attach_number;
    if constexpr (!std::is_same_v<Answered, ReportAnswered>) e.request_id = request_id;
    e.status = Engine::FromGrpc(status);
    e.response = std::move(response);
    Engine* to = engine;
    delete this;
    to->Deliver(std::move(e));
    to->CallEnded();
  }
};

Engine::Engine(ClientOptions options)
    : options_(std::move(options)), session_(ToSession(options_)) {
  for (ManagedComponent* c : options_.components) components_[c->Describe().name()] = c;
  grpc::ChannelArguments arguments;
  // The session decides when to try again; the channel only follows.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = v1::VramBroker::NewStub(
      grpc::CreateCustomChannel(options_.address, grpc::InsecureChannelCredentials(), arguments));
  poll_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  timer_ = std::thread([this] { RunTimer(); });
  if (options_.apply_thread) applier_ = std::thread([this] { RunApplier(); });
  if (options_.pool != nullptr) {
    Deliver(PoolChanged{options_.pool->pool_bytes(), options_.pool->pinned_host_bytes()});
  }
  Deliver(Connect{});
}

// First the threads that start calls, then the calls: each is counted before the one that led to it ends.
Engine::~Engine() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  timer_.join();
  if (applier_.joinable()) applier_.join();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (stream_ != nullptr) stream_->Cancel();
    for (auto& [id, context] : begins_) context->TryCancel();
    changed_.wait(lock, [this] { return calls_ == 0 && !carrying_out_; });
  }
  close(poll_fd_);
}

absl::Status Engine::FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// ---- Steps and effects ----

void Engine::Deliver(Event event) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (Effect& effect : session_.Step(event, absl::Now())) effects_.push_back(std::move(effect));
  if (carrying_out_) return;
  carrying_out_ = true;
  while (!effects_.empty()) {
    const Effect effect = std::move(effects_.front());
    effects_.pop_front();
    lock.unlock();
    CarryOut(effect);
    lock.lock();
  }
  carrying_out_ = false;
  changed_.notify_all();
}

void Engine::CarryOut(const Effect& effect) {
  std::visit([this](const auto& e) { Do(e); }, effect);
}

void Engine::CallStarted() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++calls_;
}

void Engine::CallEnded() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --calls_;
  changed_.notify_all();
}

void Engine::Do(const OpenStream& e) {
  auto* stream = new Stream(this, e.request);  // deletes itself when done
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) {
      delete stream;
      return;
    }
    if (stream_ != nullptr) stream_->Cancel();
    stream_ = stream;
    ++calls_;
  }
  stream->Start();
}

void Engine::Do(const SendBegin& e) {
  auto* call = new UnaryCall<v1::BeginUseRequest, v1::BeginUseResponse, BeginAnswered>{
      this, e.attach_number, e.request};
  const std::string id = e.request.request_id();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) {
      delete call;
      return;
    }
    begins_[id] = &call->context;
    ++calls_;
  }
  stub_->async()->BeginUse(&call->context, &call->request, &call->response,
                           [this, call, id](const grpc::Status& status) {
                             {
                               const std::lock_guard<std::mutex> lock(mutex_);
                               const auto it = begins_.find(id);
                               if (it != begins_.end() && it->second == &call->context) {
                                 begins_.erase(it);
                               }
                             }
                             call->Answer(status, id);
                           });
}

void Engine::Do(const SendEnd& e) {
  auto* call = new UnaryCall<v1::EndUseRequest, v1::EndUseResponse, EndAnswered>{
      this, e.attach_number, e.request};
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  CallStarted();
  stub_->async()->EndUse(
      &call->context, &call->request, &call->response,
      [call](const grpc::Status& status) { call->Answer(status, call->request.request_id()); });
}

void Engine::Do(const SendReport& e) {
  auto* call =
      new UnaryCall<v1::ReportResidencyRequest, v1::ReportResidencyResponse, ReportAnswered>{
          this, e.attach_number, e.request};
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  CallStarted();
  stub_->async()->ReportResidency(&call->context, &call->request, &call->response,
                                  [call](const grpc::Status& status) { call->Answer(status, ""); });
}

void Engine::Do(const CancelBegin& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = begins_.find(e.request_id); it != begins_.end()) it->second->TryCancel();
}

void Engine::Do(const UseGranted& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  UseOutcome& use = uses_[e.ticket];
  use.granted = true;
  use.resident_layers = e.resident_layers;
  use.use_id = e.use_id;
  use.brokered = e.brokered;
  use.reason = e.reason;
  changed_.notify_all();
}

void Engine::Do(const UseRefused& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  UseOutcome& use = uses_[e.ticket];
  use.refused = true;
  use.status = e.status;
  changed_.notify_all();
}

void Engine::Do(const UseClosed& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  UseOutcome& use = uses_[e.ticket];
  use.closed = true;
  use.keep = e.keep;
  changed_.notify_all();
}

void Engine::Do(const WorkChanged& e) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_loads_.erase(e.component);
  }
  SignalWork();
}

void Engine::Do(const PlaceFixed& e) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    to_place_.insert(e.component);
  }
  SignalWork();
}

void Engine::Do(const TrimPool&) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    to_trim_ = true;
  }
  SignalWork();
}

void Engine::Do(const SessionChanged& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (e.attached) no_broker_ = false;
  last_refusal_ = e.status;
  refused_for_good_ = !e.attached && connect_at_ == absl::InfiniteFuture();
  changed_.notify_all();
}

void Engine::Do(const ConnectAt& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connect_at_ = e.time;
  refused_for_good_ = false;
  changed_.notify_all();
}

void Engine::Do(const WakeAt& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wake_at_ = e.time;
  changed_.notify_all();
}

// ---- Time ----

void Engine::RunTimer() {
  std::unique_lock<std::mutex> lock(mutex_);
  absl::Time look_at = absl::InfinitePast();
  while (!stopping_) {
    const absl::Time now = absl::Now();
    if (connect_at_ <= now) {
      connect_at_ = absl::InfiniteFuture();
      lock.unlock();
      Deliver(Connect{});
      lock.lock();
      continue;
    }
    if (wake_at_ <= now) {
      wake_at_ = absl::InfiniteFuture();
      lock.unlock();
      Deliver(Tick{});
      lock.lock();
      continue;
    }
    absl::Time next = std::min(connect_at_, wake_at_);
    if (!session_.attached() && !options_.device_uuid.empty()) {
      if (look_at <= now) {
        look_at = now + kLookForBroker;
        lock.unlock();
        LookForBroker();
        lock.lock();
        continue;
      }
      next = std::min(next, look_at);
    }
    if (next == absl::InfiniteFuture()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, absl::ToChronoTime(next));
    }
  }
}

void Engine::LookForBroker() {
  const absl::StatusOr<bool> lives = BrokerLives(options_.lock_dir, options_.device_uuid);
  const bool gone = lives.ok() && !*lives;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (session_.attached()) return;
    no_broker_ = gone;
    changed_.notify_all();
  }
  if (gone) Deliver(NoBrokerLives{});
}

// ---- Waiting ----

Ticket Engine::NewTicket(const v1::BeginUseRequest& request) {
  Ticket ticket = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ticket = ++last_ticket_;
    uses_[ticket] = UseOutcome{};
  }
  Deliver(UseAsked{ticket, request});
  return ticket;
}

Engine::UseOutcome Engine::WaitForUse(Ticket ticket, bool closed, absl::Time deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto known = [&] {
    const UseOutcome& use = uses_[ticket];
    return stopping_ || use.refused || (closed ? use.closed : use.granted);
  };
  if (deadline == absl::InfiniteFuture()) {
    changed_.wait(lock, known);
  } else {
    changed_.wait_until(lock, absl::ToChronoTime(deadline), known);
  }
  return uses_[ticket];
}

void Engine::Forget(Ticket ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uses_.erase(ticket);
}

absl::Status Engine::WaitReady(absl::Time deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto ready = [this] {
    if (refused_for_good_ || no_broker_) return true;
    if (!session_.attached() || !session_.refused().empty()) return false;
    for (const auto& [name, component] : components_) {
      if (place_errors_.contains(name)) return true;
      if (!session_.fixed_placed(name)) return false;
    }
    return true;
  };
  const bool in_time = changed_.wait_until(
      lock, absl::ToChronoTime(std::min(deadline, absl::Now() + absl::Hours(24 * 365))), ready);
  if (refused_for_good_) return last_refusal_;
  for (const auto& [name, status] : place_errors_) return status;
  if (in_time) return absl::OkStatus();
  for (const auto& [name, message] : session_.refused()) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("no session with the broker at ", options_.address,
                   last_refusal_.ok() ? "" : absl::StrCat(" (", last_refusal_.ToString(), ")"),
                   ". Is vram-brokerd running, and is this its address?"));
}

bool Engine::WaitReported(absl::Time deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, absl::ToChronoTime(deadline), [this] {
    return stopping_ || !session_.attached() || session_.reported();
  });
}

bool Engine::attached() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return session_.attached();
}

uint64_t Engine::WaitSession(absl::Time deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, absl::ToChronoTime(deadline),
                      [this] { return stopping_ || refused_for_good_ || session_.attached(); });
  return session_.session_id();
}

std::string Engine::NewRequestId() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return absl::StrCat("call-", getpid(), "-", ++last_request_);
}

}  // namespace vrambroker::client
