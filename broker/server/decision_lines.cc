#include "broker/server/decision_lines.h"

#include <algorithm>

#include "broker/server/convert_answers.h"
#include "broker/server/convert_decision_log.h"

namespace vrambroker::server {

std::string DecisionLines::Begin(absl::Time now) {
  plans_.clear();
  v1::DecisionLogLine line;
  WriteTime(now, line.mutable_time());
  *line.mutable_header() = header_;
  std::string lines = ToLine(line);
  for (const auto& [name, worker] : workers_) {
    *line.mutable_worker() = worker.second;
    lines += ToLine(line);
  }
  return lines;
}

std::string DecisionLines::Of(const core::LogDecision& logged) {
  v1::DecisionLogLine line;
  WriteTime(logged.decision.time, line.mutable_time());
  v1::LoggedDecision* out = line.mutable_decision();
  Write(logged.decision, out->mutable_decision());
  out->set_device_uuid(logged.decision.device);
  out->set_bytes(logged.decision.bytes.count());
  out->set_given_up_bytes(logged.decision.given_up.count());
  if (logged.knowledge == nullptr) return ToLine(line);
  const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const Plan& plan) {
    return plan.knowledge == logged.knowledge;
  });
  out->set_plan_component(logged.component);
  if (known != plans_.end()) {
    out->set_plan_decision_id(known->decision.value());
    return ToLine(line);
  }
  out->set_plan_decision_id(logged.decision.id.value());
  Write(*logged.knowledge, out->mutable_plan());
  plans_.push_back({logged.decision.id, logged.knowledge});
  if (plans_.size() > kPlans) plans_.pop_front();
  return ToLine(line);
}

std::string DecisionLines::Of(const v1::DecisionLogLine& line) {
  ++lines_;
  if (line.has_worker()) {
    workers_[line.worker().worker()] = {lines_, line.worker()};
    if (workers_.size() > kWorkers) {
      workers_.erase(std::min_element(
          workers_.begin(), workers_.end(),
          [](const auto& a, const auto& b) { return a.second.first < b.second.first; }));
    }
  } else if (line.has_worker_gone()) {
    workers_.erase(line.worker_gone().worker());
  }
  return ToLine(line);
}

}  // namespace vrambroker::server
