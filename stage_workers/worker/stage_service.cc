#include "stage_workers/worker/stage_service.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/card/card.h"

namespace vrambroker::worker {
namespace {

// Threads of the server: more calls than this at a time wait in the transport.
constexpr int kMaxThreads = 64;
// For the answer of the last call to leave.
constexpr absl::Duration kLastAnswer = absl::Milliseconds(200);
constexpr size_t kBlockBytes = card::kLaneBlock * sizeof(uint64_t);
constexpr char kUnixPrefix[] = "unix:";
constexpr char kLockSuffix[] = ".lock";
// A lock whose file was removed while it was taken is tried again so often.
constexpr int kLockAttempts = 16;

// The codes of absl are those of gRPC.
grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status OutOfRange(const char* field, int64_t value, const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " given; ", allowed, " is allowed"));
}

// Calls under way. gRPC's own orderly shutdown also waits for idle clients to hang up, which may be
// never.
class RunningCalls {
 public:
  class Entry {
   public:
    explicit Entry(RunningCalls* calls) : calls_(calls), entered_(calls->Enter()) {}
    ~Entry() {
      if (entered_) calls_->Leave();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    bool entered() const { return entered_; }

   private:
    RunningCalls* const calls_;
    const bool entered_;
  };

  // Nobody enters any more; returns when nobody is in, or after `patience`.
  void Close(absl::Duration patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    changed_.wait_for(lock, absl::ToChronoNanoseconds(patience), [this] { return running_ == 0; });
  }

 private:
  bool Enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return false;
    ++running_;
    return true;
  }
  void Leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int running_ = 0;
};

grpc::Status Stopping() {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is stopping");
}

class Service final : public v1::StageWorker::Service {
 public:
  explicit Service(Worker* worker) : worker_(worker) {}

  RunningCalls& calls() { return calls_; }

  grpc::Status RunStage(grpc::ServerContext* context, const v1::RunStageRequest* request,
                        v1::RunStageResponse* response) override {
    const RunningCalls::Entry entry(&calls_);
    if (!entry.entered()) return Stopping();
    absl::StatusOr<StageRequest> parsed =
        ToStageRequest(*request, absl::Now(), absl::FromChrono(context->deadline()));
    if (!parsed.ok()) return ToGrpc(parsed.status());
    parsed->cancelled = [context] { return context->IsCancelled(); };
    int layers = 0;
    absl::StatusOr<StageResult> result = worker_->RunStage(request->component(), *parsed, &layers);
    if (!result.ok()) return ToGrpc(result.status());
    *response = ToResponse(*result, layers);
    return grpc::Status::OK;
  }

  grpc::Status ReleaseAll(grpc::ServerContext*, const v1::ReleaseAllRequest*,
                          v1::ReleaseAllResponse* response) override {
    const RunningCalls::Entry entry(&calls_);
    if (!entry.entered()) return Stopping();
    const absl::StatusOr<int64_t> released = worker_->ReleaseAll();
    if (!released.ok()) return ToGrpc(released.status());
    response->set_released_bytes(*released);
    return grpc::Status::OK;
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::StageWorkerStatus* response) override {
    const RunningCalls::Entry entry(&calls_);
    if (!entry.entered()) return Stopping();
    *response = worker_->Status();
    return grpc::Status::OK;
  }

 private:
  Worker* const worker_;
  RunningCalls calls_;
};

// The path of unix:PATH, fit for a socket.
absl::StatusOr<std::string> SocketPath(const std::string& address) {
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  const size_t prefix = std::strlen(kUnixPrefix);
  if (address.rfind(kUnixPrefix, 0) != 0 || address.size() == prefix ||
      address.size() - prefix > kMaxPath) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: '", address,
                                                   "' given; unix:PATH with a path of 1 to ",
                                                   kMaxPath, " bytes is allowed"));
  }
  return address.substr(prefix);
}

// Whether a descriptor's file is the one that lies at a path.
bool LiesAt(int fd, const std::string& path) {
  struct stat own = {};
  struct stat there = {};
  return fstat(fd, &own) == 0 && stat(path.c_str(), &there) == 0 && own.st_ino == there.st_ino &&
         own.st_dev == there.st_dev;
}

// A descriptor that holds the lock of a socket's path. Whoever holds it removes the file at its
// end, so that a lock counts only on the file that lies there.
absl::StatusOr<int> LockPath(const std::string& path) {
  const std::string lock = path + kLockSuffix;
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    const int fd = open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
      return absl::UnavailableError(
          absl::StrCat("--listen: cannot make ", lock, ": ", std::strerror(errno)));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      break;
    }
    if (LiesAt(fd, lock)) return fd;
    close(fd);
  }
  return absl::AlreadyExistsError(
      absl::StrCat("--listen: another process serves ", path, " (it holds ", lock, ")"));
}

}  // namespace

