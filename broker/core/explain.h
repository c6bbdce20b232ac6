// Why a decision fell as it did: what was known, what the plan made of it, and what the
// alternatives would have cost. The plan is made again from the knowledge that it was made from,
// which is kept for the last decisions; nothing is changed by that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/core/effects.h"
#include "broker/core/future.h"
#include "broker/core/planner.h"
#include "broker/core/units.h"

namespace vrambroker::core {

// Name and layers of a component as a plan knew them. Problems that knew the same share it.
struct KnownComponent {
  ComponentId id;
  std::string name;  // "worker/component"
  LayerTable layers;
};

// What a plan was made from, and what it gave. Points to nothing outside of itself.
struct Knowledge {
  PlanProblem problem;  // its layer tables are those of `components`, or never change
  std::vector<std::shared_ptr<const KnownComponent>> components;  // of problem.components
  std::vector<double> slot_starts;  // seconds from the decision; below 0: before the first use
  int deciding = -1;                // of problem.uses
  // Of the plan: what it is compared by when it is made again.
  std::vector<int> resident, keep, ahead;
  double saved_seconds = 0;
  // Estimated bytes of all this, without what is shared with an earlier problem.
  int64_t bytes = 0;
};

// The knowledge behind the last decisions that rest on a plan, by rising decision id.
class PlanMemory {
 public:
  // Past either the oldest is forgotten. The newest one stays whatever its size.
  static constexpr size_t kMostDecisions = 256;
  static constexpr int64_t kMostBytes = int64_t{4} << 20;

  struct Entry {
    DecisionId decision;
    int component = 0;  // of knowledge->components
    std::shared_ptr<const Knowledge> knowledge;
  };

  // Shares what has not changed since the device's newest knowledge; `name` is asked for the
  // others.
  std::shared_ptr<const Knowledge> Copy(const std::string& device, const Problem& problem,
                                        const Plan& plan,
                                        const std::function<std::string(ComponentId)>& name);
  void Add(Entry entry);
  // Null: not there (any more).
  const Entry* Find(DecisionId decision) const;
  const std::deque<Entry>& entries() const { return entries_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::deque<Entry> entries_;
  int64_t bytes_ = 0;                                             // of different knowledge
  std::map<std::string, std::weak_ptr<const Knowledge>> newest_;  // by device
};

struct ExplainedComponent {
  std::string name;
  int layers = 0;
  Bytes bytes;  // of all layers
  // Layers held without a use. 0: none, or a use of it ran.
  int held = 0;
  // Seconds lost to each byte that is streamed in a pass. 0: compute hides the copies.
  double sigma = 0;
  // Of `held`, what the plan keeps until its next use; and with what it loads ahead at once.
  int keep = 0;
  int ahead = 0;
};

struct ExplainedUse {
  int component = 0;  // of Explanation::components
  // From the decision. 0: it runs, waits, or follows at once.
  double start_seconds = 0;
  int passes = 1;
  // Beside layers and window; the window where not all layers are resident.
  Bytes need;
  Bytes window;
  // Above 0. 1: it runs, waits or is declared; below, it is expected from what recurs.
  double probability = 1;
  bool running = false;
  // The decision is on this use's grant.
  bool deciding = false;
  // Layers that the plan has on the card: while it runs; of these, kept until its start from what
  // was held or from the use before; and loaded ahead of it beside those that are kept. A running
  // use has what it was granted.
  int resident = 0;
  int kept = 0;
  int loaded = 0;
  // By these, against streaming everything; times its probability.
  double saved_seconds = 0;
};

enum class AlternativeKind {
  kUnspecified = 0,
  // Of a grant: the fewest and the most layers that the use may have.
  kGrantFewest,
  kGrantMost,
  // Otherwise: what the component held is dropped at once (and may be loaded ahead again), or stays
  // whole until its next use with nothing loaded ahead in between; without a next use, as long as
  // the plan looks ahead.
  kKeepNothing,
  kKeepAll,
};

// The best plan that is found where this one thing is as given.
struct Alternative {
  AlternativeKind kind = AlternativeKind::kUnspecified;
  int layers = 0;
  // It is what the plan chose: it costs nothing, and no other plan was made.
  bool chosen = false;
  // Seconds lost to loading beyond those of the plan that was made. Below 0: it would have been
  // better by so much, as the search does not try everything.
  double cost_seconds = 0;
  // Bytes beyond the card in its fullest slot, above those of the plan that was made. 0: it fits.
  // Where it does not, the cost is what it would be if it did.
  Bytes missing;
  // Of Explanation::uses, the one that loses most by it, and how many seconds. -1: none does.
  int loser = -1;
  double loser_seconds = 0;
};

struct Explanation {
  Decision decision;
  // False: the decision needed no plan, and nothing that follows is set.
  bool planned = false;
  // Bytes for layers, windows and needs.
  Bytes capacity;
  bool load_ahead = false;
  // Index of the decision's component.
  int component = 0;
  std::vector<ExplainedComponent> components;
  // By start.
  std::vector<ExplainedUse> uses;
  // What the plan gives where the decision is: to the use; to keep; to load to. What was decided
  // may differ, as Decision::text says: only what is missing is asked back, needs go first, and
  // what does not fit yet is not loaded yet.
  int planned_layers = 0;
  // By the whole plan, against streaming everything.
  double saved_seconds = 0;
  // The plan made again is the one that the decision rested on. Anything else is a defect.
  bool reproduced = false;
  std::vector<Alternative> alternatives;
};

// Makes the plan again, and one for each alternative: at most three. Pure.
Explanation Explain(const Decision& decision, const Knowledge& knowledge, int component);

}  // namespace vrambroker::core
