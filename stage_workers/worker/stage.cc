#include "stage_workers/worker/stage.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace vrambroker::worker {
namespace {

// Free bytes on the card; 0 where it cannot be read, so that nothing is built upon it.
int64_t FreeOnCard(offload::PoolAllocator& pool) {
  const absl::StatusOr<card::Usage> usage = pool.card()->ReadUsage();
  return usage.ok() ? std::max<int64_t>(usage->capacity - usage->total_used, 0) : 0;
}

// CANCELLED where nobody waits for the result any more.
absl::Status CheckWanted(const ManagedOffload& component, const StageRequest& request, int passes) {
  if (!request.cancelled || !request.cancelled()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("component ", component.name(),
                                           ": the caller gave up after ", passes, " of ",
                                           request.passes, " passes"));
}

class LocalRunner : public StageRunner {
 public:
  LocalRunner(ManagedOffload* component, offload::PoolAllocator* pool, const LocalRules& rules)
      : component_(component), pool_(pool), rules_(rules) {}

  absl::StatusOr<StageResult> Run(const StageRequest& request) override {
    const absl::Time asked = absl::Now();
    const std::lock_guard<std::mutex> lock(component_->lock());
    if (absl::Now() > request.wait_until) {
      return absl::DeadlineExceededError(
          absl::StrCat("component ", component_->name(), ": busy until the deadline"));
    }
    // What a full reset took away is placed again.
    if (absl::Status status = component_->PlaceFixed(); !status.ok()) return status;
    pool_->ResetPeak();
    StageResult result;
    result.waited = absl::Now() - asked;
    result.activations = request.activations;
    const absl::Status status = RunPasses(*component_, request, Resident(request), &result);
    result.kept_layers = EndUse(status.ok() ? result.resident_layers : 0);
    result.peak_bytes = pool_->Stats().peak_bytes;
    if (!status.ok()) return status;
    return result;
  }

 private:
  int Resident(const StageRequest& request) const {
    const int configured = component_->configured_layers();
    if (rules_.allocate == Allocate::kWhole || component_->permanent()) return configured;
    return FitNow(*component_, *pool_, configured, request.activation_bytes);
  }

  // Window and activations go first: what is free beside the set is what the rule asks.
  int EndUse(int resident) {
    component_->FreeNeeds();
    if (rules_.trim_after_use) pool_->Trim();
    const int keep = LayersToKeep(rules_.retain, resident, FreeOnCard(*pool_));
    if (!component_->permanent() && keep < component_->held_layers()) {
      (void)component_->ReleaseTo(keep);
      if (rules_.trim_after_use) pool_->Trim();
    }
    return component_->held_layers();
  }

  ManagedOffload* const component_;
  offload::PoolAllocator* const pool_;
  const LocalRules rules_;
};

}  // namespace

std::unique_ptr<StageRunner> MakeLocalRunner(ManagedOffload* component,
                                             offload::PoolAllocator* pool,
                                             const LocalRules& rules) {
  return std::make_unique<LocalRunner>(component, pool, rules);
}

int FitNow(const ManagedOffload& component, offload::PoolAllocator& pool, int configured,
           int64_t activation_bytes) {
  FitQuestion question;
  question.configured = configured;
  question.prefix_bytes = [&component](int layers) { return component.PrefixBytes(layers); };
  question.window_bytes = [&component](int layers) { return component.WindowBytes(layers); };
  question.activation_bytes = activation_bytes;
  question.available_bytes =
      FreeOnCard(pool) + pool.Stats().pooled_bytes + component.PrefixBytes(component.held_layers());
  return LayersThatFit(question);
}

absl::Status RunPasses(ManagedOffload& component, const StageRequest& request, int resident,
                       StageResult* result) {
  result->resident_layers = resident;
  const absl::Time begin = absl::Now();
  absl::Status status = CheckWanted(component, request, 0);
  if (status.ok()) {
    status = component.BeginUse({.resident_layers = resident,
                                 .passes = request.passes,
                                 .activation_bytes = request.activation_bytes});
  }
  if (status.ok()) {
    result->peak_activation_bytes =
        std::max(result->peak_activation_bytes, component.activation_bytes());
  }
  const absl::Duration pass_time = absl::Seconds(component.pass_seconds());
  for (int pass = 0; status.ok() && pass < request.passes; ++pass) {
    status = CheckWanted(component, request, pass);
    if (!status.ok()) break;
    const absl::StatusOr<offload::PassStats> stats =
        component.RunPass(absl::MakeSpan(result->activations), pass_time);
    status = stats.status();
    if (!stats.ok()) break;
    result->stall += stats->stall;
    result->compute += std::max(stats->elapsed - stats->stall, absl::ZeroDuration());
    result->copying += stats->copying;
    result->bytes_to_device += stats->bytes_to_device;
    ++result->passes;
  }
  result->seconds += absl::Now() - begin;
  return status;
}

}  // namespace vrambroker::worker
