// vramctl's commands and their exit statuses, against a real broker: at work, draining, away.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/broker_client.h"
#include "tests/e2e/harness.h"
#include "tests/run_program.h"

namespace vrambroker::e2e {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class CtlTest : public E2eTest {
 protected:
  ProgramEnd Vramctl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {Program("vramctl"), "--address=" + broker_address()});
    return RunProgram(arguments);
  }
  // A driver of this process with a pipeline "images" of one stage.
  void Declare(const std::string& component) {
    client::ClientOptions options;
    options.address = broker_address();
    options.worker = "driver";
    absl::StatusOr<std::unique_ptr<client::BrokerClient>> driver =
        client::BrokerClient::Create(std::move(options));
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    v1::DeclarePipelineRequest pipeline;
    pipeline.set_pipeline("images");
    pipeline.add_stages()->set_component(component);
    ASSERT_TRUE(driver_->DeclarePipeline(pipeline).ok());
  }

  std::unique_ptr<client::BrokerClient> driver_;
};

TEST_F(CtlTest, RunsAreListedWithTheirStages) {
  StartBroker();
  StartWorker("encoder");
  EXPECT_EQ(Vramctl({"runs"}).output, "no declared runs\n");
  ASSERT_NO_FATAL_FAILURE(Declare("encoder"));
  const absl::StatusOr<uint64_t> run = driver_->DeclareRun("images");
  ASSERT_TRUE(run.ok()) << run.status();
  const ProgramEnd table = Vramctl({"runs"});
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_EQ(table.output, absl::StrCat("1 run: 0 started, 1 waits\n"
                                       "  pipeline  run  driver  next stage  state\n"
                                       "  images      ",
                                       *run, "  driver      1 of 1  waits\n"));
  const ProgramEnd json = Vramctl({"runs", "--format", "json"});
  EXPECT_EQ(json.status, 0);
  EXPECT_THAT(json.output, HasSubstr("\"pipeline\": \"images\""));
}

TEST_F(CtlTest, WorkersAreListedWithWhatTheyHold) {
  StartBroker();
  EXPECT_EQ(Vramctl({"workers"}).output, "no workers\n");
  StageWorker& encoder = StartWorker("encoder");
  encoder.Run(Stage());
  ASSERT_TRUE(Eventually([&] { return Component("encoder/encoder").held_layers() == 8; }));
  const ProgramEnd table = Vramctl({"workers"});
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.output, ContainsRegex(absl::StrCat("encoder +", encoder.pid(), "  attached  ",
                                                       card_uuid(), " +0  8.0 MiB  8.0 MiB")));
  const ProgramEnd json = Vramctl({"workers", "--format=json"});
  EXPECT_EQ(json.status, 0);
  EXPECT_THAT(json.output, AllOf(HasSubstr(absl::StrCat("\"pid\": ", encoder.pid())),
                                 HasSubstr("\"held_bytes\": 8388608")));
}

