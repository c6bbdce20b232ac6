// What a plan may raise, and in which orders a greedy pass does so.
#pragma once

#include <vector>

#include "broker/core/plan_draft.h"

namespace vrambroker::core {

// Something that a pass may raise.
struct Item {
  bool is_gap = false;
  int index = 0;
  double value = 0;  // seconds for a byte
  int span = 1;      // slots
};

enum class Order { kByValue, kByValueOverSpan, kShortFirst };

// All that can be raised in the plan: layers kept or loaded over a gap, layers resident during a
// use.
std::vector<Item> MakeItems(const PlanModel& model);
// What costs nothing to keep comes last, the newest first; ties go to the earlier item.
std::vector<Item> Sorted(const PlanModel& model, const std::vector<Item>& items, Order order);

}  // namespace vrambroker::core
