// What is known of the future of a device: running and waiting uses, the stages that remain of
// started runs, declared runs that wait, in the order and with the overlap in which they are to be
// expected; and the plan's problem made of it.
#pragma once

#include <map>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/planner.h"
#include "broker/core/state.h"

namespace vrambroker::core {

struct KnownUse {
  ComponentId component;
  int passes = 1;
  Bytes activation;
  Bytes window;  // where not all layers are resident
  int min_resident = 0;
  int max_resident = 0;
  // Seconds from now.
  double start = 0;
  double end = 0;
  // At least 0: it runs, with that many layers.
  int granted = -1;
  bool deciding = false;
  // Below 1: nobody declared it, it is expected from what recurs.
  double probability = 1;
};

// Whether a component with no next use is kept as long as nobody wants the room: nobody ever
// declared what it is for; or another run is still to be expected, because run after run came for
// it, or because the driver of its pipeline is still there.
bool KeptByRecency(const Component& c, const Device& device);

// At most `horizon` uses, by start: those that run and wait, the stages that remain of started
// runs, declared runs that wait, and what is then to be expected. `deciding`: the waiting use that
// is being decided, taken to start now; null: none.
std::vector<KnownUse> KnownUses(const State& state, const Device& device,
                                const WaitingUse* deciding, absl::Time now, int horizon,
                                Bytes capacity);

// A problem with what its indexes stand for.
struct Problem {
  PlanProblem plan;
  std::vector<ComponentId> components;  // of plan.components
  std::map<ComponentId, int> index;
  int deciding = -1;                // of plan.uses
  std::vector<double> slot_starts;  // seconds from now; below 0: before the first use
  // Seconds until the next use of each component, -1 where none is known.
  std::vector<double> next_use;
  // Whether that use is certain, and not only expected.
  std::vector<bool> next_is_certain;
  // Nothing runs in the first slot.
  bool idle = false;
  // Until the first slot ends. Bytes a second that uses leave of the link meanwhile are its
  // plan.link[0], less what they stream, over this.
  double first_slot_seconds = 0;
};

// Whether a plan may load ahead; kWhileQuiet: also while nothing runs.
enum class Loading { kOff, kOn, kWhileQuiet };

// `capacity`: bytes for layers, windows and needs.
Problem MakeProblem(const State& state, const Device& device, const std::vector<KnownUse>& uses,
                    Bytes capacity, Loading loading);

}  // namespace vrambroker::core
