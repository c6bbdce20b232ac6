// A simulated world: devices, processes, a network and faults around the real machine and real
// sessions, under virtual time. The same scenario gives the same run, to the last step.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "broker/core/machine.h"
#include "tests/sim/checks.h"
#include "tests/sim/driver_process.h"
#include "tests/sim/network.h"
#include "tests/sim/observer.h"
#include "tests/sim/scenario.h"
#include "tests/sim/worker_process.h"

namespace vrambroker::simulation {

class World {
  static constexpr core::CallId kDrainCall{uint64_t{1} << 40};

 public:
  explicit World(Scenario scenario);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The whole run: disturbed, then calm until everything has converged, then drained. Empty, or
  // what went wrong, with seed, step and the events before it.
  std::string Run();

  int64_t steps() const { return steps_; }
  int64_t grants() const { return grants_; }
  // The last events, for people.
  std::string Story() const;

 private:
  void Step(const core::Event& event);
  void CarryOut(const core::Effects& effects);
  void Note(const std::string& text);
  void Fail(const std::string& text);

  void StartWorker(const WorkerPlan& plan);
  void StartDriver(const std::string& name);
  // Programs and faults, each at times of its own.
  void Programs();
  // All members ask for a use of it, one soon after the other.
  void AskGroup(const GroupPlan& group);
  void Mischief();
  void PeriodicReadings();
  void KillOne();
  // The broker is killed, and another starts on what is on record.
  void RestartBroker();
  void NoticeDeath(core::Process process);

  // Runs until `done` holds, within this time.
  bool Until(const std::function<bool()>& done, absl::Duration within);
  void Converge();
  void Drain();
  bool Settled() const;
  std::string Unsettled() const;
  std::string UnsettledPins(const core::Picture& picture) const;

  const Scenario scenario_;
  Scheduler time_;
  Random random_;
  std::unique_ptr<core::Machine> machine_;
  // On record, by pid.
  std::map<int32_t, core::Owner> record_;
  Checks checks_;
  Network network_;
  Surroundings surroundings_;
  Observer observer_;
  std::vector<std::shared_ptr<WorkerProcess>> workers_;
  std::vector<std::shared_ptr<DriverProcess>> drivers_;
  std::deque<std::string> story_;
  std::string failure_;
  int64_t steps_ = 0;
  int64_t grants_ = 0;
  uint64_t wake_ = 0;
  uint64_t epoch_ = 1;
  int32_t last_pid_ = 1000;
  int last_group_ = 0;
};

}  // namespace vrambroker::simulation
