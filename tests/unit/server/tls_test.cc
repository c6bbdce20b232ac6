// TLS and roles, with certificates of real CAs.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/observe/process_watch.h"
#include "broker/server/method_roles.h"
#include "tests/poll.h"
#include "tests/test_ca.h"
#include "tests/unit/server/server_fixture.h"

namespace vrambroker::server {
namespace {

using grpc::StatusCode;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Lines of a PEM file that hold what it is about.
std::vector<std::string> SecretLines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.size() > 20 && line[0] != '-') lines.push_back(line);
  }
  return lines;
}

// Every method of both services, as the contract has them.
std::vector<const google::protobuf::MethodDescriptor*> AllMethods() {
  std::vector<const google::protobuf::MethodDescriptor*> all;
  for (const auto* file :
       {v1::AttachRequest::descriptor()->file(), v1::Picture::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        all.push_back(file->service(s)->method(m));
      }
    }
  }
  return all;
}

class TlsTest : public ServerTest {
 protected:
  TlsTest() : folder_(MakeFolder()), ca_(folder_ + "/ca") {
    broker_ = ca_.Issue("broker", kBrokerNames);
    log_ = fopen(LogPath().c_str(), "w");
  }
  ~TlsTest() override {
    server_.reset();
    fclose(log_);
    std::filesystem::remove_all(folder_);
  }

  void StartTls(const TlsFiles& files) {
    Options options = MakeOptions();
    options.listen.push_back({"", "127.0.0.1", 0});
    options.tls = files;
    ServerExtras extras;
    extras.log_descriptor = fileno(log_);
    auto server = Server::Start(options, extras);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void StartTls() { StartTls({broker_.cert, broker_.key, ca_.cert()}); }

  std::string folder() const { return folder_; }
  std::string Log() const { return ReadFile(LogPath()); }
  std::string address() const { return server_->addresses()[1]; }

  // A connection of its own.
  std::shared_ptr<grpc::Channel> Connect(const TestCa& ca, const TestCertificate& own) const {
    return ConnectWith({ReadFile(ca.cert()), ReadFile(own.key), ReadFile(own.cert)});
  }
  std::shared_ptr<grpc::Channel> ConnectWith(const grpc::SslCredentialsOptions& options) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address(), grpc::SslCredentials(options), arguments);
  }

  // A call with an empty request, to any method; a stream is left after a second.
  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                           const google::protobuf::MethodDescriptor* method) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(
        absl::Now() + (method->server_streaming() ? absl::Seconds(1) : absl::Seconds(10))));
    grpc::CompletionQueue queue;
    const grpc::Slice empty("", 0);
    auto call = stub.PrepareUnaryCall(
        &context, absl::StrCat("/", method->service()->full_name(), "/", method->name()),
        grpc::ByteBuffer(&empty, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer received;
    grpc::Status status;
    call->Finish(&received, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }
  static grpc::Status Look(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    v1::Picture picture;
    return v1::BrokerAdmin::NewStub(channel)->GetPicture(&context, {}, &picture);
  }

  const std::string folder_;
  const TestCa ca_;
  TestCertificate broker_;

 private:
  static std::string MakeFolder() {
    std::string name = "/tmp/vb-tls-XXXXXX";
    return mkdtemp(name.data());
  }
  std::string LogPath() const { return folder_ + "/log"; }

  FILE* log_ = nullptr;
};

TEST(MethodRoles, EveryMethodOfBothServicesIsInTheTableOnce) {
  std::vector<std::string> declared, listed;
  for (const auto* method : AllMethods()) {
    declared.push_back(absl::StrCat(method->service()->name(), ".", method->name()));
  }
  for (const MethodRoles& entry : kMethodRoles) {
    listed.emplace_back(entry.method);
    EXPECT_FALSE(entry.any_of.empty()) << entry.method;
  }
  EXPECT_THAT(listed, testing::UnorderedElementsAreArray(declared));
}

TEST_F(TlsTest, ARoleMayCallWhatTheTableSaysAndNothingElse) {
  StartTls();
  for (const Role role : {Role::kWorker, Role::kDriver, Role::kViewer, Role::kAdmin}) {
    const std::string name(ToString(role));
    const auto channel = Connect(ca_, ca_.IssueRole(name));
    for (const auto* method : AllMethods()) {
      const std::string called = absl::StrCat(method->service()->name(), ".", method->name());
      RoleSet needed;
      for (const MethodRoles& entry : kMethodRoles) {
        if (entry.method == called) needed = entry.any_of;
      }
      const grpc::Status status = Call(channel, method);
      EXPECT_NE(status.error_code(), StatusCode::UNIMPLEMENTED) << called;
      EXPECT_NE(status.error_code(), StatusCode::UNAUTHENTICATED) << called;
      if (needed.Has(role)) {
        EXPECT_NE(status.error_code(), StatusCode::PERMISSION_DENIED)
            << name << " " << called << ": " << status.error_message();
        continue;
      }
      EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED) << name << " " << called;
      EXPECT_THAT(status.error_message(),
                  AllOf(HasSubstr(called + " needs the role "), HasSubstr(" has: " + name)));
    }
  }
}