absl::StatusOr<StageRequest> ToStageRequest(const v1::RunStageRequest& request, absl::Time now,
                                            absl::Time call_deadline) {
  if (request.passes() < 0 || request.passes() > kMaxPasses) {
    return OutOfRange("passes", request.passes(), "0 (as 1) to 1000000");
  }
  if (request.activation_bytes() < 0) {
    return OutOfRange("activation_bytes", request.activation_bytes(), "0 or more");
  }
  if (request.declared_activation_bytes() < 0) {
    return OutOfRange("declared_activation_bytes", request.declared_activation_bytes(),
                      "0 or more");
  }
  if (request.shape().size() > kMaxShapeBytes) {
    return OutOfRange("shape, bytes", static_cast<int64_t>(request.shape().size()), "0 to 64");
  }
  if (request.run_id() != 0 && (request.stage() < 0 || request.stage() >= kMaxStages)) {
    return OutOfRange("stage", request.stage(), "0 to 63");
  }
  const std::string& bytes = request.activations();
  if (bytes.empty() || bytes.size() > kMaxActivationMessage || bytes.size() % kBlockBytes != 0) {
    return OutOfRange("activations, bytes", static_cast<int64_t>(bytes.size()),
                      "a multiple of 64 from 64 to 1048576");
  }
  StageRequest result;
  result.run_id = request.run_id();
  result.stage = request.run_id() == 0 ? 0 : request.stage();
  result.passes = std::max(request.passes(), 1);
  result.activation_bytes = request.activation_bytes();
  result.declared_activation_bytes = request.declared_activation_bytes();
  result.shape = request.shape();
  result.activation_is_exact = request.activation_is_exact();
  result.warm_up = request.warm_up();
  result.activations.resize(bytes.size() / sizeof(uint64_t));
  std::memcpy(result.activations.data(), bytes.data(), bytes.size());
  const absl::Duration wait = absl::Seconds(request.wait_at_most().seconds()) +
                              absl::Nanoseconds(request.wait_at_most().nanos());
  if (wait < absl::ZeroDuration()) {
    return OutOfRange("wait_at_most, seconds", request.wait_at_most().seconds(), "0 or more");
  }
  result.wait_until =
      wait == absl::ZeroDuration() ? call_deadline : std::min(call_deadline, now + wait);
  return result;
}

v1::RunStageResponse ToResponse(const StageResult& result, int layers) {
  v1::RunStageResponse response;
  response.set_activations(reinterpret_cast<const char*>(result.activations.data()),
                           result.activations.size() * sizeof(uint64_t));
  response.set_seconds(absl::ToDoubleSeconds(result.seconds));
  response.set_stall_seconds(absl::ToDoubleSeconds(result.stall));
  response.set_bytes_to_device(result.bytes_to_device);
  response.set_resident_layers(result.resident_layers);
  response.set_kept_layers(result.kept_layers);
  response.set_component_layers(layers);
  response.set_waited_seconds(absl::ToDoubleSeconds(result.waited));
  response.set_peak_bytes(result.peak_bytes);
  response.set_brokered(result.brokered);
  return response;
}

class StageServer::Impl {
 public:
  Impl(Worker* worker, int lock, std::string path)
      : service(worker), lock_fd(lock), socket_path(std::move(path)) {}
  ~Impl() {
    server.reset();
    if (served) unlink(socket_path.c_str());
    unlink((socket_path + kLockSuffix).c_str());
    close(lock_fd);
  }

  Service service;
  const int lock_fd;
  const std::string socket_path;
  std::unique_ptr<grpc::Server> server;
  // Whether the socket is ours.
  bool served = false;
};

StageServer::StageServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StageServer::~StageServer() { Stop(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<StageServer>> StageServer::Start(Worker* worker,
                                                                const std::string& address) {
  const absl::StatusOr<std::string> path = SocketPath(address);
  if (!path.ok()) return path.status();
  const absl::StatusOr<int> lock = LockPath(*path);
  if (!lock.ok()) return lock.status();
  auto impl = std::make_unique<Impl>(worker, *lock, *path);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&impl->service);
  builder.SetMaxReceiveMessageSize(static_cast<int>(2 * kMaxActivationMessage));
  builder.SetResourceQuota(grpc::ResourceQuota("stage-worker").SetMaxThreads(kMaxThreads));
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) {
    return absl::UnavailableError(absl::StrCat("--listen: cannot listen on ", address));
  }
  impl->served = true;
  return std::unique_ptr<StageServer>(new StageServer(std::move(impl)));
}

std::vector<std::string> StageServer::Files() const {
  return {impl_->socket_path, impl_->socket_path + kLockSuffix};
}

void StageServer::Stop(absl::Duration grace) {
  if (impl_ == nullptr || impl_->server == nullptr) return;
  impl_->service.calls().Close(grace);
  impl_->server->Shutdown(absl::ToChronoTime(absl::Now() + std::min(grace, kLastAnswer)));
  impl_->server->Wait();
}

}  // namespace vrambroker::worker
