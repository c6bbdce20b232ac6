// What a broker with many sessions takes for the end of a use, beside one with few.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/server/server.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_worker.h"

namespace vrambroker::bench {
namespace {

constexpr int kDevices = 8;
constexpr int kComponents = 4;
constexpr int kFew = 10;
constexpr int kMany = 200;
constexpr int kLayers = 8;
constexpr int64_t kLayerBytes = 64 << 20;
// Less than a fourth of what the components of a device would hold in all where there are many.
constexpr int64_t kCardBytes = int64_t{12} << 30;
constexpr int64_t kActivationBytes = 512 << 20;
constexpr int kWarmUpUses = 100;

// A broker in this process with so many sessions, those of a device one after the other.
class Fleet {
 public:
  explicit Fleet(int sessions) : sessions_(sessions) {}
  ~Fleet() {
    workers_.clear();
    server_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  absl::Status Start() {
    folder_ = absl::StrCat("/tmp/vram-scale-", getpid(), "-", sessions_);
    std::filesystem::create_directories(folder_);
    server::Options options;
    options.listen.push_back({folder_ + "/broker.sock", "", 0});
    options.lock_dir = folder_;
    options.metrics_address = "";
    for (int i = 0; i < kDevices; ++i) {
      options.emulated_devices.push_back(
          {absl::StrCat("scale-", getpid(), "-", sessions_, "-", i), kCardBytes, 0, std::nullopt});
    }
    server::ServerExtras extras;
    extras.log_descriptor = -1;
    auto server = server::Server::Start(options, extras);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    for (int i = 0; i < sessions_; ++i) {
      grpc::ChannelArguments own;
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto channel = grpc::CreateCustomChannel(server_->addresses().front(),
                                                     grpc::InsecureChannelCredentials(), own);
      std::vector<v1::Component> components;
      components.reserve(kComponents);
      for (int c = 0; c < kComponents; ++c) components.push_back(ComponentOn(i % kDevices, c));
      workers_.push_back(
          std::make_unique<BenchWorker>(channel, absl::StrCat("w", i), std::move(components)));
      if (absl::Status status = workers_.back()->Start(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // One use of the next component; microseconds of its end.
  absl::StatusOr<double> Use() {
    const int number = uses_++;
    BenchWorker& worker = *workers_[static_cast<size_t>(number % sessions_)];
    const std::string component = absl::StrCat("c", number / sessions_ % kComponents);
    v1::BeginUseRequest begin;
    begin.set_session_id(worker.session());
    begin.set_request_id(absl::StrCat("b", number));
    begin.set_component(component);
    begin.set_passes(4);
    begin.set_activation_bytes(kActivationBytes);
    v1::BeginUseResponse begun;
    if (absl::Status status = Call(&v1::VramBroker::Stub::BeginUse, worker, begin, &begun);
        !status.ok()) {
      return status;
    }
    worker.SetInUse(component, true);
    v1::EndUseRequest end = worker.MakeEnd(component, begun);
    end.set_request_id(absl::StrCat("e", number));
    end.mutable_measured()->set_passes(4);
    end.mutable_measured()->set_compute_seconds(0.04);
    end.mutable_measured()->set_bytes_loaded(kLayers * kLayerBytes);
    end.mutable_measured()->set_copy_seconds(0.05);
    v1::EndUseResponse ended;
    const auto from = std::chrono::steady_clock::now();
    absl::Status status = Call(&v1::VramBroker::Stub::EndUse, worker, end, &ended);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - from;
    if (!status.ok()) return status;
    worker.Apply(component, ended);
    return took.count();
  }

 private:
  v1::Component ComponentOn(int device, int number) {
    v1::Component component;
    component.set_name(absl::StrCat("c", number));
    component.set_device_uuid(
        absl::StrCat("emulated:scale-", getpid(), "-", sessions_, "-", device));
    v1::LayerRun* run = component.add_layer_runs();
    run->set_count(kLayers);
    run->set_layer_bytes(kLayerBytes);
    component.set_window_bytes(2 * kLayerBytes);
    component.set_pass_seconds(0.01);
    return component;
  }

  template <typename Method, typename Request, typename Response>
  static absl::Status Call(Method method, BenchWorker& worker, const Request& request,
                           Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const grpc::Status status = (worker.stub()->*method)(&context, request, response);
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

  const int sessions_;
  std::string folder_;
  std::unique_ptr<server::Server> server_;
  std::vector<std::unique_ptr<BenchWorker>> workers_;
  int uses_ = 0;
};

}  // namespace

absl::StatusOr<Figures> ScaleBench(const BenchOptions& options) {
  Fleet few(kFew), many(kMany);
  for (Fleet* fleet : {&few, &many}) {
    if (absl::Status status = fleet->Start(); !status.ok()) return status;
  }
  std::vector<double> of_few, of_many;
  // In turns, so that whatever else the machine does meets both.
  for (int i = 0; i < kWarmUpUses + 2 * options.rounds; ++i) {
    for (auto [fleet, times] : {std::pair(&few, &of_few), std::pair(&many, &of_many)}) {
      const absl::StatusOr<double> took = fleet->Use();
      if (!took.ok()) return took.status();
      if (i >= kWarmUpUses) times->push_back(*took);
    }
  }
  const double few_p99 = Percentile(&of_few, 0.99), many_p99 = Percentile(&of_many, 0.99);
  Figures figures;
  figures.push_back({absl::StrCat("EndUse of ", kFew, " sessions, 8 devices, p50"),
                     Percentile(&of_few, 0.5), "us", std::nullopt});
  figures.push_back({"  p99", few_p99, "us", std::nullopt});
  figures.push_back(
      {absl::StrCat("EndUse of ", kMany, " sessions with ", kComponents, " components each, p50"),
       Percentile(&of_many, 0.5), "us", std::nullopt});
  figures.push_back({"  p99", many_p99, "us", std::nullopt});
  figures.push_back({"  p99, many against few", many_p99 / few_p99, "x", 3.0, true});
  return figures;
}

}  // namespace vrambroker::bench