TEST_F(TlsTest, ACertificateWithoutARoleMayCallNothing) {
  StartTls();
  const auto channel = Connect(ca_, ca_.Issue("guest", "DNS:guest,URI:vram-broker:role/boss"));
  for (const auto* method : AllMethods()) {
    const grpc::Status status = Call(channel, method);
    EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED) << method->name();
    EXPECT_THAT(status.error_message(), AllOf(HasSubstr("CN=guest"), HasSubstr(" has: none")));
  }
}

TEST_F(TlsTest, ACertificateMayGiveSeveralRoles) {
  StartTls();
  const auto channel = Connect(
      ca_, ca_.Issue("both", "URI:vram-broker:role/worker,URI:vram-broker:role/viewer,DNS:both"));
  EXPECT_TRUE(Look(channel).ok());
  Session session(channel, MakeAttach("both", 8));
  ASSERT_TRUE(session.first().has_welcome());
  v1::BeginUseResponse begun;
  EXPECT_TRUE(session.BeginUse("b1", &begun).ok());
  EXPECT_TRUE(WaitFor([&] { return Log().find(" attach worker=both ") != std::string::npos; }));
  EXPECT_THAT(Log(), HasSubstr("CN=both"));
}

TEST_F(TlsTest, ADriverBringsNoComponents) {
  StartTls();
  const auto channel = Connect(ca_, ca_.IssueRole("driver"));
  Session without(channel, MakeAttach("driver", 0));
  EXPECT_TRUE(without.first().has_welcome());
  Session with(channel, MakeAttach("worker", 8));
  const grpc::Status status = with.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("Attach with components needs the role worker"));
}

