// vram-pipeline as its user sees it: what it says where a process of its pipeline is killed,
// stopped or takes its name.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/harness.h"

namespace vrambroker::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The text of a file below /proc, whose size is not known before.
std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The child of `parent` whose command line has `word` in it. 0: there is none.
pid_t ChildWith(pid_t parent, const std::string& word) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string stat = ReadAll(entry.path() / "stat");
    // "PID (NAME) STATE PARENT ..."
    std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
    char state = 0;
    pid_t of = 0;
    if (!(fields >> state >> of) || of != parent) continue;
    if (absl::StrContains(ReadAll(entry.path() / "cmdline"), word)) return pid;
  }
  return 0;
}

class DriverTest : public E2eTest {
 protected:
  // So many runs of a decoder, half a second each; an encoder is there and does nothing.
  std::string WriteWorkload(int runs) const {
    std::ofstream file(folder() + "/workload.json");
    file << R"({"name": "some", "device": {"capacityBytes": 20971520, "h2dBytesPerSecond": 1e9},
      "components": [
        {"name": "encoder", "layerGroups": [{"count": 4, "layerBytes": 1048576}]},
        {"name": "decoder", "layerGroups": [{"count": 4, "layerBytes": 1048576}],
         "passSeconds": 0.05}],
      "pipelines": [{"name": "images", "stages": [{"component": "decoder", "passes": 10}]},
                    {"name": "texts", "stages": [{"component": "encoder"}]}],
      "runs": [)";
    for (int i = 0; i < runs; ++i) file << (i == 0 ? "" : ",") << R"({"pipeline": "images"})";
    file << "]}\n";
    return folder() + "/workload.json";
  }
  // A driver with processes of its own, past its first run.
  std::unique_ptr<Process> Spawned(int runs) {
    std::unique_ptr<Process> driver =
        StartProgram("driver", {Program("vram-pipeline"), "run", "--spawn", "--broker=start",
                                "--workload=" + WriteWorkload(runs), "--bytes-scale=1",
                                "--time-scale=1", "--work-dir=" + folder() + "/work"});
    EXPECT_TRUE(Said(*driver, "run 0 of ")) << driver->Log();
    return driver;
  }
  static bool Said(Process& driver, const std::string& text) {
    return WaitFor([&] { return absl::StrContains(driver.Log(), text) || !driver.Running(); }) &&
           absl::StrContains(driver.Log(), text);
  }
};

TEST_F(DriverTest, WhatWasDoneIsPrintedThoughTheBrokerWasKilled) {
  const std::unique_ptr<Process> driver = Spawned(3);
  const pid_t broker = ChildWith(driver->pid(), "vram-brokerd");
  ASSERT_GT(broker, 0);
  kill(broker, SIGKILL);
  EXPECT_FALSE(driver->Join(absl::Seconds(40)).ok());
  EXPECT_THAT(driver->Log(), AllOf(HasSubstr("3 requests, 0 failed: p50 "),
                                   HasSubstr("vram-brokerd was ended by signal 9")));
}

TEST_F(DriverTest, WhatAKilledWorkerCopiedIsNotKnown) {
  const std::unique_ptr<Process> driver = Spawned(2);
  const pid_t worker = ChildWith(driver->pid(), "--component=decoder");
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  EXPECT_FALSE(driver->Join(absl::Seconds(40)).ok());
  EXPECT_THAT(driver->Log(), AllOf(HasSubstr("1 requests, 1 failed: p50 "),
                                   HasSubstr("moved to the card: not known")));
}

TEST_F(DriverTest, AStoppedWorkerCostsTheEndAFewSeconds) {
  const std::unique_ptr<Process> driver = Spawned(2);
  const pid_t worker = ChildWith(driver->pid(), "--component=encoder");
  ASSERT_GT(worker, 0);
  kill(worker, SIGSTOP);
  ASSERT_TRUE(Said(*driver, "run 1 of 2")) << driver->Log();
  const absl::Time over = absl::Now();
  EXPECT_FALSE(driver->Join(absl::Seconds(40)).ok());
  EXPECT_LT(absl::Now() - over, absl::Seconds(15));
  EXPECT_THAT(driver->Log(), AllOf(HasSubstr("2 requests, 0 failed: p50 "),
                                   HasSubstr("did not end in time and was killed")));
}

TEST_F(DriverTest, ASecondDriverOfTheSameNameSaysAtOnceWhatItWaitsFor) {
  StartBroker();
  StageWorker& decoder = StartWorker("decoder", {.pass_seconds = 0.05});
  StageWorker& encoder = StartWorker("encoder");
  const std::vector<std::string> command = {
      Program("vram-pipeline"),
      "run",
      "--workload=" + WriteWorkload(60),
      absl::StrCat("--workers=encoder=", encoder.address(), ",decoder=", decoder.address()),
      "--broker=" + broker_address(),
      "--name=twin"};
  const std::unique_ptr<Process> first = StartProgram("first", command);
  ASSERT_TRUE(Eventually([&] { return decoder.Component().uses() >= 1; })) << first->Log();
  const absl::Time began = absl::Now();
  const std::unique_ptr<Process> second = StartProgram("second", command);
  ASSERT_TRUE(Said(*second, "is in use by process ")) << second->Log();
  EXPECT_LT(absl::Now() - began, absl::Seconds(10));
  EXPECT_THAT(second->Log(),
              AllOf(HasSubstr("waits up to 30s: "), HasSubstr(absl::StrCat(first->pid())),
                    HasSubstr("give this run another --name"),
                    testing::Not(HasSubstr("Is vram-brokerd running"))));
  // The name is free again.
  first->Kill();
  EXPECT_TRUE(Said(*second, "run 0 of ")) << second->Log();
}

}  // namespace
}  // namespace vrambroker::e2e
