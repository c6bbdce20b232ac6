// What the requests of a simulated workload lose, the same for the broker and for each rule.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "broker/sim/simulate.h"

namespace vrambroker::sim {

// Whether the least need of every use of every run fits the card: a window, or all layers.
inline bool Feasible(const Workload& w) {
  int64_t room = w.device.capacity_bytes - w.device.reserve_bytes;
  for (const Component& c : w.components) room -= c.fixed_bytes;
  for (const Run& run : w.runs) {
    for (const Stage& stage : w.pipelines[static_cast<size_t>(run.pipeline)].stages) {
      const Component& c = w.components[static_cast<size_t>(stage.component)];
      const int64_t layers = std::min(c.WindowBytes(), c.Layers().All().count());
      if (layers + stage.activation_bytes > room) return false;
    }
  }
  return true;
}

inline double ComputeSeconds(const Workload& w, int run) {
  double seconds = 0;
  const Run& r = w.runs[static_cast<size_t>(run)];
  for (const Stage& stage : w.pipelines[static_cast<size_t>(r.pipeline)].stages) {
    seconds += stage.passes * w.components[static_cast<size_t>(stage.component)].pass_seconds;
  }
  return seconds;
}

// What a request lost: to loading where one run goes after the other; where runs overlap, to
// waiting for each other as well, because one rule has a use wait until it fits whole where another
// lets it stream at once.
inline double LostSeconds(const Workload& w, const RequestRecord& r) {
  return w.max_concurrent_runs == 1 ? r.stall_seconds
                                    : r.ended - r.arrived - ComputeSeconds(w, r.run);
}

// Lost by all requests in all.
inline double LostSeconds(const Workload& w, const Result& result) {
  if (w.max_concurrent_runs == 1) return result.stall_seconds;
  double lost = 0;
  for (const RequestRecord& r : result.requests) lost += LostSeconds(w, r);
  return lost;
}

// The same from the third request on, or from the third request of each pipeline on; 0 where there
// is none.
inline double LostFromTheThird(const Workload& w, const Result& result, bool of_each_pipeline) {
  std::vector<const RequestRecord*> requests;
  for (const RequestRecord& r : result.requests) requests.push_back(&r);
  std::stable_sort(
      requests.begin(), requests.end(),
      [](const RequestRecord* a, const RequestRecord* b) { return a->arrived < b->arrived; });
  std::map<int, int> seen;
  double lost = 0;
  for (const RequestRecord* r : requests) {
    const int pipeline = of_each_pipeline ? w.runs[static_cast<size_t>(r->run)].pipeline : 0;
    if (++seen[pipeline] > 2) lost += LostSeconds(w, *r);
  }
  return lost;
}

}  // namespace vrambroker::sim
