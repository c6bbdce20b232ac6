// What real workers measure, and what the broker makes of it.
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/substitute.h"
#include "tests/e2e/harness.h"

namespace vrambroker::e2e {
namespace {

class LearningTest : public E2eTest {};

TEST_F(LearningTest, AnOverDeclaredActivationIsChargedAsMeasuredAndTheModelIsThenResident) {
  // 8 MiB of layers on 14 MiB. 8 MiB are declared for activation, one is taken.
  CardSetup card;
  card.capacity = 14 * kMiB;
  card.rate = 256.0 * kMiB;
  MakeCard(card);
  StartBroker();
  StageWorker& worker = StartWorker("dit", {.pass_seconds = 0.01});
  v1::RunStageRequest request = Stage(kMiB, /*passes=*/3);
  request.set_declared_activation_bytes(8 * kMiB);
  request.set_shape("1024x1024x1");
  // The first is a warm-up, three teach.
  for (int use = 0; use < 4; ++use) EXPECT_LT(worker.Run(request).resident_layers(), 8) << use;
  EXPECT_EQ(worker.Run(request).resident_layers(), 8);

  const v1::ComponentPicture learned = Component("dit/dit");
  EXPECT_EQ(learned.activation_peak_bytes(), kMiB);
  EXPECT_EQ(learned.measured_uses(), 4);
  EXPECT_GE(learned.pass_seconds(), 0.005);
  EXPECT_GT(learned.link_bytes_per_second(), 0);
  EXPECT_LT(learned.link_bytes_per_second(), 1.1 * card.rate) << "the card is no faster";
  EXPECT_GT(learned.stall_seconds_per_byte(), 0) << "copies are slower than compute";

  request.set_shape("2048x2048x1");
  EXPECT_LT(worker.Run(request).resident_layers(), 8) << "nothing is known of this shape";
  request.set_shape("1024x1024x1");
  request.set_activation_is_exact(true);
  EXPECT_LT(worker.Run(request).resident_layers(), 8) << "the caller insists";
}

TEST_F(LearningTest, ADriverHandsTheShapesOfItsWorkloadOn) {
  CardSetup card;
  card.capacity = 14 * kMiB;
  card.rate = 256.0 * kMiB;
  MakeCard(card);
  StartBroker();
  const StageWorker& worker = StartWorker("dit", {.pass_seconds = 0.01});
  const std::string file = folder() + "/shapes.json";
  std::ofstream(file) << absl::Substitute(
      R"({"name": "shapes", "device": {"capacityBytes": $0, "h2dBytesPerSecond": 268435456},
        "components": [{"name": "dit", "layerGroups": [{"count": 8, "layerBytes": $1}]}],
        "pipelines": [
          {"name": "small", "stages": [{"component": "dit", "passes": 3, "activationBytes": $1,
            "shape": "512x512", "declaredActivationBytes": $2}]},
          {"name": "large", "stages": [{"component": "dit", "passes": 3, "activationBytes": $1,
            "shape": "1024x1024", "declaredActivationBytes": $2}]}],
        "runs": [{"pipeline": "small"}, {"pipeline": "small"}, {"pipeline": "small"},
          {"pipeline": "small"}, {"pipeline": "small"}, {"pipeline": "large"}]})",
      14 * kMiB, kMiB, 8 * kMiB);
  const std::unique_ptr<Process> driver =
      StartProgram("driver", {Program("vram-pipeline"), "run", "--workload=" + file,
                              "--format=json", "--workers=dit=" + worker.address(),
                              "--broker=" + broker_address(), "--bytes-scale=1", "--time-scale=1"});
  ASSERT_TRUE(driver->Join(absl::Seconds(40)).ok()) << driver->Log();
  const std::string log = driver->Log();  // what it says of its progress, then the report
  const nlohmann::json report =
      nlohmann::json::parse(log.substr(std::min(log.find('{'), log.size())), nullptr, false);
  ASSERT_TRUE(report.is_object()) << driver->Log();
  auto resident = [&](int request) {
    return report["requests"][request]["stages"][0]["resident_layers"].get<int>();
  };
  // The first is a warm-up, three teach.
  EXPECT_LT(resident(3), 8);
  EXPECT_EQ(resident(4), 8);
  EXPECT_LT(resident(5), 8) << "nothing is known of this shape";
}

TEST_F(LearningTest, WarmUpsTeachNothing) {
  StartBroker();
  StageWorker& worker = StartWorker("dit", {.flags = {"--warm-up-uses=2"}});
  v1::RunStageRequest request = Stage(kMiB);
  worker.Run(request);
  worker.Run(request);
  EXPECT_EQ(Component("dit/dit").measured_uses(), 0);
  worker.Run(request);
  EXPECT_EQ(Component("dit/dit").measured_uses(), 1);
  request.set_warm_up(true);
  worker.Run(request);
  EXPECT_EQ(Component("dit/dit").measured_uses(), 1);
}

}  // namespace
}  // namespace vrambroker::e2e
