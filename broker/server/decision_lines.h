// What becomes of decisions and of what was done as lines of the decision log, file by file.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::server {

// A plain value. Each file can be read alone: it begins with what its lines need of earlier ones,
// and the plan that several decisions share stands in the line of the first of them in the file.
class DecisionLines {
 public:
  // Plans that later decisions of a file may refer to.
  static constexpr size_t kPlans = 16;
  // Workers that a file names at its beginning; past it the one named longest ago is not.
  static constexpr size_t kWorkers = 4096;

  explicit DecisionLines(v1::DecisionLogHeader header) : header_(std::move(header)) {}

  // What a new file begins with. What follows may not refer to plans of before.
  std::string Begin(absl::Time now);
  std::string Of(const core::LogDecision& decision);
  std::string Of(const v1::DecisionLogLine& line);
  // What was returned since the file's beginning, or a part of it, is not in the file.
  void Forget() { plans_.clear(); }

 private:
  struct Plan {
    core::DecisionId decision;
    std::shared_ptr<const core::Knowledge> knowledge;
  };

  v1::DecisionLogHeader header_;
  std::deque<Plan> plans_;
  // By name, with the number of the line that named it.
  std::map<std::string, std::pair<uint64_t, v1::LoggedWorker>> workers_;
  uint64_t lines_ = 0;
};

}  // namespace vrambroker::server
