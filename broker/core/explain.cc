#include "broker/core/explain.h"

#include <algorithm>
#include <utility>

namespace vrambroker::core {
namespace {

// Below this, in seconds, a use does not count as losing anything.
constexpr double kNothing = 1e-9;

// The use before each of the same component, -1 where there is none.
std::vector<int> UsesBefore(const PlanProblem& p) {
  std::vector<int> before, latest(p.components.size(), -1);
  for (int i = 0; i < static_cast<int>(p.uses.size()); ++i) {
    before.push_back(std::exchange(latest[p.uses[i].component], i));
  }
  return before;
}

// Layers kept until each use.
std::vector<int> KeptUntil(const PlanProblem& p, const Plan& plan) {
  const std::vector<int> before = UsesBefore(p);
  std::vector<int> kept;
  for (size_t i = 0; i < p.uses.size(); ++i) {
    const PlanUse& u = p.uses[i];
    kept.push_back(u.granted >= 0   ? 0
                   : before[i] >= 0 ? plan.kept[before[i]]
                                    : plan.keep[u.component]);
  }
  return kept;
}

// Seconds that each use is saved; together the plan's.
std::vector<double> SavedByUse(const PlanProblem& p, const Plan& plan) {
  const std::vector<int> kept = KeptUntil(p, plan);
  std::vector<double> saved;
  for (size_t i = 0; i < p.uses.size(); ++i) {
    const PlanUse& u = p.uses[i];
    const PlanComponent& c = p.components[u.component];
    const double there = c.layers->Of(kept[i] + plan.loaded[i]).as_double();
    const double resident = c.layers->Of(plan.resident[i]).as_double() * (u.passes - 1);
    saved.push_back(u.granted >= 0 ? 0 : u.probability * c.sigma * (there + resident));
  }
  return saved;
}

// Bytes beyond the card in the plan's fullest slot, 0 where all fits. What is loaded ahead only
// takes what is free.
int64_t BytesBeyond(const PlanProblem& p, const Plan& plan) {
  std::vector<int64_t> taken(p.slots, 0);
  const auto take = [&](int first, int last, int64_t bytes) {
    for (int s = first; s <= last; ++s) taken[s] += bytes;
  };
  const std::vector<int> before = UsesBefore(p), kept = KeptUntil(p, plan);
  std::vector<bool> used(p.components.size(), false);
  for (size_t i = 0; i < p.uses.size(); ++i) {
    const PlanUse& u = p.uses[i];
    const LayerTable& layers = *p.components[u.component].layers;
    used[u.component] = true;
    Bytes mine = layers.Of(plan.resident[i]);
    if (u.certain()) mine += u.need;
    if (u.certain() && plan.resident[i] < layers.count()) mine += u.window;
    take(u.first_slot, u.last_slot, mine.count());
    const int from = before[i] < 0 ? 0 : p.uses[before[i]].last_slot + 1;
    take(from, u.first_slot - 1, layers.Of(kept[i]).count());
  }
  for (size_t c = 0; c < p.components.size(); ++c) {
    if (!used[c]) take(0, p.slots - 1, p.components[c].layers->Of(plan.keep[c]).count());
  }
  const auto fullest = std::max_element(taken.begin(), taken.end());
  return fullest == taken.end() ? 0 : std::max<int64_t>(0, *fullest - p.capacity.count());
}

// The next use of a component that does not run, -1 where none is known.
int NextUse(const PlanProblem& p, int component) {
  for (size_t i = 0; i < p.uses.size(); ++i) {
    if (p.uses[i].component == component && p.uses[i].granted < 0) return static_cast<int>(i);
  }
  return -1;
}

// What the alternatives are compared with.
struct Made {
  const PlanProblem& problem;
  Plan plan;
  std::vector<double> saved;
  int64_t beyond;
};

Made Make(const PlanProblem& problem) {
  Made made{problem, MakePlan(problem), {}, 0};
  made.saved = SavedByUse(problem, made.plan);
  made.beyond = BytesBeyond(problem, made.plan);
  return made;
}

// `added`: uses that the changed problem has before those of the decision's.
void Compare(const Made& decided, const PlanProblem& changed, size_t added, Alternative* a) {
  const Made other = Make(changed);
  a->cost_seconds = decided.plan.saved_seconds - other.plan.saved_seconds;
  a->missing = Bytes(std::max<int64_t>(0, other.beyond - decided.beyond));
  for (size_t i = 0; i < decided.saved.size(); ++i) {
    const double lost = decided.saved[i] - other.saved[i + added];
    if (lost <= std::max(kNothing, a->loser_seconds)) continue;
    a->loser = static_cast<int>(i);
    a->loser_seconds = lost;
  }
}

std::vector<Alternative> GrantAlternatives(const Made& decided, int deciding) {
  const PlanUse& use = decided.problem.uses[deciding];
  std::vector<Alternative> all;
  if (decided.problem.components[use.component].layers->count() == 0) return all;
  for (AlternativeKind kind : {AlternativeKind::kGrantFewest, AlternativeKind::kGrantMost}) {
    Alternative a;
    a.kind = kind;
    a.layers = kind == AlternativeKind::kGrantFewest ? use.min_resident : use.max_resident;
    a.chosen = decided.plan.resident[deciding] == a.layers;
    if (!a.chosen) {
      PlanProblem changed = decided.problem;
      changed.uses[deciding].min_resident = changed.uses[deciding].max_resident = a.layers;
      Compare(decided, changed, 0, &a);
    }
    all.push_back(a);
  }
  return all;
}

// Something that runs until the next use, charged with what is held, stands for what is kept whole:
// from its end to that use no time passes.
PlanProblem WithAllKept(const PlanProblem& p, int component, int last_slot) {
  PlanProblem changed = p;
  PlanUse held;
  held.component = component;
  held.last_slot = last_slot;
  held.passes = 0;
  held.granted = p.components[component].held;
  changed.uses.insert(changed.uses.begin(), held);
  return changed;
}

std::vector<Alternative> KeepAlternatives(const Made& decided, int component) {
  const PlanProblem& p = decided.problem;
  const PlanComponent& c = p.components[component];
  const int next = NextUse(p, component);
  const int last = next < 0 ? p.slots - 1 : p.uses[next].first_slot - 1;
  const int keep = decided.plan.keep[component];
  const bool loads = next >= 0 && decided.plan.loaded[next] > 0;
  std::vector<Alternative> all;
  if (c.held > 0) {
    Alternative nothing;
    nothing.kind = AlternativeKind::kKeepNothing;
    nothing.chosen = keep == 0;
    if (!nothing.chosen) {
      PlanProblem changed = p;
      changed.components[component].held = 0;
      Compare(decided, changed, 0, &nothing);
    }
    all.push_back(nothing);
  }
  // Where no slot lies between, or nothing is there to be kept or loaded, there is no other way.
  if (last < 0 || (c.held == 0 && !loads)) return all;
  Alternative whole;
  whole.kind = AlternativeKind::kKeepAll;
  whole.layers = c.held;
  whole.chosen = keep == c.held && !loads;
  if (!whole.chosen) Compare(decided, WithAllKept(p, component, last), 1, &whole);
  all.push_back(whole);
  return all;
}

std::vector<ExplainedComponent> Components(const Knowledge& k, const Plan& plan) {
  std::vector<ExplainedComponent> all;
  for (size_t i = 0; i < k.components.size(); ++i) {
    const PlanComponent& c = k.problem.components[i];
    ExplainedComponent e;
    e.name = k.components[i]->name;
    e.layers = c.layers->count();
    e.bytes = c.layers->All();
    e.held = c.held;
    e.sigma = c.sigma;
    e.keep = plan.keep[i];
    e.ahead = plan.ahead[i];
    all.push_back(std::move(e));
  }
  return all;
}

std::vector<ExplainedUse> Uses(const Knowledge& k, const Made& made) {
  const std::vector<int> kept = KeptUntil(k.problem, made.plan);
  std::vector<ExplainedUse> all;
  for (size_t i = 0; i < k.problem.uses.size(); ++i) {
    const PlanUse& u = k.problem.uses[i];
    ExplainedUse e;
    e.component = u.component;
    e.start_seconds = std::max(0.0, k.slot_starts[u.first_slot]);
    e.passes = u.passes;
    e.need = u.need;
    e.window = u.window;
    e.probability = u.probability;
    e.running = u.granted >= 0;
    e.deciding = static_cast<int>(i) == k.deciding;
    e.resident = made.plan.resident[i];
    e.kept = kept[i];
    e.loaded = made.plan.loaded[i];
    e.saved_seconds = made.saved[i];
    all.push_back(e);
  }
  return all;
}

template <typename T>
int64_t BytesOf(const std::vector<T>& v) {
  return static_cast<int64_t>(v.capacity() * sizeof(T));
}

int64_t BytesOf(const Knowledge& k) {
  return static_cast<int64_t>(sizeof(k)) + BytesOf(k.problem.link) + BytesOf(k.problem.components) +
         BytesOf(k.problem.uses) + BytesOf(k.components) + BytesOf(k.slot_starts) +
         BytesOf(k.resident) + BytesOf(k.keep) + BytesOf(k.ahead);
}

}  // namespace

std::shared_ptr<const Knowledge> PlanMemory::Copy(
    const std::string& device, const Problem& problem, const Plan& plan,
    const std::function<std::string(ComponentId)>& name) {
  auto k = std::make_shared<Knowledge>();
  k->problem = problem.plan;
  k->slot_starts = problem.slot_starts;
  k->deciding = problem.deciding;
  k->resident = plan.resident;
  k->keep = plan.keep;
  k->ahead = plan.ahead;
  k->saved_seconds = plan.saved_seconds;
  k->components.reserve(problem.components.size());
  const std::shared_ptr<const Knowledge> before = newest_[device].lock();
  size_t at = 0;  // in `before`; both are by id
  int64_t tables = 0;
  for (size_t i = 0; i < problem.components.size(); ++i) {
    const ComponentId id = problem.components[i];
    const LayerTable& layers = *problem.plan.components[i].layers;
    while (before != nullptr && at < before->components.size() && before->components[at]->id < id) {
      ++at;
    }
    const bool known = before != nullptr && at < before->components.size() &&
                       before->components[at]->id == id && before->components[at]->layers == layers;
    if (known) {
      k->components.push_back(before->components[at]);
    } else {
      k->components.push_back(
          std::make_shared<const KnownComponent>(KnownComponent{id, name(id), layers}));
      tables += static_cast<int64_t>(sizeof(KnownComponent) + k->components.back()->name.size() +
                                     sizeof(Bytes) * (static_cast<size_t>(layers.count()) + 1));
    }
    k->problem.components[i].layers = &k->components.back()->layers;
  }
  k->bytes = BytesOf(*k) + tables;
  newest_[device] = k;
  return k;
}

void PlanMemory::Add(Entry entry) {
  const bool fresh = entries_.empty() || entries_.back().knowledge != entry.knowledge;
  if (fresh) bytes_ += entry.knowledge->bytes;
  entries_.push_back(std::move(entry));
  while (entries_.size() > 1 && (entries_.size() > kMostDecisions || bytes_ > kMostBytes)) {
    if (entries_[0].knowledge != entries_[1].knowledge) bytes_ -= entries_[0].knowledge->bytes;
    entries_.pop_front();
  }
}

const PlanMemory::Entry* PlanMemory::Find(DecisionId decision) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), decision,
                       [](const Entry& e, DecisionId id) { return e.decision < id; });
  return found != entries_.end() && found->decision == decision ? &*found : nullptr;
}

Explanation Explain(const Decision& decision, const Knowledge& k, int component) {
  const Made made = Make(k.problem);
  const bool grant = k.deciding >= 0 && k.problem.uses[k.deciding].component == component;
  Explanation e;
  e.decision = decision;
  e.planned = true;
  e.capacity = k.problem.capacity;
  e.load_ahead = !k.problem.link.empty();
  e.component = component;
  e.components = Components(k, made.plan);
  e.uses = Uses(k, made);
  e.planned_layers = grant                                       ? made.plan.resident[k.deciding]
                     : decision.kind == DecisionKind::kLoadAhead ? made.plan.ahead[component]
                                                                 : made.plan.keep[component];
  e.saved_seconds = made.plan.saved_seconds;
  e.reproduced = made.plan.resident == k.resident && made.plan.keep == k.keep &&
                 made.plan.ahead == k.ahead && made.plan.saved_seconds == k.saved_seconds;
  e.alternatives = grant ? GrantAlternatives(made, k.deciding) : KeepAlternatives(made, component);
  return e;
}

}  // namespace vrambroker::core
