#include "stage_workers/worker/stage_service.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/worker_test_util.h"

namespace vrambroker::worker {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);

v1::RunStageRequest GoodRequest() {
  v1::RunStageRequest request;
  request.set_component("te");
  request.set_passes(2);
  request.set_activation_bytes(4096);
  request.set_activations(std::string(512, 'a'));
  return request;
}

TEST(StageRequest, TakesWhatTheContractAllows) {
  v1::RunStageRequest request = GoodRequest();
  request.set_run_id(9);
  request.set_stage(2);
  request.set_passes(0);
  request.mutable_wait_at_most()->set_seconds(3);
  const absl::StatusOr<StageRequest> parsed = ToStageRequest(request, kNow, absl::InfiniteFuture());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->run_id, 9u);
  EXPECT_EQ(parsed->stage, 2);
  EXPECT_EQ(parsed->passes, 1);
  EXPECT_EQ(parsed->activations.size(), 64u);
  EXPECT_EQ(parsed->wait_until, kNow + absl::Seconds(3));
}

TEST(StageRequest, TheEarlierOfBothDeadlinesCounts) {
  v1::RunStageRequest request = GoodRequest();
  EXPECT_EQ(ToStageRequest(request, kNow, kNow + absl::Seconds(1))->wait_until,
            kNow + absl::Seconds(1));
  request.mutable_wait_at_most()->set_seconds(3);
  EXPECT_EQ(ToStageRequest(request, kNow, kNow + absl::Seconds(1))->wait_until,
            kNow + absl::Seconds(1));
}

