// The server as its operators see it: one owner, the picture, health, draining.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/observe/driver_probe.h"
#include "broker/server/decision_feed.h"
#include "broker/server/server.h"
#include "tests/poll.h"
#include "tests/unit/server/server_fixture.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

// Calls a unary method of a service whose messages are given as bytes of the wire.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer sent(&slice, 1);
  auto call = stub.PrepareUnaryCall(&context, method, sent, &queue);
  call->StartCall();
  grpc::ByteBuffer received;
  grpc::Status status;
  call->Finish(&received, &status, &call);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice whole;
  if (status.ok() && received.DumpToSingleSlice(&whole).ok()) {
    response->assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
  }
  return status;
}

// The health of a service ("": the whole): 1 serving, 2 not serving; 0 unknown.
int Health(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  std::string request, response;
  if (!service.empty()) {
    request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  }
  if (!CallRaw(channel, "/grpc.health.v1.Health/Check", request, &response).ok()) return 0;
  return response.size() == 2 ? response[1] : 0;
}

std::string RefusalOf(const Options& options) {
  ServerExtras extras;
  extras.log_descriptor = -1;
  auto second = Server::Start(options, extras);
  return second.ok() ? "it started" : std::string(second.status().message());
}

TEST_F(ServerTest, ASecondBrokerOnTheSocketIsRefusedAndNamesTheFirst) {
  Start();
  Options options = MakeOptions();
  options.emulated_devices[0].name += "-other";
  EXPECT_THAT(RefusalOf(options), HasSubstr(std::to_string(getpid())));
  Session session(Connect(), MakeAttach("w", 8));
  EXPECT_TRUE(session.first().has_welcome());
}

TEST_F(ServerTest, ASecondBrokerOnTheDeviceIsRefusedAndNamesTheFirst) {
  Start();
  Options options = MakeOptions();
  options.listen[0].path += "2";
  EXPECT_THAT(RefusalOf(options), HasSubstr("unix:" + socket_path()));
}

TEST_F(ServerTest, AStaleSocketIsReplacedAndAnotherFileIsNot) {
  {
    std::ofstream(socket_path()) << "precious";
    EXPECT_THAT(RefusalOf(MakeOptions()), HasSubstr("no socket"));
    ASSERT_EQ(unlink(socket_path().c_str()), 0);
  }
  const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path().c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(stale);
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  EXPECT_TRUE(session.first().has_welcome());
}

