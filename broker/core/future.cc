#include "broker/core/future.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::core {
namespace {

// Uses of no known length still follow each other.
constexpr double kShortest = 1e-6;
// Uses that are expected, at most.
constexpr int kExpected = 32;
// Bytes that the link carries where nothing says how long a slot is.
constexpr double kUnboundedLink = 1e15;

double Seconds(const Component& c, int passes) {
  return std::max(kShortest, c.pass_seconds() * passes);
}

// Lays known uses out in time: components run one use at a time, runs their stages in order.
class Timeline {
 public:
  Timeline(const State& state, const Device& device, absl::Time now, int horizon, Bytes capacity)
      : state_(state), device_(device), now_(now), horizon_(horizon), capacity_(capacity) {
    by_name_.reserve(2 * state.components.size());
    for (const auto& [id, c] : state.components) {
      const Session& s = state.sessions.at(c.session);
      if (s.device != device.spec.uuid || s.phase != SessionPhase::kAttached) continue;
      by_name_.insert({absl::StrCat(s.worker, "/", c.spec.name), id});
      const auto [it, fresh] = by_name_.insert({c.spec.name, id});
      if (!fresh && it->second != id) it->second = ComponentId();  // not unique
    }
  }

  void AddRunning() {
    for (const auto& [id, c] : state_.components) {
      if (!c.use.has_value() || !Mine(c)) continue;
      const double ran = absl::ToDoubleSeconds(now_ - c.use->began);
      KnownUse use =
          Of(c, c.use->spec, 0, std::max(kShortest, Seconds(c, c.use->spec.passes) - ran));
      use.granted = c.use->granted;
      use.window = c.use->window;
      if (c.pass_seconds() > 0) {
        const double left = std::ceil(use.end / c.pass_seconds());
        use.passes = static_cast<int>(std::min(left, static_cast<double>(c.use->spec.passes)));
      }
      Add(use, c.use->spec.run);
      beside_ += LeastOf(c, use);
      first_end_ = uses_.size() == 1 ? use.end : std::min(first_end_, use.end);
    }
  }

  // Waiting uses begin beside those that run as far as the least that they need fits beside these;
  // the others one after the other once the first that runs has ended.
  void AddWaiting(const WaitingUse* deciding) {
    double cursor = first_end_;
    if (deciding != nullptr) {
      const Component& c = state_.components.at(deciding->component);
      KnownUse use = Of(c, deciding->spec, 0, Seconds(c, deciding->spec.passes));
      use.deciding = true;
      Add(use, deciding->spec.run);
      beside_ += LeastOf(c, use);
      cursor = use.end;
    }
    for (const auto& [order, w] : state_.waiting) {
      const Component& c = state_.components.at(w.component);
      if (&w == deciding || !Mine(c) || Full()) continue;
      KnownUse use = Of(c, w.spec, 0, 0);
      const bool beside =
          component_free_[c.id] <= 0 && beside_ + LeastOf(c, use) <= capacity_.count();
      if (beside) beside_ += LeastOf(c, use);
      use.start = beside ? 0 : std::max(cursor, component_free_[c.id]);
      use.end = use.start + Seconds(c, w.spec.passes);
      Add(use, w.spec.run);
      if (!beside) cursor = use.end;
    }
  }

  // Runs under way go on side by side, as many as ever did at once; those that wait take the place
  // of the first that ends.
  void AddRuns() {
    std::vector<double> lanes;
    for (const auto& [order, id] : state_.runs.started()) {
      const Run* run = &state_.runs.At(id);
      const auto it = run_ready_.find(run->id);
      if (run->next_stage >= run->count() && it == run_ready_.end()) continue;
      lanes.push_back(AddStages(*run, it == run_ready_.end() ? 0 : it->second));
    }
    while (static_cast<int>(lanes.size()) < state_.lanes) lanes.push_back(0);
    for (const auto& [at, id] : state_.runs.waiting()) {
      if (Full()) return;
      double& lane = *std::min_element(lanes.begin(), lanes.end());
      lane = AddStages(state_.runs.At(id), std::max(lane, absl::ToDoubleSeconds(at - now_)));
    }
  }

