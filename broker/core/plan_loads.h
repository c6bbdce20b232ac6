// The part of the plan's search that loads ahead: what the link can bring in time need not be kept,
// and what a use streams takes the link from others.
#pragma once

#include <vector>

#include "broker/core/plan_draft.h"
#include "broker/core/plan_items.h"

namespace vrambroker::core {

class LoadSearch {
 public:
  // `orders`: of all items; the first is by value. Both must outlive this.
  LoadSearch(const PlanModel& model, const std::vector<std::vector<Item>>& orders)
      : m_(model), p_(model.p), orders_(orders) {}

  // Betters `best`, a plan without loads whose uses that are `whole` have no window. `fits`: the
  // uses that could be.
  void Improve(const std::vector<bool>& whole, const std::vector<bool>& fits, Draft* best) const;

 private:
  Draft LatePass(const Draft& empty, const std::vector<Item>& order) const;
  void RaiseLate(const Item& item, Draft* d) const;
  void Complete(int gap, int most, Draft* d) const;
  void ImproveLoads(Draft* d) const;
  void ExchangeLoads(Draft* d) const;
  void Fill(Draft* d) const;
  void KeepLess(Draft* d) const;
  void RelieveLink(Draft* d) const;
  void RelieveSlot(int slot, int64_t bytes, Draft* d) const;

  const PlanModel& m_;
  const PlanProblem& p_;
  const std::vector<std::vector<Item>>& orders_;
};

}  // namespace vrambroker::core