TEST_F(ServerTest, TheSocketHasTheModeThatWasGiven) {
  Options options = MakeOptions();
  options.socket_mode = 0600;
  Start(options);
  struct stat info;
  ASSERT_EQ(stat(socket_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ServerTest, RefusesGroupsAndReservesThatCannotBe) {
  Options options = MakeOptions();
  options.socket_group = "no-such-group-here";
  EXPECT_THAT(RefusalOf(options), HasSubstr("no-such-group-here"));
  options = MakeOptions();
  options.reserve_bytes = kCapacity;
  EXPECT_THAT(RefusalOf(options), HasSubstr("--reserve"));
}

TEST_F(ServerTest, HealthAndReflectionAnswer) {
  Start();
  const auto channel = Connect();
  EXPECT_EQ(Health(channel, ""), 1);
  EXPECT_EQ(Health(channel, "vrambroker.v1.VramBroker"), 1);
  EXPECT_EQ(Health(channel, "vrambroker.v1.BrokerAdmin"), 1);
  EXPECT_EQ(Health(channel, "no.such.Service"), 0);
  // list_services = "" of a ServerReflectionRequest; the stream takes one message as a unary call
  // does.
  std::string response;
  const grpc::Status status =
      CallRaw(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              std::string("\x3a\x00", 2), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response, HasSubstr("vrambroker.v1.VramBroker"));
  EXPECT_THAT(response, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(ServerTest, ReadingsShowWhatOthersUse) {
  Start();
  ASSERT_TRUE(WaitFor([&] { return GetPicture().devices(0).external_known(); }));
  EXPECT_EQ(GetPicture().devices(0).external_bytes(), 0);
  auto card = card::EmulatedCard::Open(this->card());
  ASSERT_TRUE(card.ok()) << card.status();
  auto buffer = (*card)->Allocate(10 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_TRUE(WaitFor([&] { return GetPicture().devices(0).external_bytes() >= 10 * kMiB; }));
  ASSERT_TRUE((*card)->Free(*buffer).ok());
  EXPECT_TRUE(WaitFor([&] { return GetPicture().devices(0).external_bytes() == 0; }));
}

TEST_F(ServerTest, WatchersGetThePictureNowAndAfterAChange) {
  Start();
  auto stub = v1::BrokerAdmin::NewStub(Connect());
  grpc::ClientContext context;
  auto reader = stub->WatchPicture(&context, {});
  v1::Picture picture;
  ASSERT_TRUE(reader->Read(&picture));
  EXPECT_EQ(picture.sessions_size(), 0);
  Session session(Connect(), MakeAttach("w", 8));
  while (picture.sessions_size() == 0) ASSERT_TRUE(reader->Read(&picture));
  EXPECT_EQ(picture.sessions(0).worker(), "w");
  server_->Stop();
  while (reader->Read(&picture)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, DecisionsAreSentAsTheyFall) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(session.BeginUse("a", &begun).ok());
  auto stub = v1::BrokerAdmin::NewStub(Connect());
  grpc::ClientContext context;
  v1::WatchDecisionsRequest request;
  request.set_limit(10);
  auto reader = stub->WatchDecisions(&context, request);
  v1::Decision decision;
  ASSERT_TRUE(reader->Read(&decision));
  EXPECT_EQ(decision.id(), begun.decision_id());
  EXPECT_EQ(decision.kind(), v1::DECISION_KIND_GRANT);
  v1::EndUseResponse ended;
  ASSERT_TRUE(session.EndUse("b", begun.use_id(), 8, begun.generation(), &ended).ok());
  ASSERT_TRUE(reader->Read(&decision));
  EXPECT_EQ(decision.id(), begun.decision_id() + 1);
  EXPECT_EQ(decision.kind(), v1::DECISION_KIND_RETENTION);
  // Whoever has seen those begins behind them.
  grpc::ClientContext other;
  request.set_after_decision_id(begun.decision_id());
  auto behind = stub->WatchDecisions(&other, request);
  v1::Decision second;
  ASSERT_TRUE(behind->Read(&second));
  EXPECT_EQ(second.id(), decision.id());
  server_->Stop();
  EXPECT_FALSE(reader->Read(&decision));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, WatchersOfDecisionsAreBounded) {
  Start();
  auto stub = v1::BrokerAdmin::NewStub(Connect());
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Decision>>> readers;
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(session.BeginUse("a", &begun).ok());
  v1::WatchDecisionsRequest request;
  request.set_limit(1);
  v1::Decision decision;
  for (size_t i = 0; i < DecisionFeed::kMaxWatchers; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub->WatchDecisions(contexts.back().get(), request));
    ASSERT_TRUE(readers.back()->Read(&decision));
  }
  grpc::ClientContext context;
  auto refused = stub->WatchDecisions(&context, request);
  EXPECT_FALSE(refused->Read(&decision));
  const grpc::Status status = refused->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("at most 64; use ListDecisions"));
  grpc::ClientContext wrong;
  request.set_limit(4097);
  auto beyond = stub->WatchDecisions(&wrong, request);
  EXPECT_FALSE(beyond->Read(&decision));
  EXPECT_EQ(beyond->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// A watcher that does not read is cut off, and nobody waits for it.
TEST_F(ServerTest, AWatcherOfDecisionsThatDoesNotReadIsCutOff) {
  Start();
  grpc::ChannelArguments little;  // lies on the way
  little.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  little.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16384);
  auto stub = v1::BrokerAdmin::NewStub(grpc::CreateCustomChannel(
      "unix:" + socket_path(), grpc::InsecureChannelCredentials(), little));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse first;
  ASSERT_TRUE(session.BeginUse("first", &first).ok());
  v1::EndUseResponse end;
  ASSERT_TRUE(session.EndUse("end", first.use_id(), 8, first.generation(), &end).ok());
  v1::WatchDecisionsRequest request;
  request.set_limit(1);
  auto reader = stub->WatchDecisions(&context, request);
  v1::Decision decision;
  ASSERT_TRUE(reader->Read(&decision));
  // More than wait for it and than lie on the way.
  constexpr int kUses = 6000;
  for (int i = 0; i < kUses; ++i) {
    v1::BeginUseResponse begun;
    ASSERT_TRUE(session.BeginUse(absl::StrCat("b", i), &begun).ok());
    v1::EndUseResponse ended;
    ASSERT_TRUE(
        session.EndUse(absl::StrCat("e", i), begun.use_id(), 8, begun.generation(), &ended).ok());
  }
  uint64_t last = decision.id(), count = 0;
  while (reader->Read(&decision)) {
    EXPECT_EQ(decision.id(), ++last);
    ++count;
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr(absl::StrCat("Watch again with after_decision_id ", last)));
  EXPECT_LT(count, 2u * kUses);
}

TEST_F(ServerTest, DecisionsAndRunsAreListed) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  auto broker = v1::VramBroker::NewStub(Connect());
  {
    grpc::ClientContext context;
    v1::DeclarePipelineRequest request;
    request.set_session_id(session.id());
    request.set_request_id("p");
    request.set_pipeline("image");
    request.add_stages()->set_component("w/c");
    v1::DeclarePipelineResponse response;
    ASSERT_TRUE(broker->DeclarePipeline(&context, request, &response).ok());
  }
  v1::DeclareRunResponse run;
  {
    grpc::ClientContext context;
    v1::DeclareRunRequest request;
    request.set_session_id(session.id());
    request.set_request_id("r");
    request.set_pipeline("image");
    ASSERT_TRUE(broker->DeclareRun(&context, request, &run).ok());
  }
  EXPECT_GT(run.run_id(), 0u);
  auto admin = v1::BrokerAdmin::NewStub(Connect());
  {
    grpc::ClientContext context;
    v1::ListRunsResponse runs;
    ASSERT_TRUE(admin->ListRuns(&context, {}, &runs).ok());
    ASSERT_EQ(runs.runs_size(), 1);
    EXPECT_EQ(runs.runs(0).run_id(), run.run_id());
    EXPECT_EQ(runs.runs(0).pipeline(), "image");
  }
  {
    grpc::ClientContext context;
    v1::FinishRunRequest request;
    request.set_session_id(session.id());
    request.set_request_id("f");
    request.set_run_id(run.run_id());
    v1::FinishRunResponse response;
    EXPECT_TRUE(broker->FinishRun(&context, request, &response).ok());
  }
  v1::BeginUseResponse begun;
  ASSERT_TRUE(session.BeginUse("b", &begun).ok());
  v1::EndUseResponse ended;
  ASSERT_TRUE(session.EndUse("e", begun.use_id(), 8, begun.generation(), &ended).ok());
  const auto list = [&](int limit, uint64_t after) {
    grpc::ClientContext context;
    v1::ListDecisionsRequest request;
    request.set_limit(limit);
    request.set_after_decision_id(after);
    v1::ListDecisionsResponse response;
    const grpc::Status status = admin->ListDecisions(&context, request, &response);
    EXPECT_EQ(status.ok(), limit >= 0) << status.error_message();
    return response;
  };
  const v1::ListDecisionsResponse all = list(0, 0);
  ASSERT_GE(all.decisions_size(), 2);
  EXPECT_EQ(all.decisions(0).kind(), v1::DECISION_KIND_GRANT);
  EXPECT_EQ(all.decisions(0).component_id(), "w/c");
  const v1::Decision& last = all.decisions(all.decisions_size() - 1);
  ASSERT_EQ(list(1, 0).decisions_size(), 1);
  EXPECT_EQ(list(1, 0).decisions(0).id(), last.id());
  EXPECT_EQ(list(0, last.id()).decisions_size(), 0);
  EXPECT_EQ(list(-1, 0).decisions_size(), 0);
}

TEST_F(ServerTest, ExplainsADecisionByWhatWasKnown) {
  Options options = MakeOptions();
  options.core.load_ahead = false;  // it makes a plan of every grant
  Start(options);
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(session.BeginUse("b", &begun).ok());
  v1::EndUseResponse ended;
  ASSERT_TRUE(session.EndUse("e", begun.use_id(), 8, begun.generation(), &ended).ok());
  auto admin = v1::BrokerAdmin::NewStub(Connect());
  const auto explain = [&](uint64_t id, v1::ExplainDecisionResponse* why) {
    grpc::ClientContext context;
    v1::ExplainDecisionRequest request;
    request.set_decision_id(id);
    return admin->ExplainDecision(&context, request, why);
  };
  v1::ExplainDecisionResponse why;
  grpc::Status status = explain(ended.target().decision_id(), &why);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(why.decision().id(), ended.target().decision_id());
  EXPECT_EQ(why.decision().kind(), v1::DECISION_KIND_RETENTION);
  EXPECT_TRUE(why.planned());
  EXPECT_TRUE(why.reproduced());
  EXPECT_EQ(why.planned_layers(), ended.target().layers());
  EXPECT_EQ(why.capacity_bytes(), kCapacity);
  ASSERT_EQ(why.components_size(), 1);
  EXPECT_EQ(why.components(0).id(), "w/c");
  EXPECT_EQ(why.components(0).layer_bytes(), 8 * kMiB);
  EXPECT_EQ(why.components(0).held_layers(), 8);
  EXPECT_GT(why.components(0).exposed_seconds_per_byte(), 0);
  ASSERT_EQ(why.alternatives_size(), 2);
  EXPECT_EQ(why.alternatives(0).kind(), v1::ALTERNATIVE_KIND_KEEP_NOTHING);
  EXPECT_TRUE(why.alternatives(1).chosen());

  v1::ExplainDecisionResponse granted;
  ASSERT_TRUE(explain(begun.decision_id(), &granted).ok());
  EXPECT_FALSE(granted.planned()) << "all of it was free";
  EXPECT_EQ(explain(0, &why).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  status = explain(1000, &why);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("1000 given, decisions 1 to "));
}

TEST_F(ServerTest, DrainRefusesUsesAndSaysSo) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  auto admin = v1::BrokerAdmin::NewStub(Connect());
  grpc::ClientContext context;
  v1::DrainResponse response;
  ASSERT_TRUE(admin->Drain(&context, {}, &response).ok());
  EXPECT_TRUE(GetPicture().draining());
  EXPECT_TRUE(WaitFor([&] { return Health(Connect(), "") == 2; }));
  EXPECT_EQ(Health(Connect(), "vrambroker.v1.VramBroker"), 2);
  v1::BeginUseResponse begun;
  EXPECT_EQ(session.BeginUse("b", &begun).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace vrambroker::server