TEST(StageRequest, NamesWhatIsOutOfRange) {
  const std::vector<std::pair<std::string, std::function<void(v1::RunStageRequest&)>>> bad = {
      {"passes", [](auto& r) { r.set_passes(-1); }},
      {"passes", [](auto& r) { r.set_passes(1'000'001); }},
      {"activation_bytes", [](auto& r) { r.set_activation_bytes(-1); }},
      {"stage", [](auto& r) { r.set_run_id(1), r.set_stage(64); }},
      {"stage", [](auto& r) { r.set_run_id(1), r.set_stage(-1); }},
      {"activations", [](auto& r) { r.clear_activations(); }},
      {"activations", [](auto& r) { r.set_activations(std::string(65, 'a')); }},
      {"activations", [](auto& r) { r.set_activations(std::string((1 << 20) + 64, 'a')); }},
      {"wait_at_most", [](auto& r) { r.mutable_wait_at_most()->set_seconds(-1); }},
  };
  for (const auto& [field, change] : bad) {
    v1::RunStageRequest request = GoodRequest();
    change(request);
    const absl::Status status = ToStageRequest(request, kNow, absl::InfiniteFuture()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
    EXPECT_THAT(std::string(status.message()), HasSubstr("is allowed"));
  }
}

// A worker without a broker, served over a socket, and a client of it.
class StageServerTest : public testing::Test {
 protected:
  void StartServer(WorkerOptions options) {
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create(options);
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    ASSERT_TRUE(worker_->Start(absl::InfiniteFuture()).ok());
    address_ = absl::StrCat("unix:", rig_.folder(), "/s");
    absl::StatusOr<std::unique_ptr<StageServer>> server =
        StageServer::Start(worker_.get(), address_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ =
        v1::StageWorker::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }

  grpc::Status Run(const v1::RunStageRequest& request, v1::RunStageResponse* response) {
    grpc::ClientContext context;
    return stub_->RunStage(&context, request, response);
  }
  v1::StageWorkerStatus GetStatus() {
    grpc::ClientContext context;
    v1::StageWorkerStatus status;
    EXPECT_TRUE(stub_->GetStatus(&context, {}, &status).ok());
    return status;
  }

  WorkerRig rig_;
  std::string address_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<StageServer> server_;
  std::unique_ptr<v1::StageWorker::Stub> stub_;
};

TEST_F(StageServerTest, RunsAStageAndTellsWhatItDid) {
  WorkerOptions options = rig_.Options("te");
  options.resident = {.count = 5};
  options.rules.retain.mode = RetainMode::kAll;
  StartServer(options);
  v1::RunStageResponse response;
  ASSERT_TRUE(Run(GoodRequest(), &response).ok());
  EXPECT_EQ(response.activations().size(), 512u);
  EXPECT_NE(response.activations(), GoodRequest().activations());
  EXPECT_EQ(response.resident_layers(), 5);
  EXPECT_EQ(response.kept_layers(), 5);
  EXPECT_EQ(response.component_layers(), kTestLayers);
  EXPECT_GT(response.bytes_to_device(), 0);
  EXPECT_GT(response.peak_bytes(), 5 * kLayerBytes);
  EXPECT_FALSE(response.brokered());

  const v1::StageWorkerStatus status = GetStatus();
  EXPECT_EQ(status.worker(), "te");
  ASSERT_EQ(status.components_size(), 1);
  EXPECT_EQ(status.components(0).uses(), 1);
  EXPECT_EQ(status.components(0).held_layers(), 5);
  EXPECT_EQ(status.device_uuid(), rig_.card()->Uuid());
  EXPECT_EQ(status.device_used_bytes(), rig_.Used());
  EXPECT_GE(status.device_peak_bytes(), response.peak_bytes());
  EXPECT_FALSE(status.attached());
}

TEST_F(StageServerTest, AFullResetReleasesWhatWasRetained) {
  WorkerOptions options = rig_.Options("te");
  options.resident = {.count = 5};
  options.rules.retain.mode = RetainMode::kAll;
  StartServer(options);
  v1::RunStageResponse response;
  ASSERT_TRUE(Run(GoodRequest(), &response).ok());
  grpc::ClientContext context;
  v1::ReleaseAllResponse released;
  ASSERT_TRUE(stub_->ReleaseAll(&context, {}, &released).ok());
  EXPECT_GE(released.released_bytes(), 5 * kLayerBytes);
  EXPECT_EQ(GetStatus().components(0).held_layers(), 0);
  EXPECT_EQ(rig_.Used(), GetStatus().components(0).fixed_bytes());
}

TEST_F(StageServerTest, AFullResetOfWhatCannotBeLoadedAgainIsRefused) {
  WorkerOptions options = rig_.Options("te");
  options.lifetime = offload::Lifetime::kPermanent;
  options.host_copy = false;
  StartServer(options);
  grpc::ClientContext context;
  v1::ReleaseAllResponse released;
  EXPECT_EQ(stub_->ReleaseAll(&context, {}, &released).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(GetStatus().components(0).held_layers(), kTestLayers);
}

TEST_F(StageServerTest, ComponentsOfOneWorkerAreServedByName) {
  WorkerOptions options = rig_.Options("te");
  options.components.push_back("vae");
  options.weights.push_back(rig_.Weights("vae"));
  StartServer(options);
  v1::RunStageResponse te;
  v1::RunStageResponse vae;
  v1::RunStageRequest request = GoodRequest();
  ASSERT_TRUE(Run(request, &te).ok());
  request.set_component("vae");
  ASSERT_TRUE(Run(request, &vae).ok());
  EXPECT_NE(te.activations(), vae.activations());
  for (const char* name : {"", "dit"}) {
    request.set_component(name);
    const grpc::Status status = Run(request, &vae);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_THAT(status.error_message(), HasSubstr("te, vae"));
  }
}

TEST_F(StageServerTest, OutOfMemoryIsAnAnswerAndTheWorkerGoesOn) {
  WorkerOptions options = rig_.Options("te");
  options.resident = {};
  StartServer(options);
  v1::RunStageRequest request = GoodRequest();
  request.set_activation_bytes(rig_.card()->CapacityBytes());
  v1::RunStageResponse response;
  const grpc::Status status = Run(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("out of memory"));
  EXPECT_TRUE(Run(GoodRequest(), &response).ok());
  EXPECT_EQ(GetStatus().components(0).failed_uses(), 1);
}

TEST_F(StageServerTest, ASecondServerOfASocketIsRefused) {
  StartServer(rig_.Options("te"));
  EXPECT_TRUE(absl::IsAlreadyExists(StageServer::Start(worker_.get(), address_).status()));
  EXPECT_EQ(GetStatus().worker(), "te");
}

TEST_F(StageServerTest, OtherAddressesAreRefused) {
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create(rig_.Options("te"));
  ASSERT_TRUE(worker.ok()) << worker.status();
  for (const std::string& address :
       {std::string("localhost:0"), std::string("unix:"), "unix:/" + std::string(200, 'x')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(StageServer::Start(worker->get(), address).status()));
  }
}

TEST(Worker, RefusesOptionsThatMakeNoSense) {
  WorkerRig rig;
  const std::vector<std::function<void(WorkerOptions&)>> bad = {
      [](WorkerOptions& o) { o.components.clear(); },
      [](WorkerOptions& o) { o.weights.clear(); },
      [](WorkerOptions& o) {
        o.components = {"te", "te"}, o.weights.push_back(o.weights[0]);
      },
      [](WorkerOptions& o) { o.time_scale = 0; },
      [](WorkerOptions& o) { o.pass_seconds = -1; },
      [](WorkerOptions& o) { o.window_layers = 0; },
      [](WorkerOptions& o) { o.resident = {.count = kTestLayers + 1}; },
  };
  for (const auto& change : bad) {
    WorkerOptions options = rig.Options("te");
    change(options);
    EXPECT_TRUE(absl::IsInvalidArgument(Worker::Create(options).status()));
  }
  WorkerOptions options = rig.Options("te");
  options.card_uuid = "emulated:nobody-made-this";
  EXPECT_TRUE(absl::IsNotFound(Worker::Create(options).status()));
}

}  // namespace
}  // namespace vrambroker::worker
