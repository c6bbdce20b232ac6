// Callers that may not, a broker that drains, and what is left out.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "broker/ctl/conformance_checks.h"

namespace vrambroker::ctl {
namespace {

using grpc::StatusCode;

// A process that connects to a Unix socket; its descriptor is shared with this one, which speaks
// through it in the other's name. It ends with this.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& socket_path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_path.size() >= sizeof(address.sun_path)) return;
    std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
    int done[2];
    if (pipe2(done, O_CLOEXEC) != 0) return;
    const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_ = fork();
    if (pid_ == 0) {  // only system calls from here on: other threads may hold any lock
      const char ok =
          connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
      if (write(done[1], &ok, 1) != 1) _exit(1);
      close(done[1]);
      close(descriptor);
      while (true) pause();
    }
    close(done[1]);
    char ok = 0;
    const bool connected = pid_ > 0 && read(done[0], &ok, 1) == 1 && ok != 0;
    close(done[0]);
    if (connected && fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0) {
      channel_ = grpc::CreateInsecureChannelFromFd("other-process", descriptor);
    } else {
      close(descriptor);
    }
  }
  ~OtherProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // Null: it could not connect.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  pid_t pid_ = -1;
  std::shared_ptr<grpc::Channel> channel_;
};

void CheckOtherProcess(ConformanceBed* bed, TestWorker* worker, const std::string& socket_path) {
  OtherProcess other(socket_path);
  if (other.channel() == nullptr) {
    bed->report->NotProvoked("a call of another process in this session", "PERMISSION_DENIED",
                             "no second process could connect");
    return;
  }
  const std::unique_ptr<BrokerStub> stub = v1::VramBroker::NewStub(other.channel());
  ConformanceBed theirs = *bed;
  theirs.broker = stub.get();
  const std::string component = worker->request().components(0).name();
  v1::BeginUseResponse begun;
  bed->report->Code("BeginUse of another process in this session", StatusCode::PERMISSION_DENIED,
                    theirs.Call(&BrokerStub::BeginUse, worker->Use(component), &begun),
                    "session_id");
  v1::EndUseResponse ended;
  bed->report->Code("EndUse of another process in this session", StatusCode::PERMISSION_DENIED,
                    theirs.Call(&BrokerStub::EndUse, worker->End(bed->NewId()), &ended),
                    "session_id");
  v1::AttachRequest request = worker->request();
  request.set_attach_number(request.attach_number() + 1);
  SessionStream stream(theirs, request);
  bed->report->Code("Attach of another process under this one's name",
                    StatusCode::FAILED_PRECONDITION, stream.opened(), "worker");
  v1::ReportResidencyResponse reported;
  bed->report->Code("ReportResidency of this process then", StatusCode::OK,
                    worker->Report(&reported));
}

void CheckRoles(ConformanceBed* bed) {
  v1::ListRunsResponse runs;
  const grpc::Status status =
      Ask(bed->admin, &v1::BrokerAdmin::Stub::ListRuns, v1::ListRunsRequest(), &runs, bed->timeout);
  if (status.ok()) {
    bed->report->NotProvoked("a call without the role for it", "PERMISSION_DENIED",
                             "this caller has all roles that can be tried without harm; a "
                             "certificate without viewer and admin would show it");
    return;
  }
  bed->report->Code("ListRuns without the role for it", StatusCode::PERMISSION_DENIED, status,
                    "role");
}

}  // namespace

void CheckAccess(ConformanceBed* bed, const std::string& socket_path) {
  bed->report->SetPart("access");
  CheckRoles(bed);
  if (socket_path.empty()) {
    bed->report->NotProvoked("a call of another caller in this session", "PERMISSION_DENIED",
                             "over TCP a second certificate would be needed");
  } else {
    TestWorker worker(bed, bed->Name("owner"), {bed->Component(bed->Name("owned"))});
    if (bed->report->Code("Attach", StatusCode::OK, worker.Attach())) {
      CheckOtherProcess(bed, &worker, socket_path);
    }
  }
  bed->report->NotProvoked("a caller without credentials", "UNAUTHENTICATED",
                           "without a certificate of the client CA a connection fails before any "
                           "call; over a Unix socket the kernel knows every peer");
}

void NoteWhatIsLeftOut(ConformanceBed* bed, bool drained) {
  bed->report->SetPart("left out");
  bed->report->NotProvoked("as many sessions as a broker takes", "RESOURCE_EXHAUSTED",
                           "others could not attach meanwhile");
  bed->report->NotProvoked("as many waiting uses as a broker takes", "RESOURCE_EXHAUSTED",
                           "others would wait behind them");
  bed->report->NotProvoked("calls of a broker that recovers", "UNAVAILABLE",
                           "it would have to be restarted");
  if (!drained) {
    bed->report->NotProvoked("BeginUse of a broker that drains", "UNAVAILABLE",
                             "nobody would get a use until it is restarted; --drain does it");
  }
}

void CheckDrained(ConformanceBed* bed) {
  bed->report->SetPart("drained");
  const std::string component = bed->Name("drained");
  TestWorker worker(bed, bed->Name("drained-worker"), {bed->Component(component)});
  if (!bed->report->Code("Attach", StatusCode::OK, worker.Attach())) return;
  v1::BeginUseResponse begun;
  v1::EndUseResponse ended;
  bed->report->Code("BeginUse", StatusCode::OK, worker.Begin(worker.Use(component), &begun));
  v1::DrainResponse drained;
  const grpc::Status status =
      Ask(bed->admin, &v1::BrokerAdmin::Stub::Drain, v1::DrainRequest(), &drained, bed->timeout);
  if (bed->report->Code("Drain", StatusCode::OK, status)) {
    v1::BeginUseResponse refused;
    bed->report->Code("BeginUse of a broker that drains", StatusCode::UNAVAILABLE,
                      worker.Begin(worker.Use(component), &refused));
  }
  bed->report->Code("EndUse of what ran before", StatusCode::OK,
                    worker.Finish(worker.End(begun.use_id()), &ended));
}

}  // namespace vrambroker::ctl
