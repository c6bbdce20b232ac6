// What a watcher of the page costs a broker under load: the same load without and with one, in
// turn.
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/observe/unique_fd.h"
#include "tests/bench/bench.h"
#include "tests/bench/broker_process.h"
#include "tests/http_get.h"
#include "tests/poll.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::bench {
namespace {

constexpr int kWorkers = 16;
// Uses that begin and end, in a second: each changes the picture. All fit, so that none waits.
constexpr double kUsesPerSecond = 100;
constexpr int kRounds = 6;
constexpr absl::Duration kWindow = absl::Seconds(3);
constexpr double kGoalShare = 2;  // percent of a core

v1::Component MakeComponent() {
  v1::Component component;
  component.set_name("c");
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(20);
  run->set_layer_bytes(64 << 20);
  return component;
}

// A worker without a device, whose layers always stay.
class Worker {
 public:
  Worker(const std::shared_ptr<grpc::Channel>& channel, const std::string& name)
      : stub_(v1::VramBroker::NewStub(channel)), name_(name) {}
  ~Worker() { context_.TryCancel(); }

  absl::Status Start() {
    v1::AttachRequest request;
    request.set_worker(name_);
    request.set_attach_number(1);
    *request.add_components() = MakeComponent();
    reader_ = stub_->Attach(&context_, request);
    v1::Directive first;
    if (!reader_->Read(&first) || !first.has_welcome()) {
      return absl::InternalError(absl::StrCat(name_, " got no welcome"));
    }
    session_ = first.welcome().session_id();
    return absl::OkStatus();
  }

  // Begins and ends a use of all layers.
  bool Use(int64_t number) {
    v1::BeginUseRequest begin;
    begin.set_session_id(session_);
    begin.set_request_id(absl::StrCat("b", number));
    begin.set_component("c");
    begin.set_passes(4);
    begin.set_activation_bytes(256 << 20);
    v1::BeginUseResponse begun;
    grpc::ClientContext begin_context;
    begin_context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    if (!stub_->BeginUse(&begin_context, begin, &begun).ok()) return false;
    v1::EndUseRequest end;
    end.set_session_id(session_);
    end.set_request_id(absl::StrCat("e", number));
    end.set_use_id(begun.use_id());
    end.mutable_snapshot()->set_sequence(++sequence_);
    v1::ComponentResidency* held = end.mutable_snapshot()->add_components();
    held->set_component("c");
    held->set_held_layers(begun.resident_layers());
    held->set_completed_generation(begun.generation());
    held->set_fixed_placed(true);
    v1::EndUseResponse ended;
    grpc::ClientContext end_context;
    return stub_->EndUse(&end_context, end, &ended).ok();
  }

 private:
  const std::unique_ptr<v1::VramBroker::Stub> stub_;
  const std::string name_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Directive>> reader_;
  uint64_t session_ = 0;
  uint64_t sequence_ = 0;
};

// Workers of one broker whose uses begin and end at a fixed rate until it goes.
class Load {
 public:
  absl::Status Start(const std::string& address) {
    for (int i = 0; i < kWorkers; ++i) {
      auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
      if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(20)))) {
        return absl::DeadlineExceededError("vram-brokerd does not answer within 20 s");
      }
      workers_.push_back(std::make_unique<Worker>(channel, absl::StrCat("w", i)));
      if (absl::Status status = workers_.back()->Start(); !status.ok()) return status;
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }
  ~Load() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int64_t uses() const { return uses_; }
  int64_t failed() const { return failed_; }

 private:
  void Run() {
    absl::Time next = absl::Now();
    for (int64_t number = 0; !stopping_; ++number) {
      Worker* worker = workers_[static_cast<size_t>(number % kWorkers)].get();
      ++(worker->Use(number) ? uses_ : failed_);
      next += absl::Seconds(1 / kUsesPerSecond);
      WaitFor([&] { return stopping_ || absl::Now() >= next; });
    }
  }

  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> uses_{0};
  std::atomic<int64_t> failed_{0};
  std::thread thread_;
};

