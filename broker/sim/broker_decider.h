// The real core under virtual time: one worker process for each component, and a driver that
// declares the runs. Messages take no time, nor do releases; loads ahead go layer by layer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/machine.h"
#include "broker/sim/decider.h"

namespace vrambroker::sim {

// What the driver says of the runs.
enum class Declared {
  kAll,      // every run from the start, with when it is to arrive
  kCurrent,  // each run when it starts
  kNone,     // nothing, and uses name no run
};

// `done` of `all` of `what`: "runs declared", "requests done".
using TellProgress = std::function<void(const char* what, int64_t done, int64_t all)>;

using Observe = std::function<void(const core::Event&, const core::Effects&, absl::Time)>;

class BrokerDecider : public Decider {
 public:
  // `horizon`: known uses that a plan looks at, 0 for the core's own. `clock`: nanoseconds of a
  // steady clock, or empty. `progress`: told as runs are declared from the start, or empty.
  // `workload` and `card` outlive the decider.
  BrokerDecider(const Workload& workload, Declared declared, bool load_ahead, int horizon,
                std::function<int64_t()> clock, TellProgress progress, Card* card);

  // From here on; before Start for all of it.
  void set_observe(Observe observe) { observe_ = std::move(observe); }

  absl::Status Start() override;
  void RunBegins(int run) override;
  void RunEnds(int run) override;
  void Ask(const Request& request) override;
  void Ended(const Request& request, const Outcome& outcome) override;
  void Loaded(int component) override;
  double NextWake() const override;
  void Wake() override;
  std::vector<Verdict> Take() override;
  absl::Status fault() const override { return fault_; }
  void CheckAll() const override;

 private:
  struct Worker {
    core::ConnectionId connection;
    core::SessionId session;
    uint64_t sequence = 0;
    core::Target target;
    core::Generation completed;
    bool placed = false;
    core::UseId use;
    int waiting = 0;  // BeginUse calls that are not answered
  };
  // What a call was about, until it is answered.
  struct Call {
    enum class Kind { kBegin, kEnd, kReport, kPipeline, kRun, kFinish };
    Kind kind = Kind::kReport;
    int about = 0;  // request, component or run
  };

  absl::Time Now() const;
  void Post(core::Event event);
  // Steps through what was posted, and what comes of it, until nothing is left.
  void Deliver();
  core::Effects Timed(const core::Event& event);
  void Carry(const core::Effect& effect);
  void Take(const core::SendDirective& directive);
  void Take(const core::Answer& answer);
  void Refused(const Call& call, const absl::Status& status);
  void Granted(int request, const core::BeginAnswer& answer);
  void TakeTarget(int component, const core::Target& target);
  // Goes toward the newest target, as far as that takes no time.
  void Converge(int component);
  void Report(int component);
  void DeclareRun(int run, double starts_in);
  core::Snapshot SnapshotOf(int component);
  core::CallHeader Header(core::SessionId session, Call::Kind kind, int about);
  core::ComponentSpec SpecOf(int component) const;

  const Workload& workload_;
  Declared declared_;
  std::function<int64_t()> clock_;
  const TellProgress progress_;
  Observe observe_;
  Card* card_;
  core::Machine machine_;
  std::vector<Worker> workers_;
  core::ConnectionId driver_connection_;
  core::SessionId driver_;
  std::map<int, core::RunId> runs_;     // declared and not finished
  std::map<int, Request> asked_;        // not ended
  std::map<core::CallId, Call> calls_;  // not answered
  uint64_t last_call_ = 0;
  std::deque<core::Event> events_;
  absl::Time wake_ = absl::InfiniteFuture();
  absl::Time at_least_ = absl::UnixEpoch();
  std::vector<Verdict> verdicts_;
  absl::Status fault_;
};

}  // namespace vrambroker::sim
