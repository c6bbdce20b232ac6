#include "broker/core/planner.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "broker/core/plan_draft.h"
#include "broker/core/plan_items.h"
#include "broker/core/plan_loads.h"

namespace vrambroker::core {
namespace {

// Passes that let uses do without their window. Each is a whole greedy pass; more changed no plan
// measured.
constexpr int kWindowRounds = 3;
// Exchanges of layers, for each gap. A bound, not a tuning: the published rows need at most one a
// gap.
constexpr int kExchangesPerGap = 2;

// Other choices of windows are tried for so many components.
constexpr size_t kFlippedComponents = 8;
// A choice whose first pass saves less than this share of the best so far is not improved.
constexpr double kHopeless = 0.9;

class Search {
 public:
  explicit Search(const PlanProblem& problem) : m_(problem), p_(problem) {
    const std::vector<Item> items = MakeItems(m_);
    for (Order order : {Order::kByValue, Order::kByValueOverSpan, Order::kShortFirst}) {
      orders_.push_back(Sorted(m_, items, order));
    }
  }

  Plan Solve() {
    std::vector<bool> whole(p_.uses.size(), false);
    Draft best = BestOrder(Draft(m_, whole));
    double saved = best.Saved();
    ImproveWindows(/*all_orders=*/true, &whole, &best, &saved);
    const std::vector<bool> fits = WholeWhereItFits();
    Try(fits, &whole, &best, &saved);
    for (int component : FirstComponents()) {
      std::vector<bool> flipped = whole;
      for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
        if (p_.uses[i].component == component) flipped[i] = !whole[i] && fits[i];
      }
      if (flipped != whole) Try(flipped, &whole, &best, &saved);
    }
    Exchange(&best);
    if (m_.loads()) LoadSearch(m_, orders_).Improve(whole, fits, &best);
    Finish(&best);
    return Extract(best);
  }

 private:
  // Whether a component does without its window is all one for its uses, or nearly: flipped one
  // component at a time, of those that are used first.
  std::vector<int> FirstComponents() const {
    std::vector<int> first;
    for (const PlanUse& u : p_.uses) {
      if (first.size() >= kFlippedComponents) break;
      if (std::find(first.begin(), first.end(), u.component) == first.end()) {
        first.push_back(u.component);
      }
    }
    return first;
  }

  Draft BestOrder(const Draft& empty) {
    Draft best = Pass(empty, orders_[0]);
    double saved = best.Saved();
    order_ = 0;
    for (size_t i = 1; i < orders_.size(); ++i) {
      Draft d = Pass(empty, orders_[i]);
      const double s = d.Saved();
      if (s <= saved) continue;
      best = std::move(d);
      saved = s;
      order_ = i;
    }
    return best;
  }

  // Raises what has a value, the first as much as its slots allow.
  Draft Pass(Draft d, const std::vector<Item>& items) const {
    for (const Item& item : items) {
      if (item.value <= 0) break;
      if (item.is_gap) {
        d.RaiseKept(item.index, m_.gaps[item.index].most_kept);
      } else {
        d.RaiseResident(item.index, m_.MostResident(item.index));
      }
    }
    return d;
  }

  // Takes `candidate`, improved, where it saves more. In the order that was the best so far: the
  // others changed no plan measured.
  void Try(std::vector<bool> candidate, std::vector<bool>* whole, Draft* best, double* saved) {
    Draft draft(m_, candidate);
    if (!draft.feasible()) return;
    draft = Pass(std::move(draft), orders_[order_]);
    double s = draft.Saved();
    if (s <= kHopeless * *saved) return;
    ImproveWindows(/*all_orders=*/false, &candidate, &draft, &s);
    if (s <= *saved) return;
    *best = std::move(draft);
    *whole = std::move(candidate);
    *saved = s;
  }

  // A use that all but holds its layers can have the rest in place of its window. `all_orders`:
  // without them, the row of prompt-rewrite-sdxl at 12 GiB is 3.2 % above its optimum.
  void ImproveWindows(bool all_orders, std::vector<bool>* whole, Draft* best, double* saved) {
    for (int round = 0; round < kWindowRounds; ++round) {
      std::vector<bool> more = *whole;
      for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
        const PlanUse& u = p_.uses[i];
        const LayerTable& layers = m_.Layers(i);
        if (more[i] || u.granted >= 0 || u.max_resident < layers.count()) continue;
        if (p_.components[u.component].sigma <= 0) continue;  // the window is the cheaper one
        const int64_t missing = (layers.All() - layers.Of(best->resident(i))).count();
        more[i] = missing <= best->Room(u.first_slot, u.last_slot) + u.window.count();
      }
      if (more == *whole) return;
      Draft next(m_, more);
      if (!next.feasible()) return;
      next = all_orders ? BestOrder(next) : Pass(std::move(next), orders_[order_]);
      const double s = next.Saved();
      if (s < *saved) return;
      *best = std::move(next);
      *whole = std::move(more);
      *saved = s;
    }
  }