TEST_F(CtlTest, ADrainIsConfirmedWaitedForAndSeen) {
  StartBroker();
  StageWorker& encoder = StartWorker("encoder", {.pass_seconds = 0.05});
  EXPECT_EQ(Vramctl({"health"}).status, 0);
  const ProgramEnd unasked = Vramctl({"drain"});
  EXPECT_EQ(unasked.status, 2);
  EXPECT_THAT(unasked.output, HasSubstr("--yes"));
  EXPECT_FALSE(Picture().draining());

  const std::unique_ptr<StageCall> call = encoder.Begin(Stage(0, 60));
  ASSERT_TRUE(Eventually([&] { return Component("encoder/encoder").use_id() != 0; }));
  const ProgramEnd late = Vramctl({"drain", "--yes", "--wait", "--wait-limit=100ms"});
  EXPECT_EQ(late.status, 1) << late.output;
  EXPECT_THAT(late.output,
              AllOf(HasSubstr("waiting: 1 use runs (encoder/encoder)"), HasSubstr("100ms"),
                    HasSubstr("draining: 1 use runs (encoder/encoder)")));
  EXPECT_TRUE(Picture().draining());
  const ProgramEnd at_once = Vramctl({"drain", "--yes", "--format=json"});
  EXPECT_EQ(at_once.status, 0);
  EXPECT_THAT(at_once.output, HasSubstr("{\"draining\": true, \"running_uses\": 1, "));
  const ProgramEnd waited = Vramctl({"drain", "--yes", "--wait"});
  EXPECT_EQ(waited.status, 0) << waited.output;
  EXPECT_THAT(waited.output, HasSubstr("draining: no use runs"));
  EXPECT_EQ(Component("encoder/encoder").use_id(), 0u);
  EXPECT_TRUE(call->status().ok()) << "a running use goes on to its end";

  EXPECT_THAT(Vramctl({"status"}).output, HasSubstr("draining"));
  const ProgramEnd health = Vramctl({"health"});
  EXPECT_EQ(health.status, 1);
  EXPECT_EQ(health.output, "not serving\n");
  EXPECT_EQ(Vramctl({"health", "--format=json"}).output, "{\"serving\": false}\n");
  const ProgramEnd live = Vramctl({"health", "--live"});
  EXPECT_EQ(live.status, 0) << "it must not be ended while uses may still run";
  EXPECT_EQ(live.output, "live, not serving\n");
  EXPECT_EQ(Vramctl({"health", "--live", "--format=json"}).output,
            "{\"live\": true, \"serving\": false}\n");
}

TEST_F(CtlTest, AWaitForADrainEndsWithTheBroker) {
  StartBroker();
  StageWorker& encoder = StartWorker("encoder", {.pass_seconds = 0.1});
  const std::unique_ptr<StageCall> call = encoder.Begin(Stage(0, 1000));
  ASSERT_TRUE(Eventually([&] { return Component("encoder/encoder").use_id() != 0; }));
  const auto drain = [&](const std::string& name, const std::string& timeout) {
    return StartProgram(name, {Program("vramctl"), "drain", "--yes", "--wait",
                               "--timeout=" + timeout, "--address=" + broker_address()});
  };
  const std::unique_ptr<Process> patient = drain("patient", "30s");
  const std::unique_ptr<Process> hasty = drain("hasty", "100ms");
  for (const auto& one : {patient.get(), hasty.get()}) {
    ASSERT_TRUE(WaitFor([&] {
      return one->Log().find("waiting: 1 use runs") != std::string::npos;
    })) << one->Log();
  }
  broker().Kill();
  EXPECT_TRUE(WaitFor([&] { return !hasty->Running(); }));
  EXPECT_THAT(hasty->Log(), HasSubstr("the broker at " + broker_address()));
  EXPECT_TRUE(patient->Running());
  StartBroker();
  EXPECT_TRUE(WaitFor([&] { return !patient->Running(); }));
  EXPECT_THAT(patient->Log(),
              AllOf(HasSubstr("the broker was restarted meanwhile"), HasSubstr("not draining: ")));
  call->Cancel();
}

TEST_F(CtlTest, ABrokerThatIsAwayIsAFailureOfEveryCommand) {
  MakeCard({});
  for (const std::vector<std::string>& command : {std::vector<std::string>{"status"},
                                                  {"decisions"},
                                                  {"explain", "1"},
                                                  {"runs"},
                                                  {"workers"},
                                                  {"health"},
                                                  {"health", "--live"},
                                                  {"drain", "--yes"},
                                                  {"conformance"}}) {
    const ProgramEnd end = Vramctl(command);
    EXPECT_EQ(end.status, 2) << command[0];
    EXPECT_THAT(end.output, AllOf(HasSubstr("the broker at " + broker_address()),
                                  HasSubstr("does one run there?")))
        << command[0];
  }
}

TEST_F(CtlTest, ABrokerThatDoesNotAnswerIsWaitedForSoLong) {
  StartBroker();
  broker().Freeze();
  const ProgramEnd end = Vramctl({"status", "--timeout=300ms"});
  broker().Thaw();
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.output, HasSubstr("Deadline Exceeded"));
}

}  // namespace
}  // namespace vrambroker::e2e
