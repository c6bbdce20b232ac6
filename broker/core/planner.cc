#include "broker/core/planner.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "broker/core/plan_draft.h"

namespace vrambroker::core {
namespace {

// Passes that let uses do without their window. Each is a whole greedy pass; more changed no plan
// measured.
constexpr int kWindowRounds = 3;
// Exchanges of layers, for each gap. A bound, not a tuning: the published rows need at most one a
// gap.
constexpr int kExchangesPerGap = 2;
// Rounds of improving what is loaded ahead.
constexpr int kLoadRounds = 3;

// Gaps between whose loads layers are exchanged.
constexpr size_t kExchangedGaps = 8;

// Something that a pass may raise.
struct Item {
  bool is_gap = false;
  int index = 0;
  double value = 0;  // seconds for a byte
  int span = 1;      // slots
};

enum class Order { kByValue, kByValueOverSpan, kShortFirst };

class Search {
 public:
  explicit Search(const PlanProblem& problem) : m_(problem), p_(problem) {
    MakeItems();
    for (Order order : {Order::kByValue, Order::kByValueOverSpan, Order::kShortFirst}) {
      orders_.push_back(Sorted(order));
    }
  }

  Plan Solve() {
    std::vector<bool> whole(p_.uses.size(), false);
    Draft best = BestOrder(whole);
    double saved = best.Saved();
    ImproveWindows(&whole, &best, &saved);
    const std::vector<bool> fits = WholeWhereItFits();
    Try(fits, &whole, &best, &saved);
    // Whether a component does without its window is all one for its uses, or nearly: flip one at a
    // time.
    for (int c = 0; c < static_cast<int>(p_.components.size()); ++c) {
      std::vector<bool> flipped = whole;
      for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
        if (p_.uses[i].component == c) flipped[i] = !whole[i] && fits[i];
      }
      if (flipped != whole) Try(flipped, &whole, &best, &saved);
    }
    Exchange(&best);
    if (m_.loads()) LoadAhead(whole, fits, &best);
    Finish(&best);
    return Extract(best);
  }

 private:
  void MakeItems() {
    for (int i = 0; i < static_cast<int>(m_.gaps.size()); ++i) {
      const Gap& g = m_.gaps[i];
      items_.push_back({true, i, g.value, std::max(1, g.last - g.first + 2)});
    }
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      if (u.granted >= 0 || (u.passes <= 1 && !u.fill)) continue;
      items_.push_back({false, i, m_.ResidentValue(i), u.last_slot - u.first_slot + 1});
    }
  }

  // What costs nothing to keep comes last, the newest first; ties go to the earlier item.
  std::vector<Item> Sorted(Order order) const {
    std::vector<Item> items = items_;
    auto key = [&](const Item& item) {
      const bool free_of_value = item.value <= 0;
      double rank = item.value;
      if (order == Order::kByValueOverSpan) rank /= item.span;
      if (order == Order::kShortFirst) rank = 1.0 / item.span;
      if (free_of_value && item.is_gap) {
        rank = static_cast<double>(p_.components[m_.gaps[item.index].component].last_used);
      }
      const bool has_next = !item.is_gap || m_.gaps[item.index].to != kNoUse;
      return std::make_tuple(free_of_value, free_of_value && !has_next, -rank, -item.value,
                             item.span);
    };
    std::stable_sort(items.begin(), items.end(),
                     [&](const Item& a, const Item& b) { return key(a) < key(b); });
    return items;
  }

  Draft BestOrder(const std::vector<bool>& whole) const {
    Draft best = Pass(whole, orders_[0]);
    double saved = best.Saved();
    for (size_t i = 1; i < orders_.size(); ++i) {
      Draft d = Pass(whole, orders_[i]);
      const double s = d.Saved();
      if (s <= saved) continue;
      best = std::move(d);
      saved = s;
    }
    return best;
  }

