// How soon the bytes of a worker that was killed are granted again, once the driver shows them as
// free: real processes on emulated cards whose driver needs so long to show it.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/offload/weights_writer.h"
#include "stage_workers/pipeline/child_process.h"
#include "stage_workers/pipeline/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_worker.h"
#include "tests/poll.h"
#include "vrambroker/v1/admin.grpc.pb.h"
#include "vrambroker/v1/stage.grpc.pb.h"

namespace vrambroker::bench {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kCardBytes = 24 * kMiB;
constexpr int kLayers = 18;
constexpr int kRounds = 5;
constexpr absl::Duration kPatience = absl::Seconds(20);

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

v1::WorkloadComponent Weights() {
  v1::WorkloadComponent component;
  component.set_name("holder");
  v1::LayerGroup* group = component.add_layer_groups();
  group->set_count(kLayers);
  group->set_layer_bytes(kMiB);
  return component;
}

// A broker, a stage worker that holds most of a card, and another worker that waits for it.
class Reclaim {
 public:
  Reclaim(const BenchOptions& options, absl::Duration lag) : bin_dir_(options.bin_dir), lag_(lag) {}

  // Milliseconds from the card's showing the dead one's bytes as free to the grant of them.
  absl::StatusOr<double> Round();

 private:
  absl::Status Start();
  absl::Status Hold();
  absl::Status WaitUntilItWaits();
  absl::Status Spawn(const std::string& name, const std::vector<std::string>& command,
                     std::unique_ptr<pipeline::ChildProcess>* child);
  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_->path(), "/", name);
  }
  std::shared_ptr<grpc::Channel> Channel(const std::string& name) const {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("unix:" + Path(name), grpc::InsecureChannelCredentials(), own);
  }

  const std::string bin_dir_;
  const absl::Duration lag_;
  std::optional<pipeline::TemporaryFolder> folder_;
  pipeline::TemporaryCardName card_name_;
  std::unique_ptr<card::EmulatedCard> card_;
  std::unique_ptr<pipeline::ChildProcess> broker_, holder_;
};

absl::Status Reclaim::Spawn(const std::string& name, const std::vector<std::string>& command,
                            std::unique_ptr<pipeline::ChildProcess>* child) {
  auto started = pipeline::ChildProcess::Start(command, Path(name + ".log"));
  if (!started.ok()) return started.status();
  *child = *std::move(started);
  return absl::OkStatus();
}

absl::Status Reclaim::Start() {
  auto folder = pipeline::TemporaryFolder::Create();
  if (!folder.ok()) return folder.status();
  folder_.emplace(*std::move(folder));
  card::EmulatedCardOptions options;
  options.capacity_bytes = kCardBytes;
  options.usage_lag = lag_;
  auto card = card::EmulatedCard::Create(card_name_.name(), options);
  if (!card.ok()) return card.status();
  card_ = *std::move(card);
  absl::Status status =
      Spawn("broker",
            {bin_dir_ + "/vram-brokerd", "--listen=unix:" + Path("broker"),
             absl::StrCat("--emulated-device=", card_name_.name(), "=", kCardBytes), "--reserve=0",
             "--lock-dir=" + folder_->path(), "--metrics-address="},
            &broker_);
  if (!status.ok()) return status;
  if (!Channel("broker")->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience))) {
    return absl::DeadlineExceededError("vram-brokerd does not answer");
  }
  const auto plan = offload::PlanWeights(Weights(), {}, 1);
  if (!plan.ok()) return plan.status();
  const std::string weights = offload::WeightsPath(folder_->path(), "holder");
  status = offload::WriteWeights(weights, *plan, [](int64_t) {});
  if (!status.ok()) return status;
  return Spawn(
      "holder",
      {bin_dir_ + "/vram-stage-worker", "--name=holder", "--component=holder",
       "--weights=" + weights, "--card=" + card_->Uuid(), "--listen=unix:" + Path("holder"),
       "--broker=unix:" + Path("broker"), "--lock-dir=" + folder_->path()},
      &holder_);
}

// One use of the holder, which keeps all of its layers.
absl::Status Reclaim::Hold() {
  const auto channel = Channel("holder");
  if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience))) {
    return absl::DeadlineExceededError("vram-stage-worker does not answer");
  }
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  v1::RunStageRequest request;
  request.set_component("holder");
  request.set_passes(1);
  request.set_activations(std::string(64, 'a'));
  v1::RunStageResponse response;
  absl::Status status =
      FromGrpc(v1::StageWorker::NewStub(channel)->RunStage(&context, request, &response));
  if (status.ok() && response.kept_layers() != kLayers) {
    return absl::InternalError(absl::StrCat("the holder kept ", response.kept_layers(), " layers"));
  }
  return status;
}

absl::Status Reclaim::WaitUntilItWaits() {
  const auto admin = v1::BrokerAdmin::NewStub(Channel("broker"));
  const bool waits = WaitFor(
      [&] {
        grpc::ClientContext context;
        v1::Picture picture;
        return admin->GetPicture(&context, v1::GetPictureRequest(), &picture).ok() &&
               picture.waiting_size() == 1;
      },
      kPatience);
  return waits ? absl::OkStatus() : absl::DeadlineExceededError("nobody waits");
}

absl::StatusOr<double> Reclaim::Round() {
  if (absl::Status status = Start(); !status.ok()) return status;
  if (absl::Status status = Hold(); !status.ok()) return status;
  v1::Component component;
  component.set_name("c");
  component.add_layer_runs()->set_count(kLayers);
  component.mutable_layer_runs(0)->set_layer_bytes(kMiB);
  BenchWorker waiter(Channel("broker"), "waiter", {component});
  if (absl::Status status = waiter.Start(); !status.ok()) return status;
  // Stopped, it cannot release what it is asked for.
  kill(holder_->pid(), SIGSTOP);
  std::atomic<int64_t> granted{0};
  grpc::Status begun;
  std::thread asks([&] {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::BeginUseRequest request;
    request.set_session_id(waiter.session());
    request.set_request_id("b");
    request.set_component("c");
    request.set_min_resident_layers(kLayers);
    v1::BeginUseResponse response;
    begun = waiter.stub()->BeginUse(&context, request, &response);
    granted = absl::ToUnixMicros(absl::Now());
  });
  absl::Status waits = WaitUntilItWaits();
  kill(holder_->pid(), SIGKILL);
  int64_t shown_free = 0;
  WaitFor(
      [&] {
        const auto usage = card_->ReadUsage();
        if (usage.ok() && usage->total_used == 0) shown_free = absl::ToUnixMicros(absl::Now());
        return shown_free != 0;
      },
      kPatience);
  asks.join();
  if (!waits.ok()) return waits;
  if (!begun.ok()) return FromGrpc(begun);
  return static_cast<double>(std::max<int64_t>(0, granted - shown_free)) / 1000;
}

}  // namespace

absl::StatusOr<Figures> ReclaimBench(const BenchOptions& options) {
  Figures figures;
  for (const int lag : {0, 250, 2000}) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      const absl::StatusOr<double> took = Reclaim(options, absl::Milliseconds(lag)).Round();
      if (!took.ok()) return took.status();
      times.push_back(*took);
    }
    figures.push_back(
        {absl::StrCat("shown free to granted, driver ", lag, " ms late, p50 of ", kRounds),
         Percentile(&times, 0.5), "ms", std::nullopt});
    figures.push_back({"  the slowest", Percentile(&times, 1), "ms", 50.0, true});
  }
  return figures;
}

}  // namespace vrambroker::bench
