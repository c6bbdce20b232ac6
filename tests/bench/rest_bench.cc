// What vram-brokerd takes while nobody asks anything of it.
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_worker.h"
#include "tests/bench/broker_process.h"
#include "tests/poll.h"

namespace vrambroker::bench {
namespace {

v1::Component OneComponent() {
  v1::Component component;
  component.set_name("c");
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(60);
  run->set_layer_bytes(64 << 20);
  return component;
}

}  // namespace

absl::StatusOr<Figures> RestBench(const BenchOptions& options) {
  BrokerProcess broker(options.bin_dir + "/vram-brokerd");
  if (absl::Status status = broker.Start(); !status.ok()) return status;
  std::vector<std::unique_ptr<BenchWorker>> workers;
  for (int i = 0; i < 3; ++i) {
    auto channel = grpc::CreateChannel(broker.address(), grpc::InsecureChannelCredentials());
    if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(20)))) {
      return absl::DeadlineExceededError("vram-brokerd does not answer within 20 s");
    }
    workers.push_back(std::make_unique<BenchWorker>(channel, absl::StrCat("idle-", i),
                                                    std::vector<v1::Component>{OneComponent()}));
    if (absl::Status status = workers.back()->Start(); !status.ok()) return status;
  }
  WaitFor([] { return false; }, absl::Seconds(1));  // what the attaches left to do is not rest
  const double before = broker.CpuSeconds();
  const absl::Time began = absl::Now();
  WaitFor([] { return false; }, options.rest);
  const double took = absl::ToDoubleSeconds(absl::Now() - began);
  const double cpu = broker.CpuSeconds() - before;
  Figures figures;
  figures.push_back({"processor time at rest, of one core", 100 * cpu / took, "%", 1.0, true});
  figures.push_back({"resident memory", broker.ResidentMiB(), "MiB", 40.0, true});
  return figures;
}

}  // namespace vrambroker::bench
