// Waits for conditions in tests, with a deadline: the only place where a test sleeps.
#ifndef VRAMBROKER_TESTS_POLL_H_
#define VRAMBROKER_TESTS_POLL_H_

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace vrambroker {

// Asks every millisecond until the condition holds; false if it does not within the time.
inline bool WaitFor(const std::function<bool()>& condition,
                    absl::Duration within = absl::Seconds(20)) {
  const absl::Time deadline = absl::Now() + within;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace vrambroker

#endif  // VRAMBROKER_TESTS_POLL_H_