  // What follows the last use that is known, as far as it has followed before.
  void AddExpected() {
    const Habits& habits = device_.habits;
    if (!device_.expecting) return;
    std::stable_sort(declared_.begin(), declared_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> known;
    double at = absl::ToDoubleSeconds(habits.last_begin() - now_);
    for (const auto& [start, id] : declared_) {
      known.push_back(NameOf(state_.components.at(id)));
      at = start;
    }
    const int most = std::min(kExpected, horizon_ - static_cast<int>(uses_.size()));
    double end = 0;
    for (const KnownUse& use : uses_) end = std::max(end, use.end);
    for (const ExpectedUse& e : habits.Expect(known, most)) {
      at = std::max(0.0, at + absl::ToDoubleSeconds(e.after));
      if (e.alone) at = std::max(at, end);
      const auto it = by_name_.find(e.component);
      if (it == by_name_.end() || !it->second) continue;
      const Component& c = state_.components.at(it->second);
      at = std::max(at, component_free_[c.id]);
      KnownUse use = Of(c, e.spec, at, at + Seconds(c, e.spec.passes));
      use.probability = e.probability;
      end = std::max(end, use.end);
      Add(use, RunId());
    }
  }

  std::vector<KnownUse> Take() {
    std::stable_sort(uses_.begin(), uses_.end(),
                     [](const KnownUse& a, const KnownUse& b) { return a.start < b.start; });
    return std::move(uses_);
  }

 private:
  bool Mine(const Component& c) const {
    const Session& s = state_.sessions.at(c.session);
    return s.device == device_.spec.uuid && s.phase == SessionPhase::kAttached;
  }
  bool Full() const { return static_cast<int>(uses_.size()) >= horizon_; }

  // Bytes that a use has at least: what it was granted, else its fewest layers beside a window, or
  // all of them without.
  static int64_t LeastOf(const Component& c, const KnownUse& use) {
    if (c.permanent()) return use.activation.count();
    const LayerTable& layers = c.spec.layers;
    const int fewest = use.granted >= 0 ? use.granted : use.min_resident;
    const Bytes window = fewest < layers.count() ? use.window : Bytes();
    Bytes least = layers.Of(fewest) + window;
    if (use.granted < 0 && use.max_resident == layers.count())
      least = std::min(least, layers.All());
    return (least + use.activation).count();
  }

  KnownUse Of(const Component& c, const UseSpec& spec, double start, double end) const {
    KnownUse use;
    use.component = c.id;
    use.passes = spec.passes;
    use.activation = spec.activation;
    use.window = spec.window == Bytes() ? c.spec.window : spec.window;
    use.min_resident = spec.min_resident;
    use.max_resident = spec.max_resident == 0 ? c.count() : spec.max_resident;
    use.start = start;
    use.end = end;
    return use;
  }

  void Add(const KnownUse& use, RunId run) {
    component_free_[use.component] = use.end;
    if (run) run_ready_[run] = use.end;
    uses_.push_back(use);
  }

  std::string NameOf(const Component& c) const {
    return absl::StrCat(state_.sessions.at(c.session).worker, "/", c.spec.name);
  }

  // Returns when the run ends. Stages of components that are not here take no time here.
  double AddStages(const Run& run, double at) {
    for (int i = run.next_stage; i < run.count() && !Full(); ++i) {
      const StageSpec& stage = (*run.stages)[static_cast<size_t>(i)];
      const auto it = by_name_.find(stage.component);
      if (it == by_name_.end() || !it->second) continue;
      const Component& c = state_.components.at(it->second);
      UseSpec spec;
      spec.passes = stage.passes;
      spec.activation = c.estimates.ActivationNeed(AskOf(stage));
      at = std::max(at, component_free_[c.id]);
      Add(Of(c, spec, at, at + Seconds(c, stage.passes)), RunId());
      declared_.emplace_back(at, c.id);
      at += Seconds(c, stage.passes);
    }
    return at;
  }

  const State& state_;
  const Device& device_;
  absl::Time now_;
  int horizon_;
  Bytes capacity_;
  int64_t beside_ = 0;  // least bytes of the uses that run now, or could
  absl::flat_hash_map<std::string, ComponentId> by_name_;
  std::map<ComponentId, double> component_free_;
  std::map<RunId, double> run_ready_;
  double first_end_ = 0;
  // Uses that are declared and not asked for yet, with their starts.
  std::vector<std::pair<double, ComponentId>> declared_;
  std::vector<KnownUse> uses_;
};

// Of a permanent component a use needs no layers: they are on the card anyway.
const LayerTable& NoLayers() {
  static const LayerTable table;
  return table;
}

// What a byte is worth of which no use is known: how often its component was used of late, times
// what a byte of it saves; then the newest first.
double KeepRank(const Component& c, const Device& device, double sigma, const std::string& name) {
  constexpr double kLeastSigma = 1e-15, kNewer = 1e-22;
  return device.habits.Weight(name) * (sigma + kLeastSigma) +
         kNewer * static_cast<double>(c.last_used);
}

void AddComponents(const State& state, const Device& device, Problem* problem) {
  for (const auto& [id, c] : state.components) {
    const Session& s = state.sessions.at(c.session);
    if (s.device != device.spec.uuid || s.phase != SessionPhase::kAttached || !c.admitted) continue;
    PlanComponent p;
    p.layers = c.permanent() ? &NoLayers() : &c.spec.layers;
    const double rate = LinkRate(c, device);
    p.sigma = c.permanent() ? 0 : Sigma(c, device);
    p.link_share = LinkShare(c.pass_seconds(), p.layers->All(), rate);
    p.held = c.permanent() || c.use.has_value() ? 0 : std::min(c.held, c.target());
    p.keep_by_recency = KeptByRecency(c, device);
    if (p.keep_by_recency && p.held > 0) {
      p.keep_rank = KeepRank(c, device, p.sigma, absl::StrCat(s.worker, "/", c.spec.name));
    }
    problem->index[id] = static_cast<int>(problem->components.size());
    problem->components.push_back(id);
    problem->plan.components.push_back(p);
  }
  problem->next_use.assign(problem->components.size(), -1);
  problem->next_is_certain.assign(problem->components.size(), false);
}

// Slots lie between the starts of uses; a use covers those that begin before it ends. Before the
// first use lies a slot of its own where nothing runs now.
std::vector<double> SlotStarts(const std::vector<KnownUse>& uses) {
  std::vector<double> starts;
  const bool idle = uses.empty() || (uses.front().granted < 0 && !uses.front().deciding);
  if (idle) starts.push_back(-kShortest);
  for (const KnownUse& use : uses) {
    if (starts.empty() || use.start > starts.back()) starts.push_back(use.start);
  }
  return starts;
}

// What the link carries in each slot. How long a use runs whose passes were never measured nobody
// knows: where that streams nothing, the link is free. So it is where nothing runs, once `quiet`;
// before that, the next stage is about to begin.
std::vector<double> LinkOf(const std::vector<double>& starts, const std::vector<KnownUse>& uses,
                           const State& state, double rate, bool quiet) {
  double end = starts.back();
  for (const KnownUse& use : uses) end = std::max(end, use.end);
  std::vector<double> link;
  for (size_t s = 0; s < starts.size(); ++s) {
    link.push_back(rate * ((s + 1 < starts.size() ? starts[s + 1] : end) - starts[s]));
  }
  bool streams = false, measured = false;
  for (const KnownUse& use : uses) {
    if (use.start > starts.front() && !use.deciding) break;
    const Component& c = state.components.at(use.component);
    streams |= !c.permanent() && use.granted < c.count();
    measured |= c.pass_seconds() > 0;
  }
  const bool idle = starts.front() < 0;
  if (idle ? quiet : !streams && !measured) link[0] = kUnboundedLink;
  return link;
}

}  // namespace

bool KeptByRecency(const Component& c, const Device& device) {
  return !c.ever_declared || ((c.runs_seen >= 2 || c.in_pipeline) && device.expecting);
}

std::vector<KnownUse> KnownUses(const State& state, const Device& device,
                                const WaitingUse* deciding, absl::Time now, int horizon,
                                Bytes capacity) {
  Timeline timeline(state, device, now, horizon, capacity);
  timeline.AddRunning();
  timeline.AddWaiting(deciding);
  timeline.AddRuns();
  timeline.AddExpected();
  return timeline.Take();
}

Problem MakeProblem(const State& state, const Device& device, const std::vector<KnownUse>& uses,
                    Bytes capacity, Loading loading) {
  Problem problem;
  problem.plan.capacity = capacity;
  AddComponents(state, device, &problem);
  const std::vector<double> starts = SlotStarts(uses);
  problem.plan.slots = static_cast<int>(starts.size());
  problem.slot_starts = starts;
  if (loading != Loading::kOff) {
    problem.plan.link =
        LinkOf(starts, uses, state, device.spec.link_rate, loading == Loading::kWhileQuiet);
  }
  problem.idle = starts[0] < 0;
  problem.first_slot_seconds = starts.size() > 1 ? starts[1] - starts[0] : 0;
  const auto slot_of = [&](double time) {
    return static_cast<int>(std::lower_bound(starts.begin(), starts.end(), time) - starts.begin());
  };
  for (const KnownUse& known : uses) {
    const auto it = problem.index.find(known.component);
    if (it == problem.index.end()) continue;
    const PlanComponent& c = problem.plan.components[it->second];
    PlanUse use;
    use.component = it->second;
    use.first_slot = slot_of(known.start);
    use.last_slot = std::max(use.first_slot, slot_of(known.end) - 1);
    use.passes = known.passes;
    use.need = known.activation;
    use.probability = known.probability;
    const bool layers = c.layers->count() > 0;
    use.window = layers ? known.window : Bytes();
    use.min_resident = layers ? known.min_resident : 0;
    use.max_resident = layers ? known.max_resident : 0;
    use.granted = known.granted >= 0 && !layers ? 0 : known.granted;
    if (known.granted < 0 && problem.next_use[use.component] < 0 && !known.deciding) {
      problem.next_use[use.component] = known.start;
      problem.next_is_certain[static_cast<size_t>(use.component)] = use.certain();
    }
    if (known.deciding) problem.deciding = static_cast<int>(problem.plan.uses.size());
    problem.plan.uses.push_back(use);
  }
  if (problem.deciding >= 0) {
    PlanUse& use = problem.plan.uses[problem.deciding];
    use.fill = problem.next_use[use.component] < 0 &&
               problem.plan.components[use.component].keep_by_recency;
  }
  return problem;
}

}  // namespace vrambroker::core
