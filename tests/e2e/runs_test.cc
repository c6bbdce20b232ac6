// Declared runs: what is kept for them, what is let go after the last, and what becomes of them
// without their driver.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/broker_client.h"
#include "tests/e2e/harness.h"

namespace vrambroker::e2e {
namespace {

// The workload of a driver: runs of a short encoder and a decoder of so many passes.
std::string WriteWorkload(const std::string& path, int runs, int decoder_passes) {
  std::ofstream file(path);
  file << R"({"name": "some", "device": {"capacityBytes": 20971520, "h2dBytesPerSecond": 1e9},
    "components": [
      {"name": "encoder", "layerGroups": [{"count": 8, "layerBytes": 1048576}]},
      {"name": "decoder", "layerGroups": [{"count": 8, "layerBytes": 1048576}]}],
    "pipelines": [{"name": "images", "stages": [
      {"component": "encoder"}, {"component": "decoder", "passes": )"
       << decoder_passes << R"(}]}],
    "runs": [)";
  for (int i = 0; i < runs; ++i) file << (i == 0 ? "" : ",") << R"({"pipeline": "images"})";
  file << "]}\n";
  return path;
}

class RunsTest : public E2eTest {
 protected:
  // A driver of this process with one pipeline.
  void Declare(const std::vector<std::string>& stages) {
    client::ClientOptions options;
    options.address = broker_address();
    options.worker = "driver";
    absl::StatusOr<std::unique_ptr<client::BrokerClient>> driver =
        client::BrokerClient::Create(std::move(options));
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    driver_ = *std::move(driver);
    v1::DeclarePipelineRequest pipeline;
    pipeline.set_pipeline("images");
    for (const std::string& stage : stages) pipeline.add_stages()->set_component(stage);
    const absl::Status declared = driver_->DeclarePipeline(pipeline);
    ASSERT_TRUE(declared.ok()) << declared.ToString();
  }
  uint64_t DeclareRun() {
    const absl::StatusOr<uint64_t> run = driver_->DeclareRun("images");
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    return run.ok() ? *run : 0;
  }
  static v1::RunStageRequest StageOf(uint64_t run, int stage) {
    v1::RunStageRequest request = Stage();
    request.set_run_id(run);
    request.set_stage(stage);
    return request;
  }

  std::unique_ptr<client::BrokerClient> driver_;
};

TEST_F(RunsTest, ComponentUsedTwiceInARunIsKeptBetweenAndReleasedAfter) {
  StartBroker({"--run-grace=200ms"});
  StageWorker& encoder = StartWorker("encoder");
  StageWorker& editor = StartWorker("editor");
  ASSERT_NO_FATAL_FAILURE(Declare({"encoder", "editor", "encoder", "editor"}));
  const uint64_t run = DeclareRun();

  EXPECT_EQ(encoder.Run(StageOf(run, 0)).kept_layers(), 8);
  EXPECT_EQ(editor.Run(StageOf(run, 1)).kept_layers(), 8);
  const v1::RunStageResponse second = encoder.Run(StageOf(run, 2));
  EXPECT_EQ(second.bytes_to_device(), 0);
  EXPECT_EQ(second.kept_layers(), 8);
  const v1::RunStageResponse last = editor.Run(StageOf(run, 3));
  EXPECT_EQ(last.bytes_to_device(), 0);
  EXPECT_EQ(last.kept_layers(), 8) << "its driver may declare another run";
  EXPECT_TRUE(driver_->FinishRun(run).ok());
  EXPECT_GT(Device().retained_bytes(), 0);
  driver_.reset();
  EXPECT_TRUE(WaitFor([&] { return Device().retained_bytes() == 0; }));
}

TEST_F(RunsTest, TenDeclaredRunsLoadEachComponentThatFitsOnce) {
  CardSetup card;
  card.capacity = 40 * kMiB;
  MakeCard(card);
  StartBroker({"--expect-for=200ms"});
  const std::vector<std::string> names = {"encoder", "transformer", "decoder"};
  const std::map<std::string, int> layers = {{"encoder", 8}, {"transformer", 16}, {"decoder", 2}};
  std::map<std::string, StageWorker*> workers;
  for (const std::string& name : names) {
    workers[name] = &StartWorker(name, {.layers = layers.at(name), .fixed_bytes = kMiB / 2});
  }
  ASSERT_NO_FATAL_FAILURE(Declare(names));
  std::vector<uint64_t> runs;
  for (int i = 0; i < 10; ++i) runs.push_back(DeclareRun());
  EXPECT_EQ(DeclaredRuns(), 10);

  for (const uint64_t run : runs) {
    for (int i = 0; i < 3; ++i) {
      const v1::RunStageResponse response = workers[names[i]]->Run(StageOf(run, i));
      EXPECT_EQ(response.resident_layers(), layers.at(names[i]));
      EXPECT_EQ(response.kept_layers(), layers.at(names[i]));
    }
    EXPECT_TRUE(driver_->FinishRun(run).ok());
  }
  for (const std::string& name : names) {
    const v1::ComponentStatus status = workers[name]->Component();
    EXPECT_EQ(status.bytes_to_device(), layers.at(name) * kMiB + kMiB / 2) << name;
  }
  EXPECT_EQ(DeclaredRuns(), 0);
  // An eleventh may come, though nobody has declared it; not for ever.
  ASSERT_TRUE(Eventually([&] {
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return workers[name]->Component().held_layers() == 0;
    });
  }));
  EXPECT_EQ(Device().retained_bytes(), 0);
  EXPECT_EQ(Device().permanent_bytes(), 3 * kMiB / 2);
}

TEST_F(RunsTest, RunsOfAKilledDriverEndAfterTheirGrace) {
  StartBroker({"--run-grace=500ms"});
  StageWorker& encoder = StartWorker("encoder");
  StageWorker& decoder = StartWorker("decoder", {.pass_seconds = 0.02});
  const std::string workload = WriteWorkload(folder() + "/workload.json", 10, 100000);
  const std::unique_ptr<Process> driver = StartProgram(
      "driver",
      {Program("vram-pipeline"), "run", "--workload=" + workload,
       absl::StrCat("--workers=encoder=", encoder.address(), ",decoder=", decoder.address()),
       "--broker=" + broker_address(), "--name=driver"});
  ASSERT_TRUE(Eventually([&] {
    return DeclaredRuns() == 10 && Component("decoder/decoder").use_id() != 0;
  })) << driver->Log();
  // Nine more runs need the encoder: it stays.
  EXPECT_EQ(Component("encoder/encoder").held_layers(), 8);

  driver->Kill();
  // Its caller gone, the use that runs ends; the runs outlive the driver by their grace, and what
  // was kept for them goes with them.
  ASSERT_TRUE(Eventually([&] {
    return Component("decoder/decoder").use_id() == 0 && DeclaredRuns() == 0 &&
           Component("encoder/encoder").held_layers() == 0 &&
           Component("decoder/decoder").held_layers() == 0;
  }));
  EXPECT_EQ(Device().in_use_bytes(), 0);
  EXPECT_EQ(Device().retained_bytes(), 0);
  EXPECT_EQ(encoder.Component().held_layers(), 0);
  EXPECT_TRUE(Eventually([&] { return decoder.Component().failed_uses() == 1; }));
}

TEST_F(RunsTest, ADriverGoesOnWithoutItsBrokerAndDeclaresAgainToTheNextOne) {
  StartBroker();
  StageWorker& encoder = StartWorker("encoder", {.broker = "none"});
  StageWorker& decoder = StartWorker("decoder", {.pass_seconds = 0.05, .broker = "none"});
  constexpr int kRuns = 120;
  const std::string workload = WriteWorkload(folder() + "/workload.json", kRuns, 1);
  const std::unique_ptr<Process> driver = StartProgram(
      "driver",
      {Program("vram-pipeline"), "run", "--workload=" + workload,
       absl::StrCat("--workers=encoder=", encoder.address(), ",decoder=", decoder.address()),
       "--broker=" + broker_address(), "--name=driver"});
  ASSERT_TRUE(Eventually([&] { return decoder.Component().uses() >= 2; })) << driver->Log();
  EXPECT_GT(DeclaredRuns(), 0);

  broker().Kill();
  const int64_t before = decoder.Component().uses();
  const absl::Time lost = absl::Now();
  ASSERT_TRUE(WaitFor([&] { return decoder.Component().uses() >= before + 40; })) << driver->Log();
  // 40 runs of 50 ms, and a quarter of a second for all of them, not for each.
  EXPECT_LT(absl::Now() - lost, absl::Seconds(6));

  StartBroker();
  const int64_t again = decoder.Component().uses();
  EXPECT_TRUE(Eventually([&] { return DeclaredRuns() > 0; }, absl::Seconds(5))) << driver->Log();
  EXPECT_LT(again, kRuns);
  EXPECT_TRUE(driver->Join(absl::Seconds(30)).ok()) << driver->Log();
  EXPECT_EQ(decoder.Component().uses(), kRuns);
  EXPECT_TRUE(Eventually([&] { return DeclaredRuns() == 0; }));
}

TEST_F(RunsTest, ADriverOfABrokerThatAnswersNothingLosesItsPatienceOnce) {
  StartBroker();
  StageWorker& encoder = StartWorker("encoder", {.broker = "none"});
  StageWorker& decoder = StartWorker("decoder", {.pass_seconds = 0.05, .broker = "none"});
  const std::string workload = WriteWorkload(folder() + "/workload.json", 60, 1);
  const std::unique_ptr<Process> driver = StartProgram(
      "driver",
      {Program("vram-pipeline"), "run", "--workload=" + workload,
       absl::StrCat("--workers=encoder=", encoder.address(), ",decoder=", decoder.address()),
       "--broker=" + broker_address(), "--name=driver", "--declared=current"});
  ASSERT_TRUE(Eventually([&] { return decoder.Component().uses() >= 2; })) << driver->Log();
  broker().Freeze();
  const int64_t before = decoder.Component().uses();
  const absl::Time frozen = absl::Now();
  EXPECT_TRUE(WaitFor([&] { return decoder.Component().uses() >= before + 20; })) << driver->Log();
  EXPECT_LT(absl::Now() - frozen, absl::Seconds(4));
  broker().Thaw();
  EXPECT_TRUE(driver->Join(absl::Seconds(30)).ok()) << driver->Log();
}

}  // namespace
}  // namespace vrambroker::e2e
