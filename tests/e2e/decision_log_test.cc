// The decision log of a real broker that is killed, replayed by vramctl.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/harness.h"
#include "tests/run_program.h"

namespace vrambroker::e2e {
namespace {

using testing::HasSubstr;

class DecisionLogTest : public E2eTest {
 protected:
  std::string Path() const { return folder() + "/decisions"; }
  std::string Contents() const {
    std::ifstream file(Path());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  ProgramEnd Replay(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> command = {Program("vramctl"), "replay", Path()};
    command.insert(command.end(), flags.begin(), flags.end());
    return RunProgram(command);
  }
  // Uses of two workers in turn, that do not fit together.
  void RunInTurn(StageWorker* first, StageWorker* second) {
    for (int i = 0; i < 3; ++i) {
      first->Run(Stage(kMiB, 2));
      second->Run(Stage(kMiB, 2));
    }
  }
  // Below 0: none was given.
  double SimulatedStall(const std::string& capacity) {
    const ProgramEnd end = Replay({"--capacity=" + capacity, "--format=json"});
    EXPECT_EQ(end.status, 0) << end.output;
    const std::string name = "\"fits\": true, \"stall_seconds\": ";
    const size_t at = end.output.find(name);
    EXPECT_NE(at, std::string::npos) << end.output;
    return at == std::string::npos ? -1 : std::stod(end.output.substr(at + name.size()));
  }
  // All that was decided until now is in the file.
  testing::AssertionResult EverythingWritten() {
    const std::vector<v1::Decision> kept = Decisions(v1::DECISION_KIND_RETENTION);
    if (kept.empty()) return testing::AssertionFailure() << "nothing was decided";
    const std::string last = absl::StrCat("{\"decision\":{\"id\":\"", kept.back().id(), "\"");
    return Eventually([&] { return Contents().find(last) != std::string::npos; });
  }
};

TEST_F(DecisionLogTest, EveryPlanOfAKilledBrokerComesOutAgain) {
  StartBroker({"--decision-log=" + Path()});
  StageWorker& encoder = StartWorker("encoder", {.layers = 12});
  StageWorker& decoder = StartWorker("decoder", {.layers = 12});
  RunInTurn(&encoder, &decoder);
  ASSERT_TRUE(EverythingWritten());
  broker().Kill();
  const ProgramEnd text = Replay();
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr(" reproduced, 0 differ"));
  EXPECT_THAT(text.output, HasSubstr("of 1 broker"));
  // A smaller card would have lost more.
  const double here = SimulatedStall("20MiB");
  const double smaller = SimulatedStall("8MiB");
  EXPECT_GE(here, 0);
  EXPECT_GT(smaller, here);

  // As a broker leaves it that is killed while it writes; the next one goes on behind it.
  std::ofstream(Path(), std::ios::app) << "{\"time\":\"2026-01-01T00:00:00Z\",\"decis";
  StartBroker({"--decision-log=" + Path()});
  ASSERT_TRUE(Eventually([&] { return Ready("encoder") && Ready("decoder"); }));
  RunInTurn(&encoder, &decoder);
  ASSERT_TRUE(EverythingWritten());
  const ProgramEnd json = Replay({"--format=json"});
  EXPECT_EQ(json.status, 0) << json.output;
  EXPECT_THAT(json.output, HasSubstr("\"brokers\": 2"));
  EXPECT_THAT(json.output, HasSubstr("\"torn_lines\": 1"));
  EXPECT_THAT(json.output, HasSubstr("\"differ\": 0"));
  EXPECT_TRUE(broker().Terminate(absl::Seconds(10)).ok());
}

TEST_F(DecisionLogTest, ABrokerThatCrashesWritesItsLastDecisionsFirst) {
  StartBroker({"--decision-log=" + Path()});
  StageWorker& encoder = StartWorker("encoder", {.layers = 12});
  for (int i = 0; i < 20; ++i) encoder.Run(Stage(kMiB, 2));
  // Without a pause, so that the last lines still wait for the disk.
  const std::vector<v1::Decision> kept = Decisions(v1::DECISION_KIND_RETENTION);
  kill(broker().pid(), SIGABRT);
  ASSERT_TRUE(WaitFor([&] { return !broker().Running(); }));
  ASSERT_FALSE(kept.empty());
  EXPECT_THAT(Contents(),
              HasSubstr(absl::StrCat("{\"decision\":{\"id\":\"", kept.back().id(), "\"")));
  EXPECT_EQ(Replay().status, 0) << Replay().output;
}

TEST_F(DecisionLogTest, AFullDiskCostsLinesAndNoUse) {
  StartBroker({"--decision-log=/dev/full"});
  StageWorker& encoder = StartWorker("encoder");
  encoder.Run(Stage());
  ASSERT_TRUE(Eventually(
      [&] { return broker().Log().find(" error decision_log_dropped ") != std::string::npos; }));
  EXPECT_THAT(broker().Log(), HasSubstr("No space left on device"));
  encoder.Run(Stage());
}

TEST_F(DecisionLogTest, AFolderThatVanishesIsSaidAndWrittenToOnceItIsBack) {
  const std::string folder_of_logs = folder() + "/logs";
  const std::string path = folder_of_logs + "/decisions";
  std::filesystem::create_directory(folder_of_logs);
  StartBroker({"--decision-log=" + path});
  StageWorker& encoder = StartWorker("encoder");
  encoder.Run(Stage());
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(path); }));
  std::filesystem::remove_all(folder_of_logs);
  encoder.Run(Stage());
  ASSERT_TRUE(Eventually(
      [&] { return broker().Log().find(" error decision_log_dropped ") != std::string::npos; }));
  std::filesystem::create_directory(folder_of_logs);
  encoder.Run(Stage());
  ASSERT_TRUE(broker().Terminate(absl::Seconds(10)).ok());
  const ProgramEnd end = RunProgram({Program("vramctl"), "replay", path});
  EXPECT_EQ(end.status, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("missing: the broker could not write"));
}

TEST_F(DecisionLogTest, ABrokerDoesNotStartWhereItCannotWrite) {
  std::ofstream(Path()) << "something else\n";
  const pipeline::TemporaryCardName card;
  const auto broker = StartProgram(
      "refused",
      BrokerCommand(folder() + "/other", card.name() + "=20MiB", {"--decision-log=" + Path()}));
  ASSERT_TRUE(Eventually([&] { return !broker->Running(); }));
  EXPECT_THAT(broker->Log(), HasSubstr("--decision-log: "));
  EXPECT_THAT(broker->Log(), HasSubstr("holds something other than a decision log"));
  EXPECT_EQ(Contents(), "something else\n");
}

}  // namespace
}  // namespace vrambroker::e2e
