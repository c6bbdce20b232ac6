// A plan in the making, in whole layers: what is free in each slot of the card and of the link, and
// the operations that take from it. Every operation does as much as fits, and leaves the draft
// within the card and the link.
#pragma once

#include <array>
#include <vector>

#include "broker/core/planner.h"

namespace vrambroker::core {

constexpr int kNoUse = -1;

// The time from one use of a component (or from now) to its next (or none known): layers stay on
// the card throughout, or are loaded towards its end.
struct Gap {
  int component = 0;
  int from = kNoUse;
  int to = kNoUse;
  // Slots strictly between the two uses; first > last: none.
  int first = 0;
  int last = -1;
  int most_kept = 0;  // layers
  double value = 0;   // seconds saved by a byte that is there when the next use begins
};

// What does not change while a plan is made.
struct PlanModel {
  explicit PlanModel(const PlanProblem& problem);

  const LayerTable& LayersOf(int component) const { return *p.components[component].layers; }
  const LayerTable& Layers(int use) const { return LayersOf(p.uses[use].component); }
  int MostResident(int use) const {
    const PlanUse& u = p.uses[use];
    return u.granted >= 0 ? u.granted : u.max_resident;
  }
  // Seconds saved by a byte that is resident during the use.
  double ResidentValue(int use) const { return resident_values[use]; }
  bool loads() const { return !p.link.empty(); }

  const PlanProblem& p;
  std::vector<Gap> gaps;
  std::vector<int> gap_before;          // of each use
  std::vector<double> resident_values;  // of each use
  // Of each use: bytes that it takes from the link in each of its slots for a byte that it streams
  // in one pass. 0 where nothing is loaded ahead.
  std::vector<double> link_takes;
};

class Draft {
 public:
  // `whole`: of each use, whether it has all its layers and no window. Nothing is loaded ahead.
  Draft(const PlanModel& model, const std::vector<bool>& whole);
  // From here on layers can be loaded ahead, and the link is kept account of. Requires a model that
  // loads.
  void BeginLoads();

  bool feasible() const { return feasible_; }
  int resident(int use) const { return resident_[use]; }
  int kept(int gap) const { return kept_[gap]; }
  int loaded(int gap) const { return loaded_[gap]; }
  // Layers there when the use after the gap begins.
  int there(int gap) const { return kept_[gap] + loaded_[gap]; }
  const std::array<int64_t, kLoadReach>& loads(int gap) const { return loads_[gap]; }
  int64_t free(int slot) const { return free_[slot]; }
  // Once loads have begun.
  double link(int slot) const { return link_[slot]; }
  // Least free bytes of the slots first to last; all of the card where there are none.
  int64_t Room(int first, int last) const;
  // Layers that the use could have resident beside everything else.
  int ReachableResident(int use) const;
  // Seconds saved against streaming everything.
  double Saved() const;
  // The same, but that a byte loaded ahead is worth a little less than one that is there already.
  double Score() const;

  void RaiseResident(int use, int most);
  // Keeps up to `most` layers. What is loaded ahead in this gap is loaded again after that.
  void RaiseKept(int gap, int most);
  // Requires less than is kept, and nothing loaded ahead. False where the link would be short.
  bool LowerKept(int gap, int layers);
  // Loads ahead up to `most` layers, those that are kept included, as late as can be.
  void Load(int gap, int most);
  void Unload(int gap);

  // What operations on one gap or two change, to be taken back: cheaper than a copy of it all.
  // Requires loads to have begun.
  class Mark {
   public:
    // As it is now. `other`: a second gap, or the same.
    void Set(const Draft& draft, int gap, int other);
    void TakeBack(Draft* draft) const;

   private:
    struct OfGap {
      int gap = 0, kept = 0, loaded = 0;
      std::array<int64_t, kLoadReach> loads{};
    };
    std::array<OfGap, 2> gaps_;
    std::vector<int64_t> free_;
    std::vector<double> link_;
    std::vector<int> resident_;
  };

 private:
  // `sign` +1: bytes that need no longer be streamed in a pass of the use give link back.
  void ReturnLink(int use, int64_t bytes, double passes);
  void SetResident(int use, int layers);
  // `have`: bytes of the layers that are kept.
  int64_t MostLoadable(const Gap& gap, int slots, int64_t have) const;
  void Take(int first, int last, int64_t bytes);

  const PlanModel* m_;
  std::vector<int64_t> free_;  // by slot; below zero where needs alone do not fit
  std::vector<double> link_;   // by slot; empty until loads begin
  std::vector<int> resident_;  // by use
  std::vector<int> kept_;      // by gap
  std::vector<int> loaded_;    // by gap
  std::vector<std::array<int64_t, kLoadReach>> loads_;  // by gap; [i]: in the i-th slot before
  bool feasible_ = true;
};

}  // namespace vrambroker::core
