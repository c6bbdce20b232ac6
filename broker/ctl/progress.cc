#include "broker/ctl/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::ctl {
namespace {

constexpr double kQuietSeconds = 2;
constexpr double kSecondsBetweenLines = 5;
constexpr double kSecondsBetweenWritings = 0.2;

}  // namespace

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Progress(std::ostream* out, std::function<double()> clock)
    : out_(out),
      clock_(std::move(clock)),
      terminal_(out == &std::cerr && isatty(STDERR_FILENO) == 1),
      next_(clock_() + kQuietSeconds) {}

sim::TellProgress Progress::Begin(std::string simulation) {
  return [this, simulation = std::move(simulation)](const char* what, int64_t done, int64_t all) {
    Tell(simulation, what, done, all);
  };
}

void Progress::Tell(const std::string& simulation, const char* what, int64_t done, int64_t all) {
  const double now = clock_();
  if (now < next_) return;
  std::string line = absl::StrCat("simulating ", simulation, ": ", done, " of ", all, " ", what);
  if (!terminal_) {
    next_ = now + kSecondsBetweenLines;
    *out_ << line << "\n" << std::flush;
    return;
  }
  next_ = now + kSecondsBetweenWritings;
  const size_t length = line.size();
  line.resize(std::max(length, shown_), ' ');
  *out_ << "\r" << line << std::flush;
  shown_ = length;
}

void Progress::End() {
  if (shown_ > 0) *out_ << "\r" << std::string(shown_, ' ') << "\r" << std::flush;
  shown_ = 0;
}

}  // namespace vrambroker::ctl
