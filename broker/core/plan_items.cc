#include "broker/core/plan_items.h"

#include <algorithm>

namespace vrambroker::core {
namespace {

// What an item is ordered by; no two are alike.
struct Key {
  int last = 0;  // what has no value comes after what has, what has no next use after that
  int span = 0;
  double rank = 0;   // the highest first
  double value = 0;  // the highest first
  int place = 0;

  friend bool operator<(const Key& a, const Key& b) {
    if (a.last != b.last) return a.last < b.last;
    if (a.rank != b.rank) return a.rank > b.rank;
    if (a.value != b.value) return a.value > b.value;
    if (a.span != b.span) return a.span < b.span;
    return a.place < b.place;
  }
};

}  // namespace

std::vector<Item> MakeItems(const PlanModel& m) {
  const PlanProblem& p = m.p;
  std::vector<Item> items;
  for (int i = 0; i < static_cast<int>(m.gaps.size()); ++i) {
    const Gap& g = m.gaps[i];
    items.push_back({true, i, g.value, std::max(1, g.last - g.first + 2)});
  }
  for (int i = 0; i < static_cast<int>(p.uses.size()); ++i) {
    const PlanUse& u = p.uses[i];
    if (u.granted >= 0 || (u.passes <= 1 && !u.fill)) continue;
    items.push_back({false, i, m.ResidentValue(i), u.last_slot - u.first_slot + 1});
  }
  return items;
}

std::vector<Item> Sorted(const PlanModel& m, const std::vector<Item>& all, Order order) {
  const PlanProblem& p = m.p;
  std::vector<Key> keys;
  keys.reserve(all.size());
  for (const Item& item : all) {
    Key key;
    const bool free_of_value = item.value <= 0;
    double rank = item.value;
    if (order == Order::kByValueOverSpan) rank /= item.span;
    if (order == Order::kShortFirst) rank = 1.0 / item.span;
    if (free_of_value && item.is_gap) {
      rank = p.components[m.gaps[item.index].component].keep_rank;
    }
    const bool has_next = !item.is_gap || m.gaps[item.index].to != kNoUse;
    key.last = !free_of_value ? 0 : has_next ? 1 : 2;
    key.place = static_cast<int>(keys.size());
    key.rank = rank;
    key.value = item.value;
    key.span = item.span;
    keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<Item> items;
  items.reserve(keys.size());
  for (const Key& key : keys) items.push_back(all[static_cast<size_t>(key.place)]);
  return items;
}

}  // namespace vrambroker::core
