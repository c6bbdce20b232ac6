// BeginUse and EndUse of a text-to-image pipeline with five declared runs, alternated with a bare
// echo.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/server/server.h"
#include "echo.grpc.pb.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_worker.h"

namespace vrambroker::bench {
namespace {

constexpr int kDeclaredRuns = 5;
constexpr int kWarmUpRounds = 50;
constexpr int64_t kCardBytes = 33715493273;  // 31.4 GiB
constexpr size_t kPayloadBytes = 64;
constexpr char kPipeline[] = "text_to_image";

struct Stage {
  const char* component;
  int layers;
  int64_t layer_bytes;
  int64_t fixed_bytes;
  double pass_seconds;
  int passes;
  int64_t activation_bytes;
};
constexpr Stage kStages[] = {
    {"text_encoder", 66, 226701339, 1181116006, 0.004, 1, 536870912},
    {"dit", 60, 232644061, 268435456, 0.3173, 40, 3113851289},
    {"vae", 8, 33554432, 0, 0.943, 1, 3113851289},
};

class EchoService final : public Echo::CallbackService {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const EchoMessage* request,
                                 EchoMessage* response) override {
    response->set_payload(request->payload());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

v1::Component ComponentOf(const Stage& stage) {
  v1::Component component;
  component.set_name(stage.component);
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(stage.layers);
  run->set_layer_bytes(stage.layer_bytes);
  component.set_fixed_bytes(stage.fixed_bytes);
  component.set_window_bytes(2 * stage.layer_bytes);
  component.set_pass_seconds(stage.pass_seconds);
  return component;
}

// Microseconds of one kind of call.
struct Timed {
  std::vector<double> round_trip;
  std::vector<double> deciding;
  std::vector<double> without_deciding;
  std::vector<double> echo;  // the echo before it
};

class RoundTrips {
 public:
  absl::StatusOr<Figures> Run(const BenchOptions& options);
  ~RoundTrips();

 private:
  absl::Status StartServer();
  absl::Status StartSessions();
  absl::Status DeclareRun();
  absl::Status Passage(bool timed);
  absl::Status RunStage(const Stage& stage, BenchWorker* worker, int number, bool timed);
  absl::StatusOr<double> TimeEcho();
  // Times one call, after an echo.
  template <typename CallIt>
  absl::Status Time(CallIt call, bool timed, Timed* into);
  Figures Report();

  std::string folder_;
  EchoService echo_service_;
  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Echo::Stub> echo_;
  std::unique_ptr<BenchWorker> driver_;
  std::vector<std::unique_ptr<BenchWorker>> workers_;
  std::vector<uint64_t> runs_;
  uint64_t next_id_ = 0;
  // Of the newest BeginUse or EndUse.
  std::atomic<double> deciding_us_{0};
  Timed begin_, end_;
  int waited_ = 0;
};

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

RoundTrips::~RoundTrips() {
  workers_.clear();
  driver_.reset();
  server_.reset();
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

absl::Status RoundTrips::StartServer() {
  folder_ = absl::StrCat("/tmp/vram-bench-", getpid());
  std::filesystem::create_directories(folder_);
  server::Options options;
  options.listen.push_back({folder_ + "/broker.sock", "", 0});
  options.lock_dir = folder_;
  options.emulated_devices.push_back(
      {absl::StrCat("bench-", getpid()), kCardBytes, 0, std::nullopt});
  server::ServerExtras extras;
  extras.log_descriptor = -1;
  extras.services.push_back(&echo_service_);
  extras.on_step = [this](const core::Event& event, absl::Duration took) {
    if (std::holds_alternative<core::BeginUseEvent>(event) ||
        std::holds_alternative<core::EndUseEvent>(event)) {
      deciding_us_ = absl::ToDoubleMicroseconds(took);
    }
  };
  auto server = server::Server::Start(options, extras);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  channel_ = grpc::CreateChannel(server_->addresses().front(), grpc::InsecureChannelCredentials());
  echo_ = Echo::NewStub(channel_);
  return absl::OkStatus();
}

absl::Status RoundTrips::StartSessions() {
  driver_ = std::make_unique<BenchWorker>(channel_, "driver", std::vector<v1::Component>());
  if (absl::Status status = driver_->Start(); !status.ok()) return status;
  v1::DeclarePipelineRequest pipeline;
  pipeline.set_session_id(driver_->session());
  pipeline.set_request_id("pipeline");
  pipeline.set_pipeline(kPipeline);
  for (const Stage& stage : kStages) {
    workers_.push_back(
        std::make_unique<BenchWorker>(channel_, absl::StrCat(stage.component, "-0"),
                                      std::vector<v1::Component>{ComponentOf(stage)}));
    if (absl::Status status = workers_.back()->Start(); !status.ok()) return status;
    v1::StageSpec* spec = pipeline.add_stages();
    spec->set_component(stage.component);
    spec->set_passes(stage.passes);
    spec->set_activation_bytes(stage.activation_bytes);
  }
  grpc::ClientContext context;
  v1::DeclarePipelineResponse response;
  absl::Status status = FromGrpc(driver_->stub()->DeclarePipeline(&context, pipeline, &response));
  while (status.ok() && runs_.size() < kDeclaredRuns) status = DeclareRun();
  return status;
}

absl::Status RoundTrips::DeclareRun() {
  grpc::ClientContext context;
  v1::DeclareRunRequest request;
  request.set_session_id(driver_->session());
  request.set_request_id(absl::StrCat("run-", ++next_id_));
  request.set_pipeline(kPipeline);
  v1::DeclareRunResponse response;
  const grpc::Status status = driver_->stub()->DeclareRun(&context, request, &response);
  if (status.ok()) runs_.push_back(response.run_id());
  return FromGrpc(status);
}

template <typename CallIt>
absl::Status RoundTrips::Time(CallIt call, bool timed, Timed* into) {
  const absl::StatusOr<double> echo = TimeEcho();
  if (!echo.ok()) return echo.status();
  const auto begin = std::chrono::steady_clock::now();
  const grpc::Status status = call();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  if (!status.ok() || !timed) return FromGrpc(status);
  into->echo.push_back(*echo);
  into->round_trip.push_back(took.count());
  into->deciding.push_back(deciding_us_);
  into->without_deciding.push_back(took.count() - deciding_us_);
  return absl::OkStatus();
}

absl::StatusOr<double> RoundTrips::TimeEcho() {
  EchoMessage request, response;
  request.set_payload(std::string(kPayloadBytes, 'x'));
  grpc::ClientContext context;
  const auto begin = std::chrono::steady_clock::now();
  const grpc::Status status = echo_->Call(&context, request, &response);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  if (!status.ok()) return FromGrpc(status);
  return took.count();
}

absl::Status RoundTrips::RunStage(const Stage& stage, BenchWorker* worker, int number, bool timed) {
  v1::BeginUseRequest begin;
  begin.set_session_id(worker->session());
  begin.set_request_id(absl::StrCat("begin-", ++next_id_));
  begin.set_component(stage.component);
  begin.set_run_id(runs_.front());
  begin.set_stage(number);
  begin.set_passes(stage.passes);
  begin.set_activation_bytes(stage.activation_bytes);
  v1::BeginUseResponse begun;
  worker->SetInUse(stage.component, true);
  Timed began;  // kept only where the use had not to wait for others to release
  grpc::ClientContext begin_context;
  absl::Status status =
      Time([&] { return worker->stub()->BeginUse(&begin_context, begin, &begun); }, timed, &began);
  if (!status.ok()) return status;
  if (begun.waited().seconds() != 0 || begun.waited().nanos() != 0) {
    waited_ += timed ? 1 : 0;
  } else if (timed) {
    begin_.round_trip.push_back(began.round_trip[0]);
    begin_.deciding.push_back(began.deciding[0]);
    begin_.without_deciding.push_back(began.without_deciding[0]);
    begin_.echo.push_back(began.echo[0]);
  }
  v1::EndUseRequest end = worker->MakeEnd(stage.component, begun);
  end.set_request_id(absl::StrCat("end-", ++next_id_));
  v1::EndUseResponse ended;
  grpc::ClientContext end_context;
  status = Time([&] { return worker->stub()->EndUse(&end_context, end, &ended); }, timed, &end_);
  if (status.ok()) worker->Apply(stage.component, ended);
  return status;
}

absl::Status RoundTrips::Passage(bool timed) {
  for (size_t i = 0; i < std::size(kStages); ++i) {
    absl::Status status = RunStage(kStages[i], workers_[i].get(), static_cast<int>(i), timed);
    if (!status.ok()) return status;
  }
  grpc::ClientContext context;
  v1::FinishRunRequest finish;
  finish.set_session_id(driver_->session());
  finish.set_request_id(absl::StrCat("finish-", ++next_id_));
  finish.set_run_id(runs_.front());
  v1::FinishRunResponse response;
  absl::Status status = FromGrpc(driver_->stub()->FinishRun(&context, finish, &response));
  if (!status.ok()) return status;
  runs_.erase(runs_.begin());
  return DeclareRun();
}

void ReportOne(const std::string& call, Timed* timed, Figures* figures) {
  const double echo = Percentile(&timed->echo, 0.5);
  figures->push_back({call + " p50", Percentile(&timed->round_trip, 0.5), "us", {}, true});
  figures->push_back({call + " p95", Percentile(&timed->round_trip, 0.95), "us", {}, true});
  figures->push_back({call + " p99", Percentile(&timed->round_trip, 0.99), "us", {}, true});
  figures->push_back({call + " echo p50", echo, "us", {}, true});
  figures->push_back({call + " echo p95", Percentile(&timed->echo, 0.95), "us", {}, true});
  figures->push_back({call + " echo p99", Percentile(&timed->echo, 0.99), "us", {}, true});
  figures->push_back({call + " deciding p50", Percentile(&timed->deciding, 0.5), "us", {}, true});
  figures->push_back({call + " deciding p99", Percentile(&timed->deciding, 0.99), "us", {}, true});
  figures->push_back({call + " p50 / echo, deciding included",
                      Percentile(&timed->round_trip, 0.5) / echo,
                      "x",
                      {},
                      true});
  figures->push_back({call + " p50 / echo, deciding apart",
                      Percentile(&timed->without_deciding, 0.5) / echo, "x", 1.3, true});
}

Figures RoundTrips::Report() {
  Figures figures;
  ReportOne("BeginUse", &begin_, &figures);
  ReportOne("EndUse", &end_, &figures);
  figures.push_back(
      {"BeginUse calls that waited (not timed)", static_cast<double>(waited_), "", {}, true});
  return figures;
}

absl::StatusOr<Figures> RoundTrips::Run(const BenchOptions& options) {
  if (absl::Status status = StartServer(); !status.ok()) return status;
  if (absl::Status status = StartSessions(); !status.ok()) return status;
  for (int i = 0; i < kWarmUpRounds + options.rounds; ++i) {
    absl::Status status = Passage(i >= kWarmUpRounds);
    if (!status.ok()) return status;
  }
  return Report();
}

}  // namespace

absl::StatusOr<Figures> RoundTripBench(const BenchOptions& options) {
  RoundTrips bench;
  return bench.Run(options);
}

}  // namespace vrambroker::bench
