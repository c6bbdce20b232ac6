#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/worker/stage.h"

namespace vrambroker::worker {
namespace {

v1::UseMeasurements Measured(const StageResult& result, bool warm_up) {
  v1::UseMeasurements measured;
  measured.set_peak_activation_bytes(result.peak_activation_bytes);
  measured.set_stall_seconds(absl::ToDoubleSeconds(result.stall));
  measured.set_bytes_loaded(result.bytes_to_device);
  measured.set_seconds(absl::ToDoubleSeconds(result.seconds));
  measured.set_compute_seconds(absl::ToDoubleSeconds(result.compute));
  measured.set_copy_seconds(absl::ToDoubleSeconds(result.copying));
  measured.set_passes(result.passes);
  measured.set_warm_up(warm_up);
  return measured;
}

class BrokeredRunner : public StageRunner {
 public:
  BrokeredRunner(client::BrokerClient* client, ManagedOffload* component,
                 offload::PoolAllocator* pool, int warm_up_uses)
      : client_(client), component_(component), pool_(pool), warm_up_uses_(warm_up_uses) {}

  absl::StatusOr<StageResult> Run(const StageRequest& request) override {
    const absl::Time asked = absl::Now();
    absl::StatusOr<client::Use> use = Admit(request);
    if (!use.ok()) return use.status();
    StageResult result;
    result.waited = absl::Now() - asked;
    result.brokered = use->brokered();
    result.activations = request.activations;
    pool_->ResetPeak();
    const absl::Status status =
        use->brokered() ? RunPasses(*component_, request, use->resident_layers(), &result)
                        : RunUnbrokered(request, use->resident_layers(), &result);
    result.peak_bytes = pool_->Stats().peak_bytes;
    const bool warm_up = request.warm_up || warm_up_uses_ > 0;
    if (status.ok() && warm_up_uses_ > 0) --warm_up_uses_;
    result.kept_layers = use->End(Measured(result, warm_up));
    if (!status.ok()) return status;
    return result;
  }

 private:
  absl::StatusOr<client::Use> Admit(const StageRequest& request) {
    client::UseOptions options;
    options.run_id = request.run_id;
    options.stage = request.stage;
    options.passes = request.passes;
    options.activation_bytes = request.declared_activation_bytes > 0
                                   ? request.declared_activation_bytes
                                   : request.activation_bytes;
    options.shape = request.shape;
    options.activation_is_exact = request.activation_is_exact;
    options.deadline = request.wait_until;
    options.cancelled = request.cancelled;
    const ManagedOffload::HurryGuard hurry(component_);
    absl::StatusOr<client::Use> use = client_->BeginUse(component_->name(), options);
    if (!use.ok()) return use;
    // What a full reset took away is placed again: it is charged still.
    if (!component_->fixed_placed()) {
      if (absl::Status status = component_->PlaceFixed(); !status.ok()) return status;
    }
    return use;
  }

  // Nobody has set memory aside for this use.
  absl::Status RunUnbrokered(const StageRequest& request, int configured, StageResult* result) {
    const int resident = component_->permanent()
                             ? component_->layer_count()
                             : FitNow(*component_, *pool_, configured, request.activation_bytes);
    const absl::Status status = RunPasses(*component_, request, resident, result);
    if (!absl::IsResourceExhausted(status)) return status;
    component_->FreeNeeds();
    if (!component_->permanent()) (void)component_->ReleaseTo(0);
    pool_->Trim();
    result->activations = request.activations;
    result->passes = 0;
    result->compute = result->copying = absl::ZeroDuration();
    return RunPasses(*component_, request, component_->permanent() ? resident : 0, result);
  }

  client::BrokerClient* const client_;
  ManagedOffload* const component_;
  offload::PoolAllocator* const pool_;
  // Warm-ups that are still to come. Changed with the component's lock held, as a use has it.
  int warm_up_uses_;
};

}  // namespace

std::unique_ptr<StageRunner> MakeBrokeredRunner(client::BrokerClient* client,
                                                ManagedOffload* component,
                                                offload::PoolAllocator* pool, int warm_up_uses) {
  return std::make_unique<BrokeredRunner>(client, component, pool, warm_up_uses);
}

}  // namespace vrambroker::worker
