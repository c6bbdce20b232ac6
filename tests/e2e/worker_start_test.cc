// What a worker says while it cannot run stages, and of a broker that comes and goes.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "stage_workers/pipeline/fleet.h"
#include "stage_workers/pipeline/weights.h"
#include "tests/e2e/harness.h"

namespace vrambroker::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// On a card of 20 MiB two of these do not fit.
const WorkerSetup kPermanent = {.layers = 12, .flags = {"--lifetime=permanent"}};
constexpr char kNeed[] = "late/late needs";
constexpr char kMissing[] = "are missing on emulated:";

class WorkerStartTest : public E2eTest {
 protected:
  // Until the worker has heard of its refusal and can be asked.
  bool Refused(StageWorker& worker) {
    return WaitFor([&] {
      return worker.Log().find("was refused") != std::string::npos &&
             std::filesystem::exists(folder() + "/" + worker.name());
    });
  }
  std::string WriteWorkload() const {
    const std::string path = folder() + "/workload.json";
    std::ofstream(path)
        << R"({"name": "big", "device": {"capacityBytes": 20971520, "h2dBytesPerSecond": 1e9},
        "components": [{"name": "early", "layerGroups": [{"count": 12, "layerBytes": 1048576}]},
                       {"name": "late", "layerGroups": [{"count": 12, "layerBytes": 1048576}]}],
        "pipelines": [{"name": "p", "stages": [{"component": "late"}]}],
        "runs": [{"pipeline": "p"}]})";
    return path;
  }
};

TEST_F(WorkerStartTest, ARefusedPermanentSetIsSaidAtOnceAndAdmittedOnceThereIsRoom) {
  StartBroker();
  StageWorker& early = StartWorker("early", kPermanent);
  StageWorker& late = BeginWorker("late", kPermanent);
  ASSERT_TRUE(Refused(late));
  EXPECT_THAT(late.Log(), AllOf(HasSubstr("component late was refused and waits for room: "),
                                HasSubstr(kNeed), HasSubstr(kMissing)));
  EXPECT_THAT(late.GetStatus().waiting_for(), AllOf(HasSubstr(kNeed), HasSubstr(kMissing)));
  const grpc::Status refused = late.Begin(Stage())->status();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("runs no stages yet"), HasSubstr(kNeed)));
  EXPECT_FALSE(Ready("late"));

  early.Kill();
  ASSERT_TRUE(Eventually([&] { return Ready("late"); })) << late.Log();
  EXPECT_THAT(late.Log(), HasSubstr("component late is admitted now"));
  EXPECT_EQ(late.GetStatus().waiting_for(), "");
  EXPECT_EQ(late.Run(Stage()).resident_layers(), 12);
}

TEST_F(WorkerStartTest, AWorkerThatGivesUpNamesTheRefusalAndLeavesNoFiles) {
  StartBroker();
  StartWorker("early", kPermanent);
  WorkerSetup hasty = kPermanent;
  hasty.flags.push_back("--start-timeout=500ms");
  StageWorker& late = BeginWorker("late", hasty);
  EXPECT_FALSE(late.Join(absl::Seconds(20)).ok());
  EXPECT_THAT(late.Log(), AllOf(HasSubstr("RESOURCE_EXHAUSTED: the broker refused late/late needs"),
                                HasSubstr(kMissing)));
  StageWorker& stopped = BeginWorker("later", kPermanent);
  ASSERT_TRUE(Refused(stopped));
  ASSERT_TRUE(WaitFor([&] {
    return stopped.Begin(Stage())->status().error_message().find("runs no") != std::string::npos;
  }));
  EXPECT_TRUE(stopped.Terminate(absl::Seconds(20)).ok());
  for (const char* file : {"/late", "/late.lock", "/late.ready", "/later", "/later.lock"}) {
    EXPECT_FALSE(std::ifstream(folder() + file).is_open()) << file;
  }
}

TEST_F(WorkerStartTest, ADriverShowsWhatItsWorkerWaitsFor) {
  StartBroker();
  StartWorker("early", kPermanent);
  StageWorker& late = BeginWorker("late", kPermanent);
  ASSERT_TRUE(Refused(late));
  const std::unique_ptr<Process> driver =
      StartProgram("driver", {Program("vram-pipeline"), "run", "--workload=" + WriteWorkload(),
                              "--workers=late=" + late.address(), "--stage-timeout=500ms"});
  EXPECT_FALSE(driver->Join(absl::Seconds(20)).ok());
  EXPECT_THAT(driver->Log(), AllOf(HasSubstr("worker of late waits: "), HasSubstr(kNeed),
                                   HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("after 500ms")));
}

