// How far simulations have come, on standard error, where they take long.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "broker/sim/simulate.h"

namespace vrambroker::ctl {

// Seconds of a steady clock.
double SteadySeconds();

// Says nothing in the first two seconds; then a line every five. Where `out` is the standard error
// of this process and that is a terminal, one line that is written over, five times a second.
class Progress {
 public:
  Progress(std::ostream* out, std::function<double()> clock);

  // For simulate.h's Options::progress, of the simulation that this names. Valid as long as this
  // object.
  sim::TellProgress Begin(std::string simulation);
  // Clears the line that is written over. Before anything else is written to `out`.
  void End();

 private:
  void Tell(const std::string& simulation, const char* what, int64_t done, int64_t all);

  std::ostream* const out_;
  const std::function<double()> clock_;
  const bool terminal_;
  double next_ = 0;   // nothing is said before
  size_t shown_ = 0;  // characters of the line on a terminal
};

}  // namespace vrambroker::ctl
