#include "broker/core/plan_items.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace vrambroker::core {

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
  using Key = std::tuple<bool, bool, double, double, int>;
  std::vector<std::pair<Key, Item>> keyed;
  keyed.reserve(all.size());
  for (const Item& item : all) {
    const bool free_of_value = item.value <= 0;
    double rank = item.value;
    if (order == Order::kByValueOverSpan) rank /= item.span;
    if (order == Order::kShortFirst) rank = 1.0 / item.span;
    if (free_of_value && item.is_gap) {
      rank = p.components[m.gaps[item.index].component].keep_rank;
    }
    const bool has_next = !item.is_gap || m.gaps[item.index].to != kNoUse;
    keyed.emplace_back(
        Key{free_of_value, free_of_value && !has_next, -rank, -item.value, item.span}, item);
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Item> items;
  items.reserve(keyed.size());
  for (const auto& [key, item] : keyed) items.push_back(item);
  return items;
}

}  // namespace vrambroker::core
