// Host memory that workers pin: nobody more than is charged for it, all together no more than may
// be.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/sim/checks.h"

namespace vrambroker::simulation {

int64_t Checks::PinBudget(const std::string& domain) const {
  const core::Config& config = scenario_.config;
  if (config.host_pin_fraction <= 0) return 0;
  int64_t limit = config.host_memory.count();
  if (domain.empty() && config.host_pin_budget > core::Bytes()) {
    return config.host_pin_budget.count();
  }
  for (const WorkerPlan& worker : scenario_.workers) {
    if (!domain.empty() && worker.host_domain == domain) limit = worker.host_limit;
  }
  if (limit == 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(config.host_pin_fraction * static_cast<double>(limit));
}

// Limits do not change here, so that allowances are within budgets at every moment.
void Checks::CheckAllowances(const core::Picture& picture) {
  std::map<std::string, int64_t> allowed;
  pin_charges_.clear();
  for (const core::SessionPicture& s : picture.sessions) {
    if (s.phase == core::SessionPhase::kGone || s.recorded > core::Bytes()) continue;
    pin_charges_[s.pid] = std::max(s.pin_allowance, s.pinned_host).count();
    for (const WorkerPlan& worker : scenario_.workers) {
      if (worker.name != s.worker) continue;
      allowed[""] += s.pin_allowance.count();
      if (!worker.host_domain.empty()) allowed[worker.host_domain] += s.pin_allowance.count();
    }
  }
  for (const auto& [domain, bytes] : allowed) {
    if (bytes <= PinBudget(domain)) continue;
    fail_(absl::StrCat("workers of '", domain, "' are allowed to pin ", bytes, " host bytes of ",
                       PinBudget(domain)));
  }
}

void Checks::CheckPinned(const std::vector<std::shared_ptr<WorkerProcess>>& workers) {
  std::map<std::string, int64_t> pinned;
  for (const auto& worker : workers) {
    if (!worker->alive()) continue;
    const int64_t bytes = worker->PinnedHost();
    pinned[""] += bytes;
    if (!worker->plan().host_domain.empty()) pinned[worker->plan().host_domain] += bytes;
    const auto charge = pin_charges_.find(worker->process().pid);
    if (charge == pin_charges_.end() || bytes <= charge->second) continue;
    fail_(absl::StrCat(worker->name(), " (pid ", worker->process().pid, ") has pinned ", bytes,
                       " host bytes and is charged with ", charge->second));
  }
  if (restarted_) return;
  for (const auto& [domain, bytes] : pinned) {
    if (bytes <= PinBudget(domain)) continue;
    fail_(absl::StrCat("workers of '", domain, "' have pinned ", bytes, " host bytes of ",
                       PinBudget(domain)));
  }
}

}  // namespace vrambroker::simulation