TEST_F(TlsTest, WithoutAGoodCertificateTheHandshakeFails) {
  StartTls();
  const TestCa other(folder() + "/other");
  EXPECT_TRUE(Look(Connect(ca_, ca_.IssueRole("viewer"))).ok());
  const TestCertificate expired = ca_.Issue("expired", "URI:vram-broker:role/viewer", -1);
  EXPECT_EQ(Look(Connect(ca_, expired)).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Look(Connect(ca_, other.IssueRole("viewer"))).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Look(ConnectWith({ReadFile(ca_.cert()), "", ""})).error_code(),
            StatusCode::UNAVAILABLE);
  const auto plain = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(Look(plain).error_code(), StatusCode::UNAVAILABLE);
  // And a client that knows another CA does not take this broker for its own.
  EXPECT_EQ(Look(Connect(other, ca_.IssueRole("viewer"))).error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, ASessionIsUsedByTheIdentityThatAttachedItOnly) {
  StartTls();
  const auto names = "URI:vram-broker:role/worker";
  Session mine(Connect(ca_, ca_.Issue("mine", names)), MakeAttach("mine", 8));
  ASSERT_TRUE(mine.first().has_welcome());
  Session local(ServerTest::Connect(), MakeAttach("local", 8));
  ASSERT_TRUE(local.first().has_welcome());
  v1::BeginUseRequest request;
  request.set_component("c");
  const auto begin = [&](const std::shared_ptr<grpc::Channel>& channel, uint64_t session,
                         const std::string& id) {
    grpc::ClientContext context;
    request.set_session_id(session);
    request.set_request_id(id);
    v1::BeginUseResponse response;
    return v1::VramBroker::NewStub(channel)->BeginUse(&context, request, &response);
  };
  const auto theirs = Connect(ca_, ca_.Issue("theirs", names));
  const grpc::Status stolen = begin(theirs, mine.id(), "1");
  EXPECT_EQ(stolen.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(stolen.error_message(), AllOf(HasSubstr("CN=mine"), HasSubstr("CN=theirs")));
  EXPECT_THAT(begin(theirs, local.id(), "2").error_message(),
              HasSubstr("was attached over a Unix socket, the call came over TLS"));
  EXPECT_THAT(begin(ServerTest::Connect(), mine.id(), "3").error_message(),
              HasSubstr("was attached over TLS, the call came over a Unix socket"));
  // A renewed certificate is of the same identity.
  EXPECT_TRUE(begin(Connect(ca_, ca_.Issue("mine", names)), mine.id(), "4").ok());
}

TEST_F(TlsTest, NobodyAttachesAsAnothersProcess) {
  StartTls();
  const auto names = "URI:vram-broker:role/worker";
  v1::AttachRequest request = MakeAttach("mine", 8);
  request.set_pid(4242);
  request.set_start_time_ticks(7);
  const auto first = std::make_unique<Session>(Connect(ca_, ca_.Issue("mine", names)), request);
  ASSERT_TRUE(first->first().has_welcome());
  const auto refusal = [](const std::shared_ptr<grpc::Channel>& channel,
                          const v1::AttachRequest& attach) {
    Session session(channel, attach);
    EXPECT_FALSE(session.first().has_welcome());
    return session.Finish();
  };
  request.set_attach_number(2);
  const auto theirs = Connect(ca_, ca_.Issue("theirs", names));
  const grpc::Status taken = refusal(theirs, request);
  EXPECT_EQ(taken.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(taken.error_message(), AllOf(HasSubstr("'mine'"), HasSubstr("CN=theirs")));
  EXPECT_EQ(StateOf("mine"), v1::SESSION_STATE_ATTACHED);

  // Nor as one that the kernel knows, when its stream is gone as well.
  { Session local(ServerTest::Connect(), MakeAttach("local", 8)); }
  v1::AttachRequest claim = MakeAttach("local", 8);
  claim.set_pid(getpid());
  claim.set_start_time_ticks(*observe::ProcessStartTime(getpid()));
  claim.set_attach_number(2);
  EXPECT_THAT(refusal(theirs, claim).error_message(), HasSubstr("over a Unix socket"));

  // Who it was before may.
  Session again(Connect(ca_, ca_.Issue("mine", names)), request);
  EXPECT_TRUE(again.first().has_welcome());
}

// As an orchestrator renews a secret: a new folder, and one symbolic link that is replaced.
class RenewalTest : public TlsTest {
 protected:
  void Serve(const std::string& version, const TestCertificate& own, const std::string& client_ca) {
    const std::filesystem::path to = folder() + "/" + version;
    std::filesystem::create_directories(to);
    std::filesystem::copy_file(own.cert, to / "tls.crt");
    std::filesystem::copy_file(own.key, to / "tls.key");
    std::filesystem::copy_file(client_ca, to / "ca.crt");
    std::filesystem::create_directory_symlink(to, folder() + "/next");
    std::filesystem::rename(folder() + "/next", folder() + "/now");
  }
  TlsFiles Files() const {
    const std::string now = folder() + "/now/";
    return {now + "tls.crt", now + "tls.key", now + "ca.crt"};
  }
};

TEST_F(RenewalTest, RenewedFilesServeTheNextConnection) {
  Serve("1", broker_, ca_.cert());
  StartTls(Files());
  const TestCertificate old_viewer = ca_.IssueRole("viewer");
  const auto open = Connect(ca_, old_viewer);
  EXPECT_TRUE(Look(open).ok());

  const TestCa renewed(folder() + "/renewed");
  Serve("2", renewed.Issue("broker", kBrokerNames), renewed.cert());
  EXPECT_TRUE(Look(Connect(renewed, renewed.IssueRole("viewer"))).ok());
  EXPECT_EQ(Look(Connect(renewed, old_viewer)).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Look(Connect(ca_, old_viewer)).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Look(open).ok());  // what is open stays
  EXPECT_TRUE(WaitFor([&] { return Log().find(" tls_renewed ") != std::string::npos; })) << Log();
}

TEST_F(RenewalTest, BrokenFilesAreLoggedAndChangeNothing) {
  Serve("1", broker_, ca_.cert());
  StartTls(Files());
  const TestCertificate viewer = ca_.IssueRole("viewer");
  const TestCertificate other = ca_.Issue("other", kBrokerNames);
  Serve("mismatch", {broker_.cert, other.key}, ca_.cert());
  EXPECT_TRUE(Look(Connect(ca_, viewer)).ok());
  EXPECT_TRUE(WaitFor([&] {
    return Log().find("is not the key of the first certificate in") != std::string::npos;
  })) << Log();
  Serve("expired", ca_.Issue("late", kBrokerNames, -1), ca_.cert());
  EXPECT_TRUE(Look(Connect(ca_, viewer)).ok());
  EXPECT_TRUE(WaitFor([&] { return Log().find("is valid from") != std::string::npos; })) << Log();
  std::filesystem::remove(folder() + "/now");
  EXPECT_TRUE(Look(Connect(ca_, viewer)).ok());
  EXPECT_TRUE(WaitFor([&] { return Log().find("No such file") != std::string::npos; })) << Log();
  Serve("2", other, ca_.cert());
  EXPECT_TRUE(Look(Connect(ca_, viewer)).ok());
  EXPECT_TRUE(WaitFor([&] { return Log().find(" tls_renewed ") != std::string::npos; })) << Log();

  ASSERT_FALSE(SecretLines(broker_.key).empty());
  for (const std::string& secret : SecretLines(broker_.key))
    EXPECT_THAT(Log(), Not(HasSubstr(secret)));
  for (const std::string& secret : SecretLines(other.key))
    EXPECT_THAT(Log(), Not(HasSubstr(secret)));
}

TEST_F(TlsTest, APortIsOfOneBrokerOnly) {
  StartTls();
  Options options;
  options.reserve_bytes = 0;
  options.listen.push_back(*ParseAddress(address()));
  options.tls = {broker_.cert, broker_.key, ca_.cert()};
  options.lock_dir = folder() + "/locks";
  options.emulated_devices.push_back({card() + "-2", kCapacity, 0, std::nullopt});
  ServerExtras extras;
  extras.log_descriptor = -1;
  const auto second = Server::Start(options, extras);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("cannot listen at " + address()));
}

}  // namespace
}  // namespace vrambroker::server
