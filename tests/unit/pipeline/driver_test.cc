#include "stage_workers/pipeline/driver.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/worker/stage_service.h"
#include "tests/unit/worker/worker_test_util.h"

namespace vrambroker::pipeline {
namespace {

using ::testing::HasSubstr;
using worker::StageServer;
using worker::Worker;
using worker::WorkerOptions;
using worker::WorkerRig;

// Workers of the components a and b without a broker, served in this process.
class DriverTest : public testing::Test {
 protected:
  void Serve(const std::string& component, const worker::RetainRule& retain = {}) {
    WorkerOptions options = rig_.Options(component);
    options.resident = {.count = 6};
    options.rules.retain = retain;
    absl::StatusOr<std::unique_ptr<Worker>> made = Worker::Create(options);
    ASSERT_TRUE(made.ok()) << made.status();
    workers_.push_back(*std::move(made));
    ASSERT_TRUE(workers_.back()->Start(absl::InfiniteFuture()).ok());
    const std::string address = absl::StrCat("unix:", rig_.folder(), "/", component);
    absl::StatusOr<std::unique_ptr<StageServer>> server =
        StageServer::Start(workers_.back().get(), address);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_.push_back(*std::move(server));
    options_.workers[component] = address;
  }

  void Pipeline(const std::string& name, const std::vector<std::string>& components) {
    v1::WorkloadPipeline* pipeline = options_.workload.add_pipelines();
    pipeline->set_name(name);
    for (const std::string& component : components) {
      v1::WorkloadStage* stage = pipeline->add_stages();
      stage->set_component(component);
      stage->set_passes(2);
      stage->set_activation_bytes(4096);
    }
  }

  void Runs(const std::string& pipeline, int count, double every_seconds = 0) {
    for (int i = 0; i < count; ++i) {
      v1::WorkloadRun* run = options_.workload.add_runs();
      run->set_pipeline(pipeline);
      run->set_arrival_seconds(i * every_seconds);
    }
  }

  DriverReport Run() {
    absl::StatusOr<DriverReport> report = RunWorkload(options_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : DriverReport();
  }

  WorkerRig rig_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<StageServer>> servers_;
  DriverOptions options_;
};

TEST_F(DriverTest, HandsActivationsFromStageToStage) {
  Serve("a");
  Serve("b");
  Pipeline("ab", {"a", "b"});
  Pipeline("ba", {"b", "a"});
  Runs("ab", 2);
  Runs("ba", 1);
  const DriverReport report = Run();
  ASSERT_EQ(report.requests.size(), 3u);
  std::set<std::string> results;
  for (const RequestRecord& request : report.requests) {
    EXPECT_TRUE(request.status.ok()) << request.status;
    ASSERT_EQ(request.stages.size(), 2u);
    EXPECT_EQ(request.stages[0].resident_layers, 6);
    EXPECT_GT(request.bytes_to_device, 0);
    EXPECT_GT(request.seconds, 0);
    results.insert(request.result_sha256);
  }
  // Runs begin with activations of their own, and the order of stages matters.
  EXPECT_EQ(results.size(), 3u);
  EXPECT_EQ(report.requests[2].stages[0].component, "b");
  EXPECT_EQ(report.device_uuid, rig_.card()->Uuid());
  EXPECT_GT(report.device_peak_bytes, 0);
}

TEST_F(DriverTest, ResultsDoNotDependOnOrderOrRetention) {
  Serve("a");
  Serve("b", {.mode = worker::RetainMode::kAll});
  Pipeline("ab", {"a", "b"});
  Runs("ab", 6);
  const DriverReport one_by_one = Run();
  options_.workload.set_max_concurrent_runs(3);
  const DriverReport together = Run();
  ASSERT_EQ(together.requests.size(), 6u);
  for (int run = 0; run < 6; ++run) {
    EXPECT_EQ(together.requests[run].run, run);
    EXPECT_EQ(together.requests[run].result_sha256, one_by_one.requests[run].result_sha256);
  }
}

TEST_F(DriverTest, CountsBytesAfterTheWarmUpsOnly) {
  Serve("a", {.mode = worker::RetainMode::kAll});
  Pipeline("p", {"a"});
  Runs("p", 3);
  options_.warm_ups = 1;
  const DriverReport report = Run();
  ASSERT_EQ(report.requests.size(), 3u);
  EXPECT_TRUE(report.requests[0].warm_up);
  EXPECT_FALSE(report.requests[1].warm_up);
  EXPECT_GT(report.requests[0].bytes_to_device, report.requests[1].bytes_to_device);
  EXPECT_EQ(report.bytes_to_device,
            report.requests[1].bytes_to_device + report.requests[2].bytes_to_device);
}

TEST_F(DriverTest, RunsStartNoEarlierThanTheyArrive) {
  Serve("a");
  Pipeline("p", {"a"});
  Runs("p", 3, /*every_seconds=*/0.4);
  options_.time_scale = 10;
  const DriverReport report = Run();
  for (const RequestRecord& request : report.requests) {
    EXPECT_TRUE(request.status.ok()) << request.status;
    EXPECT_GE(request.queued_seconds, 0);
  }
}

TEST_F(DriverTest, AStageThatFailsEndsItsRunAndIsNamed) {
  Serve("a");
  Serve("b");
  Pipeline("p", {"a", "b"});
  Runs("p", 3);
  options_.workload.mutable_pipelines(0)->mutable_stages(1)->set_activation_bytes(
      rig_.card()->CapacityBytes());
  std::mutex mutex;
  int heard = 0;
  options_.on_request = [&](const RequestRecord&) {
    const std::lock_guard<std::mutex> lock(mutex);
    ++heard;
  };
  const DriverReport report = Run();
  ASSERT_EQ(report.requests.size(), 3u);
  EXPECT_EQ(heard, 3);
  for (const RequestRecord& request : report.requests) {
    EXPECT_TRUE(absl::IsResourceExhausted(request.status)) << request.status;
    EXPECT_THAT(std::string(request.status.message()), HasSubstr("stage b"));
    EXPECT_EQ(request.stages.size(), 1u);
    EXPECT_EQ(request.result_sha256, "");
  }
  options_.stop_at_error = true;
  EXPECT_EQ(Run().requests.size(), 1u);
}

TEST_F(DriverTest, WithoutAWorkerForAComponentNothingStarts) {
  Serve("a");
  Pipeline("p", {"a", "b"});
  Runs("p", 1);
  const absl::Status status = RunWorkload(options_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("component b"));
}

TEST_F(DriverTest, AWorkerThatIsNotThereIsSaidBeforeAnythingStarts) {
  Pipeline("p", {"a"});
  Runs("p", 1);
  options_.workers["a"] = absl::StrCat("unix:", rig_.folder(), "/nobody");
  EXPECT_TRUE(absl::IsUnavailable(RunWorkload(options_).status()));
}

TEST(InitialActivations, DifferBetweenRunsAndAreAlwaysTheSame) {
  EXPECT_EQ(InitialActivations(3), InitialActivations(3));
  EXPECT_NE(InitialActivations(3), InitialActivations(4));
  EXPECT_EQ(InitialActivations(0).size(), static_cast<size_t>(kActivationWords));
}

TEST(Declared, IsReadFromText) {
  EXPECT_EQ(*ParseDeclared("all"), Declared::kAll);
  EXPECT_EQ(*ParseDeclared("current"), Declared::kCurrent);
  EXPECT_EQ(*ParseDeclared("none"), Declared::kNone);
  EXPECT_TRUE(absl::IsInvalidArgument(ParseDeclared("some").status()));
}

}  // namespace
}  // namespace vrambroker::pipeline
