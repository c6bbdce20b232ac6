// What one run of the simulation is made of, all of it from one seed: devices, workers with their
// components, how the driver is read, and how often what goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/machine.h"

namespace vrambroker::simulation {

// The same numbers for the same seed, on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // 0 to n - 1; n above 0.
  int Below(int n) { return static_cast<int>(Next() % static_cast<uint64_t>(n)); }
  // Both included.
  int64_t Between(int64_t low, int64_t high);
  double Unit();
  bool Chance(double p) { return Unit() < p; }
  // Mostly near the low end, now and then up to the high one.
  absl::Duration Delay(absl::Duration low, absl::Duration high);

 private:
  uint64_t state_;
};

struct ComponentPlan {
  std::string name;
  std::vector<int64_t> layers;  // bytes, in keep order
  int64_t fixed = 0;
  int64_t window = 0;
  bool permanent = false;
  double pass_seconds = 0;
  int64_t pin_host = 0;  // host bytes that it wishes to pin
};

struct WorkerPlan {
  std::string name;
  std::string device;
  std::vector<ComponentPlan> components;
  // Its allocator keeps what is freed until it is told to trim.
  bool caching = false;
  // Says at times that it has released what it has not.
  bool liar = false;
  // What its process may use of the host's memory: 0 is not known; "" is the machine.
  int64_t host_limit = 0;
  std::string host_domain;
};

// Members of a stage that is sharded, each on a device of its own: worker and component.
struct GroupPlan {
  std::string name;
  std::vector<std::pair<std::string, std::string>> members;
  int layers = 0;  // of each
};

enum class Probe { kNone, kTotals, kByProcess };

// Chances, each at its own occasion; faults come only while they are switched on.
struct Faults {
  double lose_stream = 0;
  double kill = 0;
  double restart = 0;  // of the broker
  double pause = 0;
  double give_up = 0;
  double end_given_up = 0;
  double lie = 0;
  double duplicate = 0;
  double call_fails = 0;
  double reorder = 0;
  double self_release = 0;
  double update = 0;
  double reading_fails = 0;
  double refuse_pin = 0;
  double foreign = 0;
};

struct Scenario {
  uint64_t seed = 0;
  // Steps of the machine before faults are switched off.
  int steps = 0;
  core::Config config;
  std::vector<core::DeviceSpec> devices;
  std::vector<WorkerPlan> workers;
  std::vector<GroupPlan> groups;
  int drivers = 0;
  Probe probe = Probe::kNone;
  // The driver lists processes by the pids of another namespace than the broker's, which does not
  // know the workers' own pids either.
  bool pids_elsewhere = false;
  // Where the driver lists processes, those that are not ours are not on the list.
  bool hidden_foreign = false;
  // Freed bytes are shown this much longer.
  absl::Duration driver_lag;
  Faults faults;
  double infeasible = 0;
  double nested = 0;
};

Scenario MakeScenario(uint64_t seed, int steps);

}  // namespace vrambroker::simulation
