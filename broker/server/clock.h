// Time that never runs backwards: the wall clock at the start, and steadily on from there.
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace vrambroker::server {

class Clock {
 public:
  absl::Time Now() const {
    return start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_start_);
  }
  std::chrono::steady_clock::time_point ToSteady(absl::Time time) const {
    return steady_start_ + absl::ToChronoNanoseconds(time - start_);
  }

 private:
  std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
  absl::Time start_ = absl::Now();
};

}  // namespace vrambroker::server
