// The server as its callers see it: sessions, calls, ends of both.
#include "broker/server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/observe/process_watch.h"
#include "tests/http_get.h"
#include "tests/poll.h"
#include "tests/unit/server/server_fixture.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

TEST_F(ServerTest, AttachIsWelcomedWithATargetForEachComponent) {
  Start();
  v1::AttachRequest request = MakeAttach("w", 8);
  request.set_pid(1);  // not ours: the kernel knows better
  Session session(Connect(), request);
  ASSERT_TRUE(session.first().has_welcome());
  EXPECT_GT(session.id(), 0u);
  EXPECT_GT(session.first().welcome().broker_epoch(), 0u);
  EXPECT_EQ(session.first().welcome().version(), 1);
  EXPECT_EQ(session.first().welcome().release_deadline().seconds(), 2);
  ASSERT_EQ(session.first().targets_size(), 1);
  EXPECT_EQ(session.first().targets(0).component(), "c");
  const v1::Picture picture = GetPicture();
  ASSERT_EQ(picture.sessions_size(), 1);
  EXPECT_EQ(picture.sessions(0).pid(), getpid());
  EXPECT_EQ(picture.sessions(0).state(), v1::SESSION_STATE_ATTACHED);
  ASSERT_EQ(picture.devices_size(), 1);
  EXPECT_EQ(picture.devices(0).uuid(), "emulated:" + card());
  EXPECT_EQ(picture.devices(0).capacity_bytes(), kCapacity);
}

TEST_F(ServerTest, AUseBeginsAndEnds) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse begun;
  grpc::Status status = session.BeginUse("b1", &begun, kMiB);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(begun.use_id(), 0u);
  EXPECT_EQ(begun.resident_layers(), 8);
  EXPECT_EQ(begun.reason(), v1::REASON_FITS_WHOLE);
  EXPECT_EQ(GetPicture().devices(0).in_use_bytes(), 9 * kMiB);
  v1::EndUseResponse ended;
  status = session.EndUse("e1", begun.use_id(), 8, begun.generation(), &ended);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(ended.target().component(), "c");
  EXPECT_EQ(GetPicture().devices(0).in_use_bytes(), 0);
}

TEST_F(ServerTest, ARepeatGetsTheFirstAnswerAndAnotherPayloadIsRefused) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse first, again;
  ASSERT_TRUE(session.BeginUse("b1", &first).ok());
  ASSERT_TRUE(session.BeginUse("b1", &again).ok());
  EXPECT_EQ(again.use_id(), first.use_id());
  EXPECT_EQ(again.generation(), first.generation());
  const grpc::Status other = session.BeginUse("b1", &again, kMiB);
  EXPECT_EQ(other.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(other.error_message(), HasSubstr("request_id"));
}

