#include "tests/unit/server/server_fixture.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {

v1::Component MakeComponent(const std::string& name, int layers) {
  v1::Component component;
  component.set_name(name);
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(layers);
  run->set_layer_bytes(kMiB);
  return component;
}

Session::Session(const std::shared_ptr<grpc::Channel>& channel, const v1::AttachRequest& request)
    : stub_(v1::VramBroker::NewStub(channel)), reader_(stub_->Attach(&context_, request)) {
  if (!reader_->Read(&first_)) first_.Clear();
}

Session::~Session() {
  context_.TryCancel();
  Finish();
}

grpc::Status Session::Finish() {
  if (finished_) return grpc::Status::OK;
  finished_ = true;
  v1::Directive ignored;
  while (reader_->Read(&ignored)) {
  }
  return reader_->Finish();
}

grpc::Status Session::BeginUse(const std::string& request_id, v1::BeginUseResponse* response,
                               int64_t activation_bytes) {
  grpc::ClientContext context;
  v1::BeginUseRequest request;
  request.set_session_id(id());
  request.set_request_id(request_id);
  request.set_component("c");
  request.set_activation_bytes(activation_bytes);
  return stub_->BeginUse(&context, request, response);
}

grpc::Status Session::EndUse(const std::string& request_id, uint64_t use_id, int held,
                             uint64_t completed_generation, v1::EndUseResponse* response) {
  grpc::ClientContext context;
  v1::EndUseRequest request;
  request.set_session_id(id());
  request.set_request_id(request_id);
  request.set_use_id(use_id);
  request.mutable_snapshot()->set_sequence(++sequence_);
  v1::ComponentResidency* one = request.mutable_snapshot()->add_components();
  one->set_component("c");
  one->set_held_layers(held);
  one->set_completed_generation(completed_generation);
  one->set_fixed_placed(true);
  return stub_->EndUse(&context, request, response);
}

ServerTest::ServerTest() {
  static int count = 0;
  card_ = absl::StrCat("server-test-", getpid(), "-", ++count);
  // Short: a socket's path has 107 bytes.
  folder_ = absl::StrCat("/tmp/vb-", getpid(), "-", count);
  std::filesystem::create_directories(folder_);
}

ServerTest::~ServerTest() {
  server_.reset();
  std::filesystem::remove_all(folder_);
}

Options ServerTest::MakeOptions() const {
  Options options;
  options.listen.push_back({socket_path(), "", 0});
  options.lock_dir = folder_ + "/locks";
  options.emulated_devices.push_back({card_, kCapacity, 0, std::nullopt});
  options.reserve_bytes = 0;
  options.reading_interval = absl::Milliseconds(20);
  options.core.settling_time = absl::Milliseconds(50);
  options.core.load_ahead = false;  // the sessions of these tests follow no directives
  return options;
}

void ServerTest::Start(const Options& options) {
  ServerExtras extras;
  extras.log_descriptor = -1;
  auto server = Server::Start(options, extras);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
}

std::shared_ptr<grpc::Channel> ServerTest::Connect() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + socket_path(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

v1::AttachRequest ServerTest::MakeAttach(const std::string& worker, int layers) const {
  v1::AttachRequest request;
  request.set_worker(worker);
  request.set_attach_number(1);
  if (layers > 0) *request.add_components() = MakeComponent("c", layers);
  return request;
}

v1::Picture ServerTest::GetPicture() const {
  auto stub = v1::BrokerAdmin::NewStub(Connect());
  grpc::ClientContext context;
  v1::Picture picture;
  const grpc::Status status = stub->GetPicture(&context, {}, &picture);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return picture;
}

v1::SessionState ServerTest::StateOf(const std::string& worker) const {
  const v1::Picture picture = GetPicture();
  for (const v1::SessionPicture& session : picture.sessions()) {
    if (session.worker() == worker) return session.state();
  }
  return v1::SESSION_STATE_UNSPECIFIED;
}

OtherProcess::OtherProcess(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  descriptor_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int done[2];
  EXPECT_EQ(pipe(done), 0);
  pid_ = fork();
  if (pid_ == 0) {  // only system calls from here on: other threads may hold any lock
    const int rc =
        connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    const char ok = rc == 0 ? '1' : '0';
    if (write(done[1], &ok, 1) != 1) _exit(1);
    close(descriptor_);
    while (true) pause();
  }
  char ok = 0;
  EXPECT_EQ(read(done[0], &ok, 1), 1);
  EXPECT_EQ(ok, '1');
  close(done[0]);
  close(done[1]);
}

OtherProcess::~OtherProcess() {
  Kill();
  if (descriptor_ >= 0) close(descriptor_);
}

std::shared_ptr<grpc::Channel> OtherProcess::channel() {
  fcntl(descriptor_, F_SETFL, O_NONBLOCK);
  const int descriptor = descriptor_;
  descriptor_ = -1;  // the channel closes it
  return grpc::CreateInsecureChannelFromFd("other-process", descriptor);
}

void OtherProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace vrambroker::server
