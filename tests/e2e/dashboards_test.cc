// Every query of the Grafana dashboards against a real Prometheus that has seen a real broker
// grant, keep, refuse, revoke, load ahead and wait.
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/broker_client.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/prometheus.h"
#include "tests/run_program.h"

namespace vrambroker::e2e {
namespace {

class DashboardsTest : public E2eTest {
 protected:
  // A layer takes some 16 ms.
  static constexpr double kRate = 64.0 * kMiB;
  static constexpr absl::Duration kPatience = absl::Seconds(40);

  void StartAll() {
    CardSetup card;
    card.rate = kRate;
    MakeCard(card);
    StartBroker({"--metrics-address=127.0.0.1:0", "--release-deadline=300ms"});
    ASSERT_TRUE(Eventually([&] { return !MetricsAddressIn(broker().Log()).empty(); }));
    const std::string target = MetricsAddressIn(broker().Log());
    const std::string rules = SOURCE_FOLDER "/k8s/monitoring/alerts.yaml";
    StartPrometheus("plain", {target, "", rules});
    StartPrometheus("labelled", {target, "{cluster: c.1, namespace: n1}", rules});
    a_ = &StartWorker("a", {.pass_seconds = 0.1});
    b_ = &StartWorker("b", {.pass_seconds = 0.1});
    StartWorker("c", {.layers = 4, .layer_bytes = kMiB / 4});
    ASSERT_NO_FATAL_FAILURE(StartDriver());
    // What is counted from now on was 0 before.
    ASSERT_NO_FATAL_FAILURE(
        WaitUntilSeen("count(vram_broker_component_kept_bytes_total == 0) == 6"));
  }
  void StartPrometheus(const std::string& name, const Scrape& scrape) {
    const std::string place = folder() + "/prometheus-" + name;
    ASSERT_TRUE(std::filesystem::create_directory(place));
    addresses_.push_back(FreeAddress());
    prometheuses_.push_back(
        StartProgram("prometheus-" + name, PrometheusCommand(place, addresses_.back(), scrape)));
  }
  void StartDriver() {
    client::ClientOptions options;
    options.address = broker_address();
    options.worker = "driver";
    absl::StatusOr<std::unique_ptr<client::BrokerClient>> driver =
        client::BrokerClient::Create(std::move(options));
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    driver_ = *std::move(driver);
    ASSERT_TRUE(driver_->WaitReady(absl::Now() + absl::Seconds(10)).ok());
    Declare("images", {"a", "b"});
    Declare("edits", {"c"});
  }
  void Declare(const std::string& name, const std::vector<std::string>& stages) {
    v1::DeclarePipelineRequest pipeline;
    pipeline.set_pipeline(name);
    for (const std::string& component : stages) pipeline.add_stages()->set_component(component);
    const absl::Status declared = driver_->DeclarePipeline(pipeline);
    ASSERT_TRUE(declared.ok()) << declared.ToString();
  }
  // Until each Prometheus has an answer to this query.
  void WaitUntilSeen(const std::string& query) {
    for (size_t i = 0; i < addresses_.size(); ++i) {
      std::string answer;
      ASSERT_TRUE(Eventually(
          [&] {
            answer = AskPrometheus(addresses_[i], query);
            return absl::StrContains(answer, "\"value\":");
          },
          kPatience))
          << query << ": " << answer << prometheuses_[i]->Log();
    }
  }
  uint64_t DeclareRun(const std::string& pipeline) {
    const absl::StatusOr<uint64_t> run = driver_->DeclareRun(pipeline);
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    return run.ok() ? *run : 0;
  }
  // What is loaded ahead for it is of no use to anybody once it is given up.
  void GiveUpARun() {
    const uint64_t run = DeclareRun("edits");
    ASSERT_TRUE(Eventually([&] { return Component("c/c").held_layers() == 4; }));
    ASSERT_TRUE(driver_->FinishRun(run).ok());
    ASSERT_TRUE(Eventually([&] { return Component("c/c").held_layers() == 0; }));
  }
  // Both stages of each of `runs`, which are declared first.
  void RunImages(int runs) {
    std::vector<uint64_t> ids;
    for (int i = 0; i < runs; ++i) ids.push_back(DeclareRun("images"));
    ASSERT_NO_FATAL_FAILURE(WaitUntilSeen("vram_broker_runs{state=\"declared\"} > 0"));
    for (const uint64_t id : ids) {
      v1::RunStageRequest request = Stage(4 * kMiB, 2);
      request.set_run_id(id);
      a_->Run(request);
      request.set_stage(1);
      b_->Run(request);
    }
  }
  // A holds out while b's use needs its bytes.
  void WaitForAnOverdueRelease() {
    a_->Run(Stage());
    ASSERT_TRUE(Eventually([&] { return Component("a/a").held_layers() > 0; }));
    a_->Freeze();
    const std::unique_ptr<StageCall> call = b_->Begin(Stage(14 * kMiB));
    EXPECT_TRUE(Eventually([&] { return Session("a").overdue_targets() == 1; }));
    WaitUntilSeen("vram_broker_worker_overdue_bytes > 0 and on () vram_broker_waiting_uses > 0");
    a_->Thaw();
    EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  }
  void CheckQueries(const std::string& address, const std::vector<std::string>& flags) {
    std::vector<std::string> words = {
        "PYTHONDONTWRITEBYTECODE=1", "python3", SOURCE_FOLDER "/tests/e2e/dashboard_queries.py",
        absl::StrCat("--prometheus=", address), absl::StrCat("--since=", absl::FormatTime(began_))};
    words.insert(words.end(), flags.begin(), flags.end());
    const ProgramEnd end = RunProgram(words);
    EXPECT_EQ(end.status, 0) << end.output;
    EXPECT_THAT(end.output, testing::HasSubstr(" queries answered"));
  }

  const absl::Time began_ = absl::Now();
  StageWorker* a_ = nullptr;
  StageWorker* b_ = nullptr;
  std::unique_ptr<client::BrokerClient> driver_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Process>> prometheuses_;
};

TEST_F(DashboardsTest, EveryQueryIsAnswered) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  ASSERT_NO_FATAL_FAILURE(GiveUpARun());
  ASSERT_NO_FATAL_FAILURE(RunImages(3));
  // Room for 20 MiB: b's layers go, a's use has some of its own only; and b's come back at once.
  a_->Run(Stage(14 * kMiB));
  b_->Run(Stage());
  EXPECT_EQ(a_->Begin(Stage(64 * kMiB))->status().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_NO_FATAL_FAILURE(WaitForAnOverdueRelease());
  for (const char* query :
       {"vram_broker_decisions_total{kind=\"refusal\"} > 0", "vram_broker_evicted_bytes_total > 0",
        "vram_broker_released_bytes_total > 0", "vram_broker_partial_grants_total > 0",
        "vram_broker_loaded_ahead_bytes_total > 0",
        "sum(vram_broker_component_regret_bytes_total) > 0",
        "sum(vram_broker_component_kept_bytes_total) > 0", "vram_broker:stall_avoided:ratio_1h > 0",
        "vram_broker:regret_bytes:rate10m > 0"}) {
    ASSERT_NO_FATAL_FAILURE(WaitUntilSeen(query));
  }
  CheckQueries(addresses_[0], {});
  CheckQueries(addresses_[1],
               {"--set=cluster=c.1", "--set=namespace=n1",
                "--set=instance=" + MetricsAddressIn(broker().Log()), "--set=device=" + card_uuid(),
                "--set=worker=a", "--set=worker=b", "--set=pipeline=images"});
}

}  // namespace
}  // namespace vrambroker::e2e
