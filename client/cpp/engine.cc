#include "client/cpp/engine.h"

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cpp/credentials.h"
#include "client/cpp/defaults.h"
#include "client/cpp/host_memory.h"

namespace vrambroker::client {
namespace {

// While there is no session, the device's lock is looked at this often.
constexpr absl::Duration kLookForBroker = absl::Milliseconds(200);
// A driver's call is tried for this long after its session was lost: runs go on without it.
constexpr absl::Duration kDriverPatience = absl::Milliseconds(250);
// The same before there was a session at all.
constexpr absl::Duration kFirstSessionPatience = absl::Seconds(10);

SessionOptions ToSession(const ClientOptions& options) {
  SessionOptions s;
  s.worker = options.worker;
  s.pod = PlaceFrom("POD_NAME");
  s.pod_namespace = PlaceFrom("POD_NAMESPACE");
  s.container = PlaceFrom("CONTAINER_NAME");
  s.pid = static_cast<int32_t>(getpid());
  s.start_time_ticks = OwnStartTimeTicks();
  if (!options.components.empty()) s.host_memory = ReadHostMemory("");
  for (const ManagedComponent* c : options.components) s.components.push_back(c->Describe());
  for (const auto& [name, layers] : options.configured_resident) {
    s.configured_resident[name] = layers;
  }
  s.retry_interval = options.retry_interval;
  return s;
}

}  // namespace

Engine::Engine(ClientOptions options, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : options_(std::move(options)),
      notices_(options_.address, options_.lock_dir, options_.device_uuid,
               WhyUnreachable(options_.address, options_.tls)),
      session_(ToSession(options_)) {
  for (ManagedComponent* c : options_.components) components_[c->Describe().name()] = c;
  grpc::ChannelArguments arguments;
  // The session decides when to try again; the channel only follows.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ =
      v1::VramBroker::NewStub(grpc::CreateCustomChannel(options_.address, credentials, arguments));
  poll_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  timer_ = std::thread([this] { RunTimer(); });
  if (options_.apply_thread) applier_ = std::thread([this] { RunApplier(); });
  if (options_.pool != nullptr) {
    Deliver(PoolChanged{options_.pool->pool_bytes(), options_.pool->pinned_host_bytes()});
  }
  Deliver(Connect{});
}

// First the threads that start calls, then the calls: each is counted before the one that led to it
// ends.
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
    CancelCalls();
    changed_.wait(lock, [this] { return calls_ == 0 && !carrying_out_; });
  }
  close(poll_fd_);
}

// ---- Steps and effects ----

void Engine::Deliver(const Event& event) {
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

void Engine::Do(const UseGranted& e) {
  const std::lock_guard<std::mutex> lock(mutex_);
  UseOutcome& use = uses_[e.ticket];
  use.granted = true;
  use.resident_layers = e.resident_layers;
  use.activation_bytes = e.activation_bytes;
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
  Notices::Lines lines;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    to_place_.insert(e.component);
    lines = notices_.Admitted(e.component);
  }
  Say(lines);
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
  Notices::Lines lines;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const absl::Time now = absl::Now();
    if (e.attached) no_broker_ = false;
    if (had_session_ && !e.attached) lost_at_ = now;
    had_session_ = e.attached;
    last_refusal_ = e.status;
    refused_for_good_ = !e.attached && e.for_good;
    lines = e.attached ? notices_.Attached(session_.session_id(), session_.broker_epoch(),
                                           NoticedComponents(), session_.refused(), now)
                       : notices_.NotAttached(e.status, !e.for_good, NoticedComponents(), now);
    if (stopping_) lines.clear();
    changed_.notify_all();
  }
  Say(lines);
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
  bool gone = lives.ok() && !*lives;
  Notices::Lines lines;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (session_.attached()) return;
    // Of a broker that is restarting the lock is free as well.
    gone = gone && absl::Now() - lost_at_ >= options_.restart_grace;
    no_broker_ = gone;
    if (!components_.empty()) lines = notices_.BrokerLives(!gone, NoticedComponents());
    changed_.notify_all();
  }
  Say(lines);
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
  if (!session_.refused().empty()) return absl::ResourceExhaustedError(Refusals());
  // A broker that refused is there: its own words say what to do.
  const bool silent = last_refusal_.ok() || absl::IsUnavailable(last_refusal_);
  return absl::DeadlineExceededError(
      absl::StrCat("no session with the broker at ", options_.address,
                   last_refusal_.ok() ? "" : absl::StrCat(" (", last_refusal_.ToString(), ")"),
                   silent ? ". Is vram-brokerd running, and is this its address?" : ""));
}

std::string Engine::WaitingFor() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (no_broker_) return "";
  if (!session_.attached()) {
    return absl::StrCat(
        "no session with the broker at ", options_.address,
        last_refusal_.ok() ? "" : absl::StrCat(" (", last_refusal_.ToString(), ")"));
  }
  if (!session_.refused().empty()) return Refusals();
  for (const auto& [name, component] : components_) {
    if (!session_.fixed_placed(name)) return absl::StrCat("placing ", name);
  }
  return "";
}

std::string Engine::Refusals() const {
  return absl::StrJoin(session_.refused(), "; ", [](std::string* out, const auto& refused) {
    absl::StrAppend(out, "the broker refused ", refused.second);
  });
}

Notices::Components Engine::NoticedComponents() const {
  Notices::Components components;
  for (const auto& [name, component] : components_) {
    components[name] = {session_.held(name), session_.layers(name), 0};
  }
  for (const auto& [name, configured] : options_.configured_resident) {
    const auto it = components.find(name);
    if (it != components.end()) it->second.configured = configured;
  }
  return components;
}

void Engine::Say(const Notices::Lines& lines) {
  if (!options_.notice) return;
  const std::lock_guard<std::mutex> lock(notice_mutex_);
  for (const std::string& line : lines) options_.notice(line);
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

SessionInfo Engine::session() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!session_.attached()) return {};
  return {session_.session_id(), session_.broker_epoch()};
}

absl::Time Engine::DriverGivesUpAt() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (session_.attached()) return absl::Now() + kDriverPatience;
  if (lost_at_ == absl::InfinitePast()) return created_ + kFirstSessionPatience;
  return lost_at_ + kDriverPatience;
}

SessionInfo Engine::WaitSession(absl::Time deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, absl::ToChronoTime(deadline),
                      [this] { return stopping_ || refused_for_good_ || session_.attached(); });
  if (!session_.attached()) return {};
  return {session_.session_id(), session_.broker_epoch()};
}

std::string Engine::NewRequestId() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return absl::StrCat("call-", getpid(), "-", ++last_request_);
}

}  // namespace vrambroker::client