// A browser, as far as the broker sees it: reads all events at once, until it goes.
class Watcher {
 public:
  explicit Watcher(const std::string& page) : fd_(ConnectToLoopback(page)) {
    const std::string request = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    (void)!send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL);
    thread_ = std::thread([this] { Run(); });
  }
  ~Watcher() {
    shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
  }
  int64_t pictures() const { return pictures_; }
  int64_t bytes() const { return bytes_; }

 private:
  void Run() {
    static constexpr absl::string_view kBegin = "event: picture";
    std::string rest;
    char buffer[65536];
    for (ssize_t got; (got = recv(fd_.get(), buffer, sizeof(buffer), 0)) > 0;) {
      bytes_ += got;
      rest.append(buffer, static_cast<size_t>(got));
      size_t at = 0, after = 0;
      while ((at = rest.find(kBegin.data(), after, kBegin.size())) != std::string::npos) {
        ++pictures_;
        after = at + kBegin.size();
      }
      rest.erase(0, std::max(after, rest.size() - std::min(rest.size(), kBegin.size())));
    }
  }

  const observe::UniqueFd fd_;
  std::atomic<int64_t> pictures_{0};
  std::atomic<int64_t> bytes_{0};
  std::thread thread_;
};

// HOST:PORT of the page, which the broker has logged at its start.
absl::StatusOr<std::string> PageOf(const BrokerProcess& broker) {
  const std::string before = "page=http://";
  std::string log;
  if (!WaitFor([&] { return (log = broker.log()).find(before) != std::string::npos; })) {
    return absl::DeadlineExceededError("vram-brokerd names no page in its log within 20 s");
  }
  const size_t begin = log.find(before) + before.size();
  return log.substr(begin, log.find_first_of(" \n\"", begin) - begin);
}

// Of one core, in percent.
double CpuDuring(const BrokerProcess& broker, absl::Duration window) {
  const double before = broker.CpuSeconds();
  const absl::Time began = absl::Now();
  WaitFor([] { return false; }, window);
  return 100 * (broker.CpuSeconds() - before) / absl::ToDoubleSeconds(absl::Now() - began);
}

}  // namespace

absl::StatusOr<Figures> PageBench(const BenchOptions& options) {
  BrokerProcess broker(options.bin_dir + "/vram-brokerd");
  absl::Status status = broker.Start({"--page-address=127.0.0.1:0", "--metrics-address="});
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> page = PageOf(broker);
  if (!page.ok()) return page.status();
  Load load;
  if (status = load.Start(broker.address()); !status.ok()) return status;
  CpuDuring(broker, absl::Seconds(1));  // what the attaches left to do
  std::vector<double> without, with, costs, rates, sizes;
  for (int i = 0; i < kRounds; ++i) {
    without.push_back(CpuDuring(broker, kWindow));
    const Watcher watcher(*page);
    CpuDuring(broker, absl::Milliseconds(300));
    const int64_t pictures = watcher.pictures(), bytes = watcher.bytes();
    with.push_back(CpuDuring(broker, kWindow));
    costs.push_back(with.back() - without.back());
    const auto seen = static_cast<double>(watcher.pictures() - pictures);
    rates.push_back(seen / absl::ToDoubleSeconds(kWindow));
    sizes.push_back(static_cast<double>(watcher.bytes() - bytes) / std::max(1.0, seen) / 1024);
  }
  if (load.uses() == 0 || load.failed() > 0) {
    return absl::InternalError(absl::StrCat(load.failed(), " uses failed, ", load.uses(), " ran"));
  }
  Figures figures;
  figures.push_back(
      {"one watcher of the page, of one core", Percentile(&costs, 0.5), "%", kGoalShare, true});
  figures.push_back({"  the broker with it", Percentile(&with, 0.5), "%", {}, true});
  figures.push_back({"  the broker without, in turn", Percentile(&without, 0.5), "%", {}, true});
  figures.push_back({"  pictures that it got", Percentile(&rates, 0.5), "a second", {}, true});
  figures.push_back({absl::StrCat("  a picture of ", kWorkers, " components"),
                     Percentile(&sizes, 0.5),
                     "KiB",
                     {},
                     true});
  return figures;
}

}  // namespace vrambroker::bench