TEST_F(ServerTest, WhatIsOutOfRangeIsRefusedByName) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse response;
  const grpc::Status status = session.BeginUse("b1", &response, -1);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("activation_bytes: -1 bytes given"));
  Session refused(Connect(), MakeAttach("a b", 8));
  EXPECT_FALSE(refused.first().has_welcome());
  EXPECT_EQ(refused.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, WhatCannotFitIsRefusedAtOnce) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse response;
  const grpc::Status status = session.BeginUse("b1", &response, kCapacity + 1);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServerTest, ALostStreamLosesTheSessionNotItsCharge) {
  Start();
  Session session(Connect(), MakeAttach("w", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(session.BeginUse("b1", &begun).ok());
  session.Cancel();
  ASSERT_TRUE(WaitFor([&] { return StateOf("w") == v1::SESSION_STATE_LOST; }));
  EXPECT_EQ(GetPicture().devices(0).free_bytes(), kCapacity - 8 * kMiB);
  v1::BeginUseResponse again;
  EXPECT_EQ(session.BeginUse("b2", &again).error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(ServerTest, ACallThatIsCancelledWhileItWaitsLeavesTheQueue) {
  Start();
  Session holder(Connect(), MakeAttach("holder", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(holder.BeginUse("b1", &begun, 50 * kMiB).ok());
  Session waiter(Connect(), MakeAttach("waiter", 8));
  auto stub = v1::VramBroker::NewStub(Connect());
  grpc::ClientContext context;
  std::thread caller([&] {
    v1::BeginUseRequest request;
    request.set_session_id(waiter.id());
    request.set_request_id("b");
    request.set_component("c");
    request.set_activation_bytes(50 * kMiB);
    v1::BeginUseResponse response;
    EXPECT_EQ(stub->BeginUse(&context, request, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(WaitFor([&] { return GetPicture().waiting_size() == 1; }));
  context.TryCancel();
  caller.join();
  EXPECT_TRUE(WaitFor([&] { return GetPicture().waiting_size() == 0; }));
}

TEST_F(ServerTest, ACallersDeadlineWithdrawsItsCall) {
  Start();
  Session holder(Connect(), MakeAttach("holder", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(holder.BeginUse("b1", &begun, 50 * kMiB).ok());
  Session waiter(Connect(), MakeAttach("waiter", 8));
  auto stub = v1::VramBroker::NewStub(Connect());
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(100)));
  v1::BeginUseRequest request;
  request.set_session_id(waiter.id());
  request.set_request_id("b");
  request.set_component("c");
  request.set_activation_bytes(50 * kMiB);
  v1::BeginUseResponse response;
  EXPECT_EQ(stub->BeginUse(&context, request, &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitFor([&] { return GetPicture().waiting_size() == 0; }));
}

TEST_F(ServerTest, AWaitingUseIsAdmittedWhenTheOtherEnds) {
  Start();
  Session holder(Connect(), MakeAttach("holder", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(holder.BeginUse("b1", &begun, 50 * kMiB).ok());
  Session waiter(Connect(), MakeAttach("waiter", 8));
  std::atomic<bool> admitted{false};
  std::thread caller([&] {
    v1::BeginUseResponse response;
    EXPECT_TRUE(waiter.BeginUse("b", &response, 50 * kMiB).ok());
    admitted = true;
  });
  EXPECT_TRUE(WaitFor([&] { return GetPicture().waiting_size() == 1; }));
  EXPECT_FALSE(admitted);
  v1::EndUseResponse ended;
  EXPECT_TRUE(holder.EndUse("e1", begun.use_id(), 0, begun.generation(), &ended).ok());
  caller.join();
  EXPECT_TRUE(admitted);
}

TEST_F(ServerTest, AnotherProcessMayNotUseTheSession) {
  Start();
  OtherProcess other(socket_path());
  const std::shared_ptr<grpc::Channel> others = other.channel();
  Session theirs(others, MakeAttach("theirs", 4));
  ASSERT_TRUE(theirs.first().has_welcome());
  Session ours(Connect(), MakeAttach("ours", 4));
  auto stub = v1::VramBroker::NewStub(Connect());
  v1::BeginUseRequest request;
  request.set_session_id(theirs.id());
  request.set_request_id("b");
  request.set_component("c");
  grpc::ClientContext context;
  v1::BeginUseResponse response;
  const grpc::Status status = stub->BeginUse(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("process ", other.pid())));
  EXPECT_TRUE(theirs.BeginUse("b", &response).ok());
  EXPECT_TRUE(ours.BeginUse("b", &response).ok());
}

TEST_F(ServerTest, AProcessThatDiesGivesItsBytesBack) {
  Start();
  OtherProcess other(socket_path());
  const int pid = other.pid();
  Session theirs(other.channel(), MakeAttach("theirs", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(theirs.BeginUse("b1", &begun, 50 * kMiB).ok());
  EXPECT_EQ(GetPicture().sessions(0).pid(), pid);
  Session waiter(Connect(), MakeAttach("waiter", 8));
  std::thread caller([&] {
    v1::BeginUseResponse response;
    EXPECT_TRUE(waiter.BeginUse("b", &response, 50 * kMiB).ok());
  });
  EXPECT_TRUE(WaitFor([&] { return GetPicture().waiting_size() == 1; }));
  other.Kill();  // its stream stays open: this process shares it
  caller.join();
  EXPECT_NE(StateOf("theirs"), v1::SESSION_STATE_ATTACHED);
}

TEST_F(ServerTest, StopAnswersWaitingCallsAndEndsStreams) {
  Start();
  Session holder(Connect(), MakeAttach("holder", 8));
  v1::BeginUseResponse begun;
  ASSERT_TRUE(holder.BeginUse("b1", &begun, 50 * kMiB).ok());
  Session waiter(Connect(), MakeAttach("waiter", 8));
  std::thread caller([&] {
    v1::BeginUseResponse response;
    const grpc::Status status = waiter.BeginUse("b", &response, 50 * kMiB);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("stopping"));
  });
  EXPECT_TRUE(WaitFor([&] { return GetPicture().waiting_size() == 1; }));
  const absl::Time began = absl::Now();
  server_->Stop();
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
  caller.join();
  EXPECT_EQ(holder.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(std::filesystem::exists(socket_path()));
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/vram-card-" + card()));
}

TEST_F(ServerTest, EveryCallIsAnsweredOnceUnderManyThreads) {
  Start();
  constexpr int kWorkers = 6;
  std::vector<std::thread> threads;
  threads.reserve(kWorkers);
  std::atomic<int> answered{0};
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      Session session(Connect(), MakeAttach(absl::StrCat("w", w), 8));
      for (int i = 0; i < 50; ++i) {
        v1::BeginUseResponse begun;
        const grpc::Status status = session.BeginUse(absl::StrCat("b", i), &begun, (10 + w) * kMiB);
        ++answered;
        if (!status.ok()) {
          ADD_FAILURE() << status.error_message();
          continue;
        }
        v1::EndUseResponse ended;
        EXPECT_TRUE(
            session.EndUse(absl::StrCat("e", i), begun.use_id(), 0, begun.generation(), &ended)
                .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, kWorkers * 50);
  EXPECT_EQ(GetPicture().waiting_size(), 0);
}

TEST_F(ServerTest, OverTcpTheDeathOfTheProcessThatIsNamedCountsIfItIsOneOfThisMachine) {
  Options options = MakeOptions();
  options.listen.push_back({"", "127.0.0.1", 0});
  options.plain_loopback = true;
  Start(options);
  const auto channel =
      grpc::CreateChannel(server_->addresses()[1], grpc::InsecureChannelCredentials());
  OtherProcess other(socket_path());
  v1::AttachRequest request = MakeAttach("named", 8);
  request.set_pid(other.pid());
  request.set_start_time_ticks(*observe::ProcessStartTime(other.pid()));
  Session named(channel, request);
  ASSERT_TRUE(named.first().has_welcome());
  // Of another machine or namespace: nobody here has this pid with this start.
  request = MakeAttach("stranger", 8);
  request.set_pid(other.pid());
  request.set_start_time_ticks(1);
  Session stranger(channel, request);
  ASSERT_TRUE(stranger.first().has_welcome());
  other.Kill();
  const grpc::Status ended = named.Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(ended.error_message(), HasSubstr("the process has ended"));
  EXPECT_EQ(StateOf("stranger"), v1::SESSION_STATE_ATTACHED);
}

TEST_F(ServerTest, MetricsShowWhatWasDecidedAndThePicture) {
  Options options = MakeOptions();
  options.metrics_address = "127.0.0.1:0";
  Start(options);
  v1::AttachRequest request = MakeAttach("w", 8);
  request.set_pod("pod-1");
  Session session(Connect(), request);
  v1::BeginUseResponse begun;
  v1::EndUseResponse ended;
  ASSERT_TRUE(session.BeginUse("b1", &begun, 10 * kMiB).ok());
  EXPECT_EQ(session.BeginUse("b2", &begun, kCapacity + 1).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  const std::string text = BodyOf(HttpGet(server_->metrics_address(), "/metrics"));
  auto samples = SamplesIn(text);
  const std::string device = "UUID=\"" + GetPicture().devices(0).uuid() + "\"";
  EXPECT_EQ(samples["vram_broker_device_bytes{" + device + ",class=\"in_use\"}"], 18 * kMiB);
  EXPECT_EQ(
      samples["vram_broker_decisions_total{" + device + ",kind=\"grant\",reason=\"fits_whole\"}"],
      1);
  EXPECT_EQ(
      samples["vram_broker_decisions_total{" + device + ",kind=\"refusal\",reason=\"cannot_fit\"}"],
      1);
  EXPECT_EQ(samples["vram_broker_refused_calls_total{code=\"RESOURCE_EXHAUSTED\"}"], 1);
  EXPECT_EQ(samples["vram_broker_wait_seconds_count{" + device + "}"], 1);
  EXPECT_EQ(samples["vram_broker_decision_seconds_count{event=\"begin_use\"}"], 2);
  EXPECT_THAT(text, HasSubstr("worker_info{worker=\"w\",pod=\"pod-1\",namespace=\"\""));
  const absl::Time began = absl::Now();
  server_->Stop();
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
}

TEST_F(ServerTest, APortOfMetricsThatIsTakenStopsABrokerThatWasAskedForIt) {
  Options options = MakeOptions();
  options.metrics_address = "127.0.0.1:0";
  Start(options);
  Options second = options;
  second.listen[0].path += ".second";
  second.lock_dir += "/second";
  second.emulated_devices[0].name += "-second";
  second.metrics_address = server_->metrics_address();
  ServerExtras silent;
  silent.log_descriptor = -1;
  const auto refused = Server::Start(second, silent);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--metrics-address"));
  second.metrics_if_possible = true;
  const auto without = Server::Start(second, silent);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ((*without)->metrics_address(), "");
}

TEST_F(ServerTest, AnswersOverTcpToo) {
  Options options = MakeOptions();
  options.listen.push_back({"", "127.0.0.1", 0});
  options.plain_loopback = true;
  Start(options);
  ASSERT_EQ(server_->addresses().size(), 2u);
  EXPECT_EQ(server_->addresses()[1].find("127.0.0.1:"), 0u);
  EXPECT_NE(server_->addresses()[1], "127.0.0.1:0");
  auto channel = grpc::CreateChannel(server_->addresses()[1], grpc::InsecureChannelCredentials());
  v1::AttachRequest request = MakeAttach("w", 8);
  request.set_pid(4242);
  Session session(channel, request);
  ASSERT_TRUE(session.first().has_welcome());
  EXPECT_EQ(GetPicture().sessions(0).pid(), 4242);
  v1::BeginUseResponse begun;
  EXPECT_TRUE(session.BeginUse("b1", &begun).ok());
}

}  // namespace
}  // namespace vrambroker::server