TEST_F(WorkerStartTest, AFleetShowsWhatAWorkerWaitsForAndGivesUpWithIt) {
  pipeline::FleetOptions options;
  v1::Workload& workload = options.workload;
  workload.mutable_device()->set_capacity_bytes(20 * kMiB);
  workload.mutable_device()->set_h2d_bytes_per_second(1e9);
  for (const char* name : {"early", "late"}) {
    v1::WorkloadComponent* component = workload.add_components();
    component->set_name(name);
    v1::LayerGroup* group = component->add_layer_groups();
    group->set_count(12);
    group->set_layer_bytes(kMiB);
    options.workers[name] = {.lifetime = "permanent"};
  }
  options.broker = true;
  options.weights_dir = folder();
  options.program_folder = pipeline::ProgramFolder();
  options.log_prefix = folder() + "/fleet";
  options.start_timeout = absl::Seconds(3);
  std::vector<std::string> said;
  options.notice = [&said](const std::string& line) { said.push_back(line); };
  ASSERT_TRUE(pipeline::EnsureWeights(workload, {}, 1, folder(), [](auto&&...) {}).ok());
  const absl::Status status = pipeline::Fleet::Start(options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("needs"), HasSubstr(kMissing)));
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said[0], AllOf(HasSubstr("waits: "), HasSubstr(kMissing)));
}

TEST_F(WorkerStartTest, ALostBrokerTheFallbackAndTheReattachAreOneLineEach) {
  StartBroker();
  StageWorker& worker = StartWorker("worker", {.flags = {"--resident=3"}});
  EXPECT_EQ(worker.Run(Stage()).resident_layers(), 8);
  EXPECT_THAT(worker.Log(), HasSubstr(absl::StrCat("attached to the broker at ", broker_address(),
                                                   ": session ")));
  broker().Kill();
  ASSERT_TRUE(WaitFor([&] { return worker.Log().find("no broker lives") != std::string::npos; }));
  EXPECT_THAT(worker.Log(),
              AllOf(HasSubstr("lost the broker at " + broker_address()), HasSubstr("worker holds"),
                    HasSubstr("uses run without one, worker with 3 of 8 layers resident")));
  EXPECT_FALSE(worker.Run(Stage()).brokered());
  StartBroker();
  ASSERT_TRUE(WaitFor([&] { return worker.Log().find("attached again, ") != std::string::npos; }));
  EXPECT_THAT(worker.Log(), HasSubstr("to a new run of the broker at "));
  EXPECT_TRUE(worker.Run(Stage()).brokered());
  const std::string log = worker.Log();
  for (const char* line : {"lost the broker", "no broker lives", "attached again"}) {
    EXPECT_EQ(log.find(line), log.rfind(line)) << log;
  }
}

TEST_F(WorkerStartTest, AWorkerOutlivesAWeightsFileThatIsCutShort) {
  StartBroker();
  StageWorker& worker = StartWorker("worker");
  EXPECT_EQ(worker.Run(Stage()).resident_layers(), 8);
  const std::string path = folder() + "/worker.safetensors";
  ASSERT_TRUE(std::filesystem::exists(path));
  v1::ReleaseAllResponse released;
  ASSERT_TRUE(worker.ReleaseAll(&released).ok());
  std::filesystem::resize_file(path, 3 * kMiB);
  const std::unique_ptr<StageCall> call = worker.Begin(Stage());
  EXPECT_EQ(call->status().error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(call->status().error_message(),
              AllOf(HasSubstr(path), HasSubstr(absl::StrCat(3 * kMiB, " are there now"))));
  EXPECT_TRUE(worker.Running());
  EXPECT_EQ(worker.Component().failed_uses(), 1);
  EXPECT_TRUE(Eventually([&] { return Device().in_use_bytes() == 0; }));
  EXPECT_TRUE(worker.Terminate(absl::Seconds(20)).ok()) << worker.Log();
  EXPECT_EQ(UsedOnCard(), 0);
}

}  // namespace
}  // namespace vrambroker::e2e
