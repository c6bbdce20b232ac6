#include "broker/core/planner.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace vrambroker::core {
namespace {

constexpr int kNone = -1;
// Passes that let uses do without their window. Each is a whole greedy pass; more changed no plan
// measured.
constexpr int kWindowRounds = 3;
// Exchanges of layers, for each link. A bound, not a tuning: the published rows need at most one a
// link.
constexpr int kExchangesPerLink = 2;

// Layers of a component that stay from one use (or from now) to the next use (or with none known).
struct Link {
  int component = 0;
  int from = kNone;
  int to = kNone;
  // Slots strictly between the two uses; first > last: none.
  int first = 0;
  int last = kNone;
  int most = 0;      // layers
  double value = 0;  // seconds for a byte
};

// Something that a pass may raise.
struct Item {
  bool is_link = false;
  int index = 0;
  double value = 0;
  int span = 1;
};

// A plan in the making, in whole layers.
struct Draft {
  std::vector<int64_t> free;  // bytes, by slot; below zero where needs alone do not fit
  std::vector<int> resident;  // by use
  std::vector<int> kept;      // by link
  bool feasible = true;
  double saved = 0;
};

enum class Order { kByValue, kByValueOverSpan, kShortFirst };

class Greedy {
 public:
  explicit Greedy(const PlanProblem& problem) : p_(problem) {
    MakeLinks();
    MakeItems();
  }

  Plan Solve() {
    std::vector<bool> whole(p_.uses.size(), false);
    Draft best = BestOrder(whole);
    Improve(&whole, &best);
    const std::vector<bool> fits = WholeWhereItFits();
    Try(fits, &whole, &best);
    // Whether a component does without its window is all one for its uses, or nearly: flip one at a
    // time.
    for (int c = 0; c < static_cast<int>(p_.components.size()); ++c) {
      std::vector<bool> flipped = whole;
      for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
        if (p_.uses[i].component == c) flipped[i] = !whole[i] && fits[i];
      }
      if (flipped != whole) Try(flipped, &whole, &best);
    }
    Exchange(&best);
    return Extract(std::move(best));
  }

 private:
  const LayerTable& Layers(int use) const { return LayersOf(p_.uses[use].component); }
  const LayerTable& LayersOf(int component) const { return *p_.components[component].layers; }
  int MostResident(int use) const {
    const PlanUse& u = p_.uses[use];
    return u.granted >= 0 ? u.granted : u.max_resident;
  }

