#include "broker/server/pending_directive.h"

#include <algorithm>

#include "broker/server/convert_answers.h"

namespace vrambroker::server {

void PendingDirective::Add(const core::SendDirective& directive) {
  if (directive.welcome.has_value()) welcome_ = directive.welcome;
  trim_pool_ = trim_pool_ || directive.trim_pool;
  if (directive.pin_allowance.has_value()) pin_allowance_ = directive.pin_allowance;
  for (const core::Target& target : directive.targets) {
    const auto same = std::find_if(
        targets_.begin(), targets_.end(),
        [&](const core::Target& before) { return before.component == target.component; });
    if (same == targets_.end()) {
      targets_.push_back(target);
    } else if (target.generation >= same->generation) {
      *same = target;
    }
  }
}

void PendingDirective::Take(v1::Directive* out) {
  out->Clear();
  if (welcome_.has_value()) Write(*welcome_, out->mutable_welcome());
  for (const core::Target& target : targets_) Write(target, out->add_targets());
  out->set_trim_pool(trim_pool_);
  if (pin_allowance_.has_value()) out->set_pin_allowance_bytes(pin_allowance_->count());
  welcome_.reset();
  targets_.clear();
  trim_pool_ = false;
  pin_allowance_.reset();
}

}  // namespace vrambroker::server
