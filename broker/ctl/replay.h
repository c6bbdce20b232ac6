// The decisions of a log, made again from what they knew.
#pragma once

#include <cstdint>
#include <deque>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/ctl/seen_ids.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::ctl {

// Of one log or several that follow each other.
struct ReplayResult {
  // Differing decisions that are listed at most; further ones are counted only.
  static constexpr size_t kMostListed = 100;

  struct Differing {
    v1::Decision decision;
    std::string what;
  };

  int64_t lines = 0;
  int64_t brokers = 0;  // headers of different epochs, one after the other
  // Each once: by its broker's epoch and its id.
  int64_t decisions = 0;
  // Lines of decisions that were met already, as of a file that was named twice; passed over.
  int64_t repeated = 0;
  int64_t without_plan = 0;
  int64_t reproduced = 0;
  int64_t differ = 0;
  // Plans that were made; several decisions may share one.
  int64_t plans = 0;
  // Lines that a crash cut off, and lines that the broker had to drop, as it says itself.
  int64_t torn = 0;
  int64_t dropped = 0;
  std::vector<Differing> differing;
};

class Replay {
 public:
  // All of one file. INVALID_ARGUMENT, naming the line, where it is no decision log, or where a
  // line says what cannot be, or ids of decisions have more gaps than SeenIds keeps; what was
  // before it is in the result. Memory is bounded by the longest line and those gaps.
  absl::Status Read(std::istream* in);
  const ReplayResult& result() const { return result_; }

 private:
  // A plan that later lines may refer to, and in what it differs.
  struct Known {
    uint64_t decision;
    int components;
    std::string difference;
  };

  absl::Status Take(const v1::DecisionLogLine& line);
  absl::Status Take(const v1::LoggedDecision& decision);
  // The plan that a decision rests on.
  absl::StatusOr<const Known*> PlanOf(const v1::LoggedDecision& decision);

  ReplayResult result_;
  uint64_t epoch_ = 0;
  std::deque<Known> known_;
  SeenIds seen_;
};

// For people, and for programs.
std::string ReplayText(const ReplayResult& result);
std::string ReplayJson(const ReplayResult& result);

}  // namespace vrambroker::ctl