  void MakeLinks() {
    std::vector<int> latest(p_.components.size(), kNone);
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      const PlanComponent& c = p_.components[u.component];
      const int from = latest[u.component];
      const int most = from == kNone ? c.held : std::min(MostResident(from), MostResident(i));
      const int first = from == kNone ? 0 : p_.uses[from].last_slot + 1;
      if (most > 0) {
        links_.push_back({u.component, from, i, first, u.first_slot - 1, most, c.sigma});
      }
      latest[u.component] = i;
    }
    for (int c = 0; c < static_cast<int>(p_.components.size()); ++c) {
      if (latest[c] == kNone && p_.components[c].held > 0 && p_.components[c].keep_by_recency) {
        links_.push_back({c, kNone, kNone, 0, p_.slots - 1, p_.components[c].held, 0});
      }
    }
  }

  void MakeItems() {
    for (int i = 0; i < static_cast<int>(links_.size()); ++i) {
      const Link& l = links_[i];
      items_.push_back({true, i, l.value, std::max(1, l.last - l.first + 2)});
    }
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      if (u.granted >= 0 || (u.passes <= 1 && !u.fill)) continue;
      items_.push_back({false, i, ResidentValue(i), u.last_slot - u.first_slot + 1});
    }
  }

  double ResidentValue(int use) const {
    const PlanUse& u = p_.uses[use];
    return u.granted >= 0 ? 0 : p_.components[u.component].sigma * (u.passes - 1);
  }

  // What costs nothing to keep comes last, the newest first; ties go to the earlier item.
  std::vector<Item> Sorted(Order order) const {
    std::vector<Item> items = items_;
    auto key = [&](const Item& item) {
      const bool free_of_value = item.value <= 0;
      double rank = item.value;
      if (order == Order::kByValueOverSpan) rank /= item.span;
      if (order == Order::kShortFirst) rank = 1.0 / item.span;
      if (free_of_value && item.is_link) {
        rank = static_cast<double>(p_.components[links_[item.index].component].last_used);
      }
      const bool has_next = !item.is_link || links_[item.index].to != kNone;
      return std::make_tuple(free_of_value, free_of_value && !has_next, -rank, -item.value,
                             item.span);
    };
    std::stable_sort(items.begin(), items.end(),
                     [&](const Item& a, const Item& b) { return key(a) < key(b); });
    return items;
  }

  Draft BestOrder(const std::vector<bool>& whole) const {
    Draft best;
    bool first = true;
    for (Order order : {Order::kByValue, Order::kByValueOverSpan, Order::kShortFirst}) {
      Draft d = Pass(whole, order);
      if (first || d.saved > best.saved) best = std::move(d);
      first = false;
    }
    return best;
  }

  Draft Pass(const std::vector<bool>& whole, Order order) const {
    Draft d = Start(whole);
    for (const Item& item : Sorted(order)) {
      if (item.is_link) {
        RaiseLink(item.index, links_[item.index].most, &d);
      } else {
        RaiseResident(item.index, &d);
      }
    }
    d.saved = Saved(d);
    return d;
  }

  Draft Start(const std::vector<bool>& whole) const {
    Draft d;
    d.free.assign(p_.slots, p_.capacity.count());
    d.kept.assign(links_.size(), 0);
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      int layers = u.granted >= 0 ? u.granted : u.min_resident;
      if (u.granted < 0 && whole[i]) layers = Layers(i).count();
      const bool window = layers < Layers(i).count();
      d.resident.push_back(layers);
      Take(u, Layers(i).Of(layers) + u.need + (window ? u.window : Bytes()), &d);
    }
    for (int64_t free : d.free) d.feasible &= free >= 0;
    return d;
  }

  static void Take(const PlanUse& u, Bytes bytes, Draft* d) {
    for (int s = u.first_slot; s <= u.last_slot; ++s) d->free[s] -= bytes.count();
  }

  int64_t Room(int first, int last, const Draft& d) const {
    int64_t room = p_.capacity.count();
    for (int s = first; s <= last; ++s) room = std::min(room, d.free[s]);
    return std::max<int64_t>(0, room);
  }

  // Layers that `use` could have resident, beside everything else in the draft.
  int ReachableResident(int use, const Draft& d) const {
    const PlanUse& u = p_.uses[use];
    if (u.granted >= 0) return u.granted;
    const LayerTable& layers = Layers(use);
    const int64_t have = layers.Of(d.resident[use]).count();
    return std::min(MostResident(use),
                    layers.Within(Bytes(have + Room(u.first_slot, u.last_slot, d))));
  }

  void SetResident(int use, int layers, Draft* d) const {
    if (layers <= d->resident[use]) return;
    Take(p_.uses[use], Layers(use).Of(layers) - Layers(use).Of(d->resident[use]), d);
    d->resident[use] = layers;
  }

  void RaiseResident(int use, Draft* d) const { SetResident(use, ReachableResident(use, *d), d); }

  void RaiseLink(int index, int most, Draft* d) const {
    const Link& l = links_[index];
    const LayerTable& layers = LayersOf(l.component);
    const int64_t have = layers.Of(d->kept[index]).count();
    int reach = most;
    if (l.first <= l.last) {
      reach = std::min(reach, layers.Within(Bytes(have + Room(l.first, l.last, *d))));
    }
    if (l.from != kNone) reach = std::min(reach, ReachableResident(l.from, *d));
    if (l.to != kNone) reach = std::min(reach, ReachableResident(l.to, *d));
    if (reach <= d->kept[index]) return;
    const int64_t more = layers.Of(reach).count() - have;
    for (int s = l.first; s <= l.last; ++s) d->free[s] -= more;
    if (l.from != kNone) SetResident(l.from, reach, d);
    if (l.to != kNone) SetResident(l.to, reach, d);
    d->kept[index] = reach;
  }

  double Saved(const Draft& d) const {
    double saved = 0;
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      saved += ResidentValue(i) * Layers(i).Of(d.resident[i]).as_double();
    }
    for (int i = 0; i < static_cast<int>(links_.size()); ++i) {
      saved += links_[i].value * LayersOf(links_[i].component).Of(d.kept[i]).as_double();
    }
    return saved;
  }

  // Takes `candidate`, improved, where it saves more.
  void Try(std::vector<bool> candidate, std::vector<bool>* whole, Draft* best) const {
    Draft draft = BestOrder(candidate);
    if (!draft.feasible) return;
    Improve(&candidate, &draft);
    if (draft.saved <= best->saved) return;
    *best = std::move(draft);
    *whole = std::move(candidate);
  }

  // A use that all but holds its layers can have the rest in place of its window.
  void Improve(std::vector<bool>* whole, Draft* best) const {
    for (int round = 0; round < kWindowRounds; ++round) {
      std::vector<bool> more = *whole;
      for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
        const PlanUse& u = p_.uses[i];
        const LayerTable& layers = Layers(i);
        if (more[i] || u.granted >= 0 || u.max_resident < layers.count()) continue;
        if (p_.components[u.component].sigma <= 0) continue;  // the window is the cheaper one
        const int64_t missing = (layers.All() - layers.Of(best->resident[i])).count();
        more[i] = missing <= Room(u.first_slot, u.last_slot, *best) + u.window.count();
      }
      if (more == *whole) return;
      Draft next = BestOrder(more);
      if (!next.feasible || next.saved < best->saved) return;
      *best = std::move(next);
      *whole = std::move(more);
    }
  }

  // Layers are whole, so that what the greedy order leaves over may be less than the next layer of
  // anything. One more layer of one link for fewer bytes of another may then gain. Without this,
  // the row of prompt-rewrite-sdxl at 12 GiB is 2.7 % above its optimum; with it, at it.
  void Exchange(Draft* d) const {
    int budget = kExchangesPerLink * static_cast<int>(links_.size());
    for (bool changed = true; changed && budget > 0;) {
      changed = false;
      for (int x = 0; x < static_cast<int>(links_.size()) && budget > 0; ++x) {
        for (int y = 0; y < static_cast<int>(links_.size()); ++y) {
          if (x == y || !ExchangeGains(x, y, d)) continue;
          changed = true;
          --budget;
          break;
        }
      }
    }
    d->saved = Saved(*d);
  }

  // One more layer of link x for as few of link y as make room, where that gains. Only between
  // slots: both ends of x must have room already.
  bool ExchangeGains(int x, int y, Draft* d) const {
    const Link& lx = links_[x];
    const Link& ly = links_[y];
    if (d->kept[x] >= lx.most || lx.value <= 0 || d->kept[y] == 0) return false;
    if (lx.last < ly.first || ly.last < lx.first) return false;
    const LayerTable& layers = LayersOf(lx.component);
    const int64_t size = (layers.Of(d->kept[x] + 1) - layers.Of(d->kept[x])).count();
    int64_t deficit = 0;
    for (int s = lx.first; s <= lx.last; ++s) {
      const int64_t missing = size - d->free[s];
      if (missing > 0 && (s < ly.first || s > ly.last)) return false;
      deficit = std::max(deficit, missing);
    }
    const LayerTable& others = LayersOf(ly.component);
    const int64_t have = others.Of(d->kept[y]).count();
    if (deficit <= 0 || deficit > have) return false;
    const int left = others.Within(Bytes(have - deficit));
    const int64_t freed = have - others.Of(left).count();
    if (lx.value * static_cast<double>(size) <= ly.value * static_cast<double>(freed)) return false;
    for (int end : {lx.from, lx.to}) {
      if (end != kNone && ReachableResident(end, *d) <= d->kept[x]) return false;
    }
    for (int s = ly.first; s <= ly.last; ++s) d->free[s] += freed;
    d->kept[y] = left;
    RaiseLink(x, d->kept[x] + 1, d);
    return true;
  }

  std::vector<bool> WholeWhereItFits() const {
    std::vector<bool> whole(p_.uses.size(), false);
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      whole[i] = u.granted < 0 && u.max_resident == Layers(i).count() &&
                 p_.components[u.component].sigma > 0 && Layers(i).All() + u.need <= p_.capacity;
    }
    return whole;
  }

  Plan Extract(Draft d) const {
    Plan plan;
    plan.resident = d.resident;
    plan.saved_seconds = d.saved;
    plan.kept.assign(p_.uses.size(), 0);
    plan.keep.assign(p_.components.size(), 0);
    for (int i = 0; i < static_cast<int>(links_.size()); ++i) {
      const Link& l = links_[i];
      if (l.from == kNone) plan.keep[l.component] = d.kept[i];
      if (l.from != kNone) plan.kept[l.from] = d.kept[i];
    }
    plan.ahead = LoadAhead(plan.keep, &d);
    return plan;
  }

  // Room that nothing in the plan wants, up to the next use of components that are idle now.
  std::vector<int> LoadAhead(std::vector<int> ahead, Draft* d) const {
    std::vector<bool> seen(p_.components.size(), false);
    for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
      const PlanUse& u = p_.uses[i];
      if (seen[u.component]) continue;
      seen[u.component] = true;
      const PlanComponent& c = p_.components[u.component];
      if (u.granted >= 0 || c.sigma <= 0 || ahead[u.component] < c.held) continue;
      const LayerTable& layers = Layers(i);
      const int64_t have = layers.Of(ahead[u.component]).count();
      int reach = ReachableResident(i, *d);
      if (u.first_slot > 0) {
        reach = std::min(reach, layers.Within(Bytes(have + Room(0, u.first_slot - 1, *d))));
      }
      if (reach <= ahead[u.component]) continue;
      for (int s = 0; s < u.first_slot; ++s) d->free[s] -= layers.Of(reach).count() - have;
      SetResident(i, reach, d);
      ahead[u.component] = reach;
    }
    return ahead;
  }

  const PlanProblem& p_;
  std::vector<Link> links_;
  std::vector<Item> items_;
};

}  // namespace

double ExposedSecondsPerByte(double pass_seconds, Bytes weights, double link_rate) {
  VRAM_CHECK(link_rate > 0);
  if (weights == Bytes()) return 0;
  return std::max(0.0, 1.0 / link_rate - pass_seconds / weights.as_double());
}

Plan MakePlan(const PlanProblem& problem) { return Greedy(problem).Solve(); }

}  // namespace vrambroker::core
