// Loading ahead of a declared run over a slow link, and a target withdrawn while it goes on.
#include <memory>
#include <string>

#include "client/cpp/broker_client.h"
#include "tests/e2e/harness.h"

namespace vrambroker::e2e {
namespace {

class LoadAheadTest : public E2eTest {
 protected:
  // A layer takes an eighth of a second.
  static constexpr double kRate = 8.0 * kMiB;

  void StartAll() {
    CardSetup card;
    card.rate = kRate;
    MakeCard(card);
    StartBroker({"--load-ahead"});
    next_ = &StartWorker("next");
    client::ClientOptions options;
    options.address = broker_address();
    options.worker = "driver";
    absl::StatusOr<std::unique_ptr<client::BrokerClient>> driver =
        client::BrokerClient::Create(std::move(options));
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    driver_ = *std::move(driver);
    ASSERT_TRUE(driver_->WaitReady(absl::Now() + absl::Seconds(10)).ok());
    v1::DeclarePipelineRequest pipeline;
    pipeline.set_pipeline("images");
    pipeline.add_stages()->set_component("next");
    const absl::Status declared = driver_->DeclarePipeline(pipeline);
    ASSERT_TRUE(declared.ok()) << declared.ToString();
    const absl::StatusOr<uint64_t> run = driver_->DeclareRun("images");
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    run_ = *run;
  }

  StageWorker* next_ = nullptr;
  std::unique_ptr<client::BrokerClient> driver_;
  uint64_t run_ = 0;
};

TEST_F(LoadAheadTest, StopsAfterTheLayerAtHandWhenItsBytesAreNeeded) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  // Without a pool, which would stay in the way of loading on.
  StageWorker& other = StartWorker("other", {.layers = 4,
                                             .layer_bytes = kMiB / 4,
                                             .pass_seconds = 0.5,
                                             .flags = {"--caching-allocator=false"}});
  ASSERT_TRUE(Eventually([&] { return Component("next/next").held_layers() >= 2; }));
  EXPECT_EQ(Component("next/next").target_layers(), 8);
  EXPECT_EQ(Component("next/next").charge_bytes(), 8 * kMiB);

  const std::unique_ptr<StageCall> call = other.Begin(Stage(18 * kMiB));
  ASSERT_TRUE(Eventually([&] { return Component("next/next").target_layers() <= 1; }));
  const int64_t withdrawn_at = next_->Component().bytes_to_device();
  ASSERT_TRUE(Eventually([&] {
    const v1::Picture picture = Picture();
    const int64_t on_card = OnCard(next_->pid());
    bool admitted = false;
    for (const v1::ComponentPicture& c : picture.devices(0).components()) {
      if (c.id() == "other/other") admitted = c.use_id() != 0;
    }
    for (const v1::ComponentPicture& c : picture.devices(0).components()) {
      if (c.id() == "next/next" && !admitted) {
        EXPECT_GE(c.charge_bytes(), on_card);
      }
    }
    return admitted;
  }));
  EXPECT_LE(OnCard(next_->pid()), kMiB);
  EXPECT_LE(next_->Component().bytes_to_device(), withdrawn_at + kMiB);
  EXPECT_LT(next_->Component().bytes_to_device(), 8 * kMiB);
  EXPECT_TRUE(call->status().ok()) << call->status().error_message();

  // The run is still to come: loading begins again, and its first pass finds everything there.
  ASSERT_TRUE(Eventually([&] { return Component("next/next").held_layers() == 8; }));
  v1::RunStageRequest request = Stage();
  request.set_run_id(run_);
  EXPECT_EQ(next_->Run(request).bytes_to_device(), 0);
}

TEST_F(LoadAheadTest, StopsAndReleasesWhenTheRunIsGivenUp) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  ASSERT_TRUE(Eventually([&] { return Component("next/next").held_layers() >= 2; }));
  ASSERT_TRUE(driver_->FinishRun(run_).ok());
  const int64_t withdrawn_at = next_->Component().bytes_to_device();
  ASSERT_TRUE(Eventually([&] {
    const int64_t charge = Component("next/next").charge_bytes();
    EXPECT_GE(charge, OnCard(next_->pid()) - Device().pooled_bytes());
    return charge == 0;
  }));
  EXPECT_EQ(next_->Component().held_layers(), 0);
  EXPECT_LE(next_->Component().bytes_to_device(), withdrawn_at + kMiB);
  EXPECT_EQ(Device().draining_bytes(), 0);
}

}  // namespace
}  // namespace vrambroker::e2e
