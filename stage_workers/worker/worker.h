// A worker process's inside: a card, an allocator, components with their runners, the broker's
// client.
#ifndef VRAMBROKER_STAGE_WORKERS_WORKER_WORKER_H_
#define VRAMBROKER_STAGE_WORKERS_WORKER_WORKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/broker_client.h"
#include "stage_workers/card/card.h"
#include "stage_workers/offload/component.h"
#include "stage_workers/offload/pool.h"
#include "stage_workers/worker/stage.h"
#include "vrambroker/v1/stage.pb.h"

namespace vrambroker::worker {

// Components of one worker at most.
inline constexpr int kMaxComponents = 16;

struct WorkerOptions {
  // 1 to 128 of letters, digits, '.', '-', '_'.
  std::string name;
  // Component names and their weights files, of equal length, 1 to kMaxComponents.
  std::vector<std::string> components;
  std::vector<std::string> weights;
  // "emulated:NAME" (it must exist) or a CUDA card's uuid.
  std::string card_uuid;
  // gRPC address of the broker; "none": no broker, rules as below; empty: the default address.
  std::string broker;
  // As client::ClientOptions says.
  client::TlsFiles tls = {};
  // Where brokers lock devices. Empty: the default.
  std::string lock_dir;

  offload::KeepSpec resident;
  offload::Lifetime lifetime = offload::Lifetime::kForward;
  bool host_copy = true;
  int window_layers = 2;
  offload::HostTier tier = offload::HostTier::kPageable;
  bool caching_allocator = true;
  // Seconds that one pass computes, before scaling; at least 0.
  double pass_seconds = 0;
  // Times are divided by this; above 0.
  double time_scale = 1;
  LocalRules rules;
  // Hears one line of what becomes of the broker's session, as client::ClientOptions says.
  std::function<void(const std::string&)> notice = {};
  // First uses of each component that the broker learns nothing from: 0 to 1000.
  int warm_up_uses = 1;
};

// Thread-safe after Start.
class Worker {
 public:
  // Opens card and files. Nothing is on the card yet.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const WorkerOptions& options);
  // Gives everything on the card back.
  ~Worker();

  // Begins a session with the broker, where there is one to be: from here on Status() says what is
  // waited for. Once, and not together with other calls.
  absl::Status Connect();
  // Connects where that has not been done, then places fixed weights and permanent sets: at once
  // without a broker, else once it has admitted them. Errors: RESOURCE_EXHAUSTED where they do not
  // fit (with the broker's words, where it goes on refusing them until the deadline),
  // DEADLINE_EXCEEDED.
  absl::Status Start(absl::Time deadline);

  // UNAVAILABLE until it has started, NOT_FOUND for a component that is not here; else as
  // StageRunner::Run. An empty name is the only
  // component.
  absl::StatusOr<StageResult> RunStage(const std::string& component, const StageRequest& request,
                                       int* layers);
  // Returns the bytes given back. UNAVAILABLE until it has started; FAILED_PRECONDITION, with
  // nothing released, where a permanent set has no host copy.
  absl::StatusOr<int64_t> ReleaseAll();
  v1::StageWorkerStatus Status();

  // How pinning went, where it was asked for and refused; OK otherwise.
  const absl::Status& pin_status() const { return pin_status_; }

 private:
  struct Stage {
    std::unique_ptr<ManagedOffload> component;
    std::unique_ptr<StageRunner> runner;
    // Resident layers of a use where no broker lives.
    int configured = 0;
    std::atomic<int64_t> uses{0};
    std::atomic<int64_t> failed_uses{0};
  };

  explicit Worker(const WorkerOptions& options) : options_(options) {}
  absl::Status OpenCard();
  absl::Status AddStage(const std::string& name, const std::string& weights);
  absl::Status Place();
  // What Start() waits for, in words; empty once it has ended well.
  std::string WaitingFor() const;
  absl::Status CheckStarted() const;
  absl::StatusOr<Stage*> Find(const std::string& component);
  bool brokered() const { return options_.broker != "none"; }

  const WorkerOptions options_;
  // In the order of construction: each needs those above it.
  std::unique_ptr<card::Card> card_;
  std::unique_ptr<offload::PoolAllocator> pool_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::unique_ptr<ManagedPoolAdapter> pool_adapter_;
  std::unique_ptr<client::BrokerClient> client_;
  absl::Status pin_status_;
  std::atomic<bool> started_{false};
};

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_STAGE_WORKERS_WORKER_WORKER_H_
