// Who decides in a simulation. A decider is told what the runs do and acts on the card.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "broker/sim/card.h"

namespace vrambroker::sim {

// A stage of a run that wants its component.
struct Request {
  int id = 0;
  int run = 0;
  int stage = 0;
  int component = 0;
  int passes = 1;
  int64_t activation = 0;
  // What it declares.
  int64_t declared = 0;
  std::string shape = {};
};

// What a use was, once it has ended.
struct Outcome {
  double seconds = 0;
  double compute_seconds = 0;
  double stall_seconds = 0;
  double bytes_loaded = 0;
};

// What became of a request: its use began, or it never can.
struct Verdict {
  int request = 0;
  bool granted = false;
  std::string refusal;
};

class Decider {
 public:
  virtual ~Decider() = default;

  // Before anything else, at time 0.
  virtual absl::Status Start() = 0;
  virtual void RunBegins(int run) = 0;
  // It has done its last stage, or was refused one.
  virtual void RunEnds(int run) = 0;
  virtual void Ask(const Request& request) = 0;
  // The use has ended, the card knows: its layers are held.
  virtual void Ended(const Request& request, const Outcome& outcome) = 0;
  // A layer of a load ahead is there.
  virtual void Loaded(int component) = 0;
  // When it wants to be woken, in seconds from the start. Infinite: not.
  virtual double NextWake() const { return std::numeric_limits<double>::infinity(); }
  virtual void Wake() {}
  // What was decided since the last call. The uses have begun on the card.
  virtual std::vector<Verdict> Take() = 0;
  // What went wrong with the decider itself. From then on it does nothing more.
  virtual absl::Status fault() const { return absl::OkStatus(); }
  // Stops the process where its state contradicts itself. Slow.
  virtual void CheckAll() const {}

  // Decisions at once at the begin and the end of uses, and how long each took, in seconds; empty
  // where no clock is given. What is decided only when bytes have come is not among them.
  int64_t decisions() const { return decisions_; }
  const std::vector<double>& decision_seconds() const { return decision_seconds_; }

 protected:
  int64_t decisions_ = 0;
  std::vector<double> decision_seconds_;
};

}  // namespace vrambroker::sim
