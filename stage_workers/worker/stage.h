// One component served as a stage: a use from admission to what stays, with a broker or without.
#ifndef VRAMBROKER_STAGE_WORKERS_WORKER_STAGE_H_
#define VRAMBROKER_STAGE_WORKERS_WORKER_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/broker_client.h"
#include "stage_workers/offload/pool.h"
#include "stage_workers/worker/local_rule.h"
#include "stage_workers/worker/managed_offload.h"

namespace vrambroker::worker {

struct StageRequest {
  // A declared run and its stage, from 0. run_id 0: none.
  uint64_t run_id = 0;
  int stage = 0;
  // 1 to 1,000,000.
  int passes = 1;
  int64_t activation_bytes = 0;
  // What a broker is asked for in its place. 0: activation_bytes.
  int64_t declared_activation_bytes = 0;
  // What makes uses alike in it, at most 64 bytes, and whether exactly what is declared is to be
  // charged: see client::UseOptions.
  std::string shape;
  bool activation_is_exact = false;
  // A multiple of card::kLaneBlock words, not none.
  std::vector<uint64_t> activations;
  // Admission is waited for until then.
  absl::Time wait_until = absl::InfiniteFuture();
  bool warm_up = false;
  // Whether the caller has given up; asked now and then while a broker's admission is waited for,
  // and before each pass. Empty: never.
  std::function<bool()> cancelled;
};

struct StageResult {
  std::vector<uint64_t> activations;
  // From admission to the end of the last pass, and what of it was spent waiting for copies.
  absl::Duration seconds;
  absl::Duration stall;
  // What its passes took without waiting, and how long the link was busy with what they waited for.
  absl::Duration compute;
  absl::Duration copying;
  // Highest workspace that was allocated.
  int64_t peak_activation_bytes = 0;
  // From the call to admission.
  absl::Duration waited;
  int64_t bytes_to_device = 0;
  int resident_layers = 0;
  int kept_layers = 0;
  int64_t peak_bytes = 0;
  int passes = 0;
  bool brokered = false;
};

// Thread-safe: one use at a time, others wait for it. After an error, out of memory included, the
// use has ended, nothing of its window and activations stays, and the next one starts afresh.
class StageRunner {
 public:
  virtual ~StageRunner() = default;
  // Errors: RESOURCE_EXHAUSTED (the card's own message, or the broker's), DEADLINE_EXCEEDED,
  // CANCELLED, and the broker's.
  virtual absl::StatusOr<StageResult> Run(const StageRequest& request) = 0;
};

// How much of a configured set a use without a broker tries to have resident.
enum class Allocate {
  // All of it. Where that does not fit the use fails: out of memory.
  kWhole,
  // As much as is free on the card when the use begins.
  kFit,
};

struct LocalRules {
  RetainRule retain = {};
  Allocate allocate = Allocate::kWhole;
  // Whether the allocator's pool goes back to the card at the end of a use.
  bool trim_after_use = true;
};

// Without a broker: the worker's own rules. Both pointers outlive the runner.
std::unique_ptr<StageRunner> MakeLocalRunner(ManagedOffload* component,
                                             offload::PoolAllocator* pool, const LocalRules& rules);

// With a broker's client: every use is asked for, and what stays is what the broker says. Where no
// broker lives the client grants the configured count, which is capped at what fits; after running
// out of memory such a use releases what it has and is tried once more, streaming everything. All
// pointers outlive the runner.
// The first `warm_up_uses` uses, at least 0, that run all their passes are warm-ups to the broker.
std::unique_ptr<StageRunner> MakeBrokeredRunner(client::BrokerClient* client,
                                                ManagedOffload* component,
                                                offload::PoolAllocator* pool, int warm_up_uses = 0);

// Shared by both. With the component's lock held: the most of `configured` layers that fit now.
int FitNow(const ManagedOffload& component, offload::PoolAllocator& pool, int configured,
           int64_t activation_bytes);
// With the component's lock held: begins the component's use with `resident` layers and runs all
// passes over result->activations, adding to `result`. The use is not ended, after an error either.
absl::Status RunPasses(ManagedOffload& component, const StageRequest& request, int resident,
                       StageResult* result);

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_STAGE_WORKERS_WORKER_STAGE_H_