  std::vector<bool> WholeWhereItFits() const {
    std::vector<bool> whole(p_.uses.size(), false);
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      whole[i] = u.granted < 0 && u.certain() && u.max_resident == m_.Layers(i).count() &&
                 p_.components[u.component].sigma > 0 && m_.Layers(i).All() + u.need <= p_.capacity;
    }
    return whole;
  }

  // Layers are whole, so that what the greedy order leaves over may be less than the next layer of
  // anything. One more layer of one gap for fewer bytes of another may then gain. Without this,
  // the row of prompt-rewrite-sdxl at 12 GiB is 2.7 % above its optimum; with it, at it.
  void Exchange(Draft* d) const {
    const int gaps = static_cast<int>(m_.gaps.size());
    int budget = kExchangesPerGap * gaps;
    for (bool changed = true; changed && budget > 0;) {
      changed = false;
      for (int x = 0; x < gaps && budget > 0; ++x) {
        const std::optional<Lack> lack = LackOf(x, *d);
        if (!lack.has_value()) continue;
        for (int y = 0; y < gaps; ++y) {
          if (x == y || !ExchangeGains(*lack, x, y, d)) continue;
          changed = true;
          --budget;
          break;
        }
      }
    }
  }

  // What one more layer kept in a gap needs, and where that is missing.
  struct Lack {
    double value = 0;     // seconds saved by the layer
    int64_t missing = 0;  // bytes, above 0: in the slot that is shortest of them
    int first = 0;        // slots that are short
    int last = 0;
  };

  // Unset where the layer would have no value, or lacks no bytes between the uses, or some during
  // one of them.
  std::optional<Lack> LackOf(int x, const Draft& d) const {
    const Gap& g = m_.gaps[x];
    if (g.value <= 0 || d.kept(x) >= g.most_kept) return std::nullopt;
    const LayerTable& layers = m_.LayersOf(g.component);
    const int64_t size = (layers.Of(d.kept(x) + 1) - layers.Of(d.kept(x))).count();
    Lack lack;
    for (int s = g.first; s <= g.last; ++s) {
      const int64_t missing = size - d.free(s);
      if (missing <= 0) continue;
      if (lack.missing == 0) lack.first = s;
      lack.last = s;
      lack.missing = std::max(lack.missing, missing);
    }
    if (lack.missing == 0) return std::nullopt;
    for (int end : {g.from, g.to}) {
      if (end != kNoUse && d.ReachableResident(end) <= d.kept(x)) return std::nullopt;
    }
    lack.value = g.value * static_cast<double>(size);
    return lack;
  }

  // One more layer kept in gap x for as few of gap y as make room, where that gains.
  bool ExchangeGains(const Lack& lack, int x, int y, Draft* d) const {
    const Gap& g = m_.gaps[y];
    if (d->kept(y) == 0 || lack.first < g.first || lack.last > g.last) return false;
    const LayerTable& layers = m_.LayersOf(g.component);
    const int64_t have = layers.Of(d->kept(y)).count();
    if (lack.missing > have) return false;
    const int left = layers.Within(Bytes(have - lack.missing));
    const int64_t freed = have - layers.Of(left).count();
    if (lack.value <= g.value * static_cast<double>(freed)) return false;
    if (!d->LowerKept(y, left)) return false;
    d->RaiseKept(x, d->kept(x) + 1);
    return true;
  }

  // What costs nothing to keep is kept.
  void Finish(Draft* d) const {
    for (const Item& item : orders_[0]) {
      if (item.is_gap) {
        d->RaiseKept(item.index, m_.gaps[item.index].most_kept);
      } else {
        d->RaiseResident(item.index, m_.MostResident(item.index));
      }
    }
  }

  Plan Extract(const Draft& d) const {
    Plan plan;
    plan.saved_seconds = d.Saved();
    plan.kept.assign(p_.uses.size(), 0);
    plan.loaded.assign(p_.uses.size(), 0);
    plan.loads.resize(p_.uses.size());
    plan.keep.assign(p_.components.size(), 0);
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i)
      plan.resident.push_back(d.resident(i));
    for (int i = 0; i < static_cast<int>(m_.gaps.size()); ++i) {
      const Gap& g = m_.gaps[i];
      if (g.from == kNoUse) plan.keep[g.component] = d.kept(i);
      if (g.from != kNoUse) plan.kept[g.from] = d.kept(i);
      if (g.to == kNoUse) continue;
      plan.loaded[g.to] = d.loaded(i);
      if (d.loaded(i) > 0) plan.loads[g.to].assign(d.loads(i).begin(), d.loads(i).end());
    }
    plan.ahead = plan.keep;
    if (m_.loads()) plan.link_left = d.link(0);
    for (int i = 0; i < static_cast<int>(m_.gaps.size()); ++i) LoadNow(m_.gaps[i], i, d, &plan);
    return plan;
  }

  // What the plan loads in the first slot, the layer on the way at its end included.
  void LoadNow(const Gap& g, int index, const Draft& d, Plan* plan) const {
    if (g.from != kNoUse || g.to == kNoUse || d.loaded(index) == 0 || g.last >= kLoadReach) return;
    const int64_t bytes = d.loads(index)[static_cast<size_t>(g.last)];
    if (bytes == 0) return;
    plan->link_left += static_cast<double>(bytes);
    const LayerTable& layers = m_.LayersOf(g.component);
    const int64_t have = layers.Of(d.kept(index)).count();
    const int ahead = layers.Covering(Bytes(have + bytes));
    plan->ahead[g.component] = std::max(ahead, plan->keep[g.component]);
  }

  const PlanModel m_;
  const PlanProblem& p_;
  std::vector<std::vector<Item>> orders_;
  size_t order_ = 0;  // the best of them so far
};

}  // namespace

double ExposedSecondsPerByte(double pass_seconds, Bytes weights, double link_rate) {
  VRAM_CHECK(link_rate > 0);
  if (weights == Bytes()) return 0;
  return std::max(0.0, 1.0 / link_rate - pass_seconds / weights.as_double());
}

double LinkShare(double pass_seconds, Bytes weights, double link_rate) {
  VRAM_CHECK(link_rate > 0);
  if (weights == Bytes()) return 0;
  return std::min(1.0, link_rate * pass_seconds / weights.as_double());
}

Plan MakePlan(const PlanProblem& problem) { return Search(problem).Solve(); }

}  // namespace vrambroker::core