  // Raises what has a value, the first as much as its slots allow.
  Draft Pass(const std::vector<bool>& whole, const std::vector<Item>& items) const {
    Draft d(m_, whole);
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

  // Takes `candidate`, improved, where it saves more.
  void Try(std::vector<bool> candidate, std::vector<bool>* whole, Draft* best,
           double* saved) const {
    Draft draft = BestOrder(candidate);
    if (!draft.feasible()) return;
    double s = draft.Saved();
    ImproveWindows(&candidate, &draft, &s);
    if (s <= *saved) return;
    *best = std::move(draft);
    *whole = std::move(candidate);
    *saved = s;
  }

  // A use that all but holds its layers can have the rest in place of its window.
  void ImproveWindows(std::vector<bool>* whole, Draft* best, double* saved) const {
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
      Draft next = BestOrder(more);
      const double s = next.Saved();
      if (!next.feasible() || s < *saved) return;
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
        for (int y = 0; y < gaps; ++y) {
          if (x == y || !ExchangeGains(x, y, d)) continue;
          changed = true;
          --budget;
          break;
        }
      }
    }
  }

  // One more layer kept in gap x for as few of gap y as make room, where that gains. Only between
  // slots: both ends of x must have room already.
  bool ExchangeGains(int x, int y, Draft* d) const {
    const Gap& gx = m_.gaps[x];
    const Gap& gy = m_.gaps[y];
    if (d->kept(x) >= gx.most_kept || gx.value <= 0 || d->kept(y) == 0) return false;
    if (gx.last < gy.first || gy.last < gx.first) return false;
    const LayerTable& layers = m_.LayersOf(gx.component);
    const int64_t size = (layers.Of(d->kept(x) + 1) - layers.Of(d->kept(x))).count();
    int64_t deficit = 0;
    for (int s = gx.first; s <= gx.last; ++s) {
      const int64_t missing = size - d->free(s);
      if (missing > 0 && (s < gy.first || s > gy.last)) return false;
      deficit = std::max(deficit, missing);
    }
    const LayerTable& others = m_.LayersOf(gy.component);
    const int64_t have = others.Of(d->kept(y)).count();
    if (deficit <= 0 || deficit > have) return false;
    const int left = others.Within(Bytes(have - deficit));
    const int64_t freed = have - others.Of(left).count();
    if (gx.value * static_cast<double>(size) <= gy.value * static_cast<double>(freed)) return false;
    for (int end : {gx.from, gx.to}) {
      if (end != kNoUse && d->ReachableResident(end) <= d->kept(x)) return false;
    }
    if (!d->LowerKept(y, left)) return false;
    d->RaiseKept(x, d->kept(x) + 1);
    return true;
  }

  // ---- Loading ahead ----

  void LoadAhead(const std::vector<bool>& whole, const std::vector<bool>& fits, Draft* best) const {
    ImproveLoads(best);
    double saved = best->Score();
    // Of a single pass the window is often the cheaper one: the rest of its layers leave room to load.
    std::vector<bool> many_passes = whole;
    for (size_t i = 0; i < whole.size(); ++i) many_passes[i] = whole[i] && p_.uses[i].passes > 1;
    for (const std::vector<bool>& w : {whole, fits, many_passes}) {
      for (const std::vector<Item>& order : orders_) {
        Draft d(m_, w);
        if (!d.feasible()) continue;
        for (const Item& item : order) {
          if (item.value <= 0) break;
          RaiseLate(item, &d);
        }
        ImproveLoads(&d);
        const double s = d.Score();
        if (s <= saved) continue;
        *best = std::move(d);
        saved = s;
      }
    }
  }

  // As much as can be: what the link can bring in time is not kept.
  void RaiseLate(const Item& item, Draft* d) const {
    if (!item.is_gap) return d->RaiseResident(item.index, m_.MostResident(item.index));
    const Gap& g = m_.gaps[item.index];
    if (g.to == kNoUse) return;
    const int most = m_.MostResident(g.to);
    d->Load(item.index, most);
    if (d->there(item.index) < most) Complete(item.index, most, d);
  }

  // More there at the end of the gap: loaded, and kept from the start for what the link cannot
  // bring.
  void Complete(int gap, int most, Draft* d) const {
    if (d->loaded(gap) == 0) d->Load(gap, most);
    const int missing = most - d->there(gap);
    if (missing <= 0) return;
    d->RaiseKept(gap, d->kept(gap) + missing);
    if (d->there(gap) >= most) return;
    d->Unload(gap);
    d->Load(gap, most);
  }

  void ImproveLoads(Draft* d) const {
    Fill(d);
    double saved = d->Score();
    for (int round = 0; round < kLoadRounds; ++round) {
      Draft next = *d;
      KeepLess(&next);
      RelieveLink(&next);
      Fill(&next);
      const double s = next.Score();
      if (s <= saved) break;
      *d = std::move(next);
      saved = s;
    }
    ExchangeLoads(d);
  }

  // One more layer there at the end of a gap for what that takes from another's loads, where it
  // gains. Of the uses that come first: the others have their turn with a later plan.
  void ExchangeLoads(Draft* d) const {
    const int gaps = static_cast<int>(std::min<size_t>(m_.gaps.size(), kExchangedGaps));
    double saved = d->Score();
    for (int x = 0; x < gaps; ++x) {
      const Gap& g = m_.gaps[x];
      if (g.to == kNoUse || g.value <= 0) continue;
      for (int y = 0; y < gaps && d->there(x) < m_.MostResident(g.to); ++y) {
        if (y == x || d->loaded(y) == 0 || m_.gaps[y].last < g.last - 1) continue;
        Draft trial = *d;
        const int x_there = d->there(x), y_there = d->there(y);
        trial.Unload(y);
        trial.Unload(x);
        trial.Load(x, x_there + 1);
        trial.Load(y, y_there);
        const double s = trial.Score();
        if (s <= saved) continue;
        *d = std::move(trial);
        saved = s;
        --y;  // once more
      }
    }
  }

  void Fill(Draft* d) const {
    for (const Item& item : orders_[0]) {
      if (item.value <= 0) break;
      if (item.is_gap) {
        const Gap& g = m_.gaps[item.index];
        if (g.to != kNoUse) Complete(item.index, m_.MostResident(g.to), d);
      } else {
        d->RaiseResident(item.index, m_.MostResident(item.index));
      }
    }
  }

  // Keeps no more than what the link cannot bring in time: room in all slots but the last ones.
  void KeepLess(Draft* d) const {
    for (int i = 0; i < static_cast<int>(m_.gaps.size()); ++i) {
      const Gap& g = m_.gaps[i];
      if (g.to == kNoUse || d->kept(i) == 0 || g.last <= g.first) continue;
      const int there = d->there(i);
      Draft trial = *d;
      if (trial.loaded(i) > 0) trial.Unload(i);
      if (!trial.LowerKept(i, 0)) continue;
      trial.Load(i, there);
      if (trial.there(i) < there) trial.RaiseKept(i, there - trial.there(i));
      if (trial.there(i) >= there) *d = std::move(trial);
    }
  }

  // A use that streams behind its compute takes the link from what could be loaded ahead. Where
  // that is what loading lacks, some of its layers are worth their room.
  void RelieveLink(Draft* d) const {
    for (const Item& item : orders_[0]) {
      if (item.value <= 0) break;
      if (!item.is_gap) continue;
      const Gap& g = m_.gaps[item.index];
      if (g.to == kNoUse) continue;
      const int most = std::min(m_.MostResident(g.to), d->ReachableResident(g.to));
      const LayerTable& layers = m_.LayersOf(g.component);
      for (int i = 0; i < kLoadReach && g.last - i >= g.first; ++i) {
        const int64_t missing =
            layers.Of(most).count() - layers.Of(std::min(most, d->there(item.index))).count();
        if (missing <= 0) break;
        const int64_t room = d->Room(g.last - i, g.last);
        if (room <= 0) break;
        RelieveSlot(g.last - i, std::min(missing, room), d);
        d->Unload(item.index);
        d->Load(item.index, most);
      }
    }
  }

  void RelieveSlot(int slot, int64_t bytes, Draft* d) const {
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      const PlanComponent& c = p_.components[u.component];
      if (u.first_slot > slot || u.last_slot < slot || u.granted >= 0 || c.link_share <= 0)
        continue;
      const double lacking = static_cast<double>(bytes) - d->link(slot);
      if (lacking <= 0) return;
      const double slots = u.last_slot - u.first_slot + 1;
      const LayerTable& layers = m_.Layers(i);
      if (u.passes > 1) {
        const double more = lacking * slots / (c.link_share * (u.passes - 1));
        const int64_t want = layers.Of(d->resident(i)).count() + static_cast<int64_t>(more);
        d->RaiseResident(i, std::min(layers.count(), layers.Within(Bytes(want)) + 1));
      }
      const int gap = m_.gap_before[i];
      const double still = static_cast<double>(bytes) - d->link(slot);
      if (gap < 0 || still <= 0) continue;
      const int64_t want =
          layers.Of(d->there(gap)).count() + static_cast<int64_t>(still * slots / c.link_share);
      Complete(gap, std::min(m_.MostResident(i), layers.Within(Bytes(want)) + 1), d);
    }
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
  std::vector<Item> items_;
  std::vector<std::vector<Item>> orders_;
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
