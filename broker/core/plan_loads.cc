#include "broker/core/plan_loads.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace vrambroker::core {
namespace {

// Rounds of improving what is loaded ahead.
constexpr int kLoadRounds = 3;
// A choice of windows of which a pass saves less than this share of the best so far is not tried in
// further orders.
constexpr double kHopeless = 0.95;
// Gaps between whose loads layers are exchanged.
constexpr size_t kExchangedGaps = 8;

// More than any card has counts as that much: links may be slow beyond all measure.
int64_t AsBytes(double bytes) { return static_cast<int64_t>(std::min(bytes, 1e15)); }

}  // namespace

// From the plan without loads, and afresh from those that load before they keep: the best of each
// is worth improving.
void LoadSearch::Improve(const std::vector<bool>& whole, const std::vector<bool>& fits,
                         Draft* best) const {
  best->BeginLoads();
  ImproveLoads(best);
  // Of a single pass the window is often the cheaper one: the rest of its layers leave room to
  // load.
  std::vector<bool> many_passes = whole;
  for (size_t i = 0; i < whole.size(); ++i) many_passes[i] = whole[i] && p_.uses[i].passes > 1;
  std::vector<std::vector<bool>> windows = {whole};
  if (fits != whole) windows.push_back(fits);
  if (many_passes != whole && many_passes != fits) windows.push_back(many_passes);
  std::optional<Draft> late;
  double score = 0;
  for (const std::vector<bool>& w : windows) {
    Draft empty(m_, w);
    if (!empty.feasible()) continue;
    empty.BeginLoads();
    for (const std::vector<Item>& order : orders_) {
      Draft d = LatePass(empty, order);
      const double s = d.Score();
      if (late.has_value() && s <= kHopeless * score) break;
      if (late.has_value() && s <= score) continue;
      late = std::move(d);
      score = s;
    }
  }
  if (!late.has_value()) return;
  ImproveLoads(&*late);
  if (late->Score() > best->Score()) *best = *std::move(late);
}

Draft LoadSearch::LatePass(const Draft& empty, const std::vector<Item>& order) const {
  Draft d = empty;
  for (const Item& item : order) {
    if (item.value <= 0) break;
    RaiseLate(item, &d);
  }
  Fill(&d);
  return d;
}

// As much as can be: what the link can bring in time is not kept.
void LoadSearch::RaiseLate(const Item& item, Draft* d) const {
  if (!item.is_gap) return d->RaiseResident(item.index, m_.MostResident(item.index));
  const Gap& g = m_.gaps[item.index];
  if (g.to == kNoUse) return;
  const int most = m_.MostResident(g.to);
  d->Load(item.index, most);
  if (d->there(item.index) < most) Complete(item.index, most, d);
}

// More there at the end of the gap: loaded, and kept from the start for what the link cannot
// bring.
void LoadSearch::Complete(int gap, int most, Draft* d) const {
  const bool afresh = d->loaded(gap) == 0;
  if (afresh) d->Load(gap, most);
  const int missing = most - d->there(gap);
  if (missing <= 0) return;
  const int kept = d->kept(gap);
  d->RaiseKept(gap, kept + missing);
  if (d->there(gap) >= most || (afresh && d->kept(gap) == kept)) return;
  d->Unload(gap);
  d->Load(gap, most);
}

void LoadSearch::ImproveLoads(Draft* d) const {
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
void LoadSearch::ExchangeLoads(Draft* d) const {
  const int gaps = static_cast<int>(std::min<size_t>(m_.gaps.size(), kExchangedGaps));
  double saved = d->Score();
  Draft::Mark before;
  for (int x = 0; x < gaps; ++x) {
    const Gap& g = m_.gaps[x];
    if (g.to == kNoUse || g.value <= 0) continue;
    for (int y = 0; y < gaps && d->there(x) < m_.MostResident(g.to); ++y) {
      if (y == x || d->loaded(y) == 0 || m_.gaps[y].last < g.last - 1) continue;
      before.Set(*d, x, y);
      const int x_there = d->there(x), y_there = d->there(y);
      d->Unload(y);
      d->Unload(x);
      d->Load(x, x_there + 1);
      d->Load(y, y_there);
      const double s = d->Score();
      if (s <= saved) {
        before.TakeBack(d);
        continue;
      }
      saved = s;
      --y;  // once more
    }
  }
}

void LoadSearch::Fill(Draft* d) const {
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
void LoadSearch::KeepLess(Draft* d) const {
  Draft::Mark before;
  for (int i = 0; i < static_cast<int>(m_.gaps.size()); ++i) {
    const Gap& g = m_.gaps[i];
    if (g.to == kNoUse || d->kept(i) == 0 || g.last <= g.first) continue;
    const int there = d->there(i);
    before.Set(*d, i, i);
    if (d->loaded(i) > 0) d->Unload(i);
    if (d->LowerKept(i, 0)) {
      d->Load(i, there);
      if (d->there(i) < there) d->RaiseKept(i, there - d->there(i));
      if (d->there(i) >= there) continue;
    }
    before.TakeBack(d);
  }
}

// A use that streams behind its compute takes the link from what could be loaded ahead. Where
// that is what loading lacks, some of its layers are worth their room.
void LoadSearch::RelieveLink(Draft* d) const {
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

void LoadSearch::RelieveSlot(int slot, int64_t bytes, Draft* d) const {
  for (int i = 0; i < static_cast<int>(p_.uses.size()); ++i) {
    const PlanUse& u = p_.uses[i];
    const PlanComponent& c = p_.components[u.component];
    if (u.first_slot > slot || u.last_slot < slot || u.granted >= 0 || c.link_share <= 0) continue;
    const double lacking = static_cast<double>(bytes) - d->link(slot);
    if (lacking <= 0) return;
    const double slots = u.last_slot - u.first_slot + 1;
    const LayerTable& layers = m_.Layers(i);
    if (u.passes > 1) {
      const double more = lacking * slots / (c.link_share * (u.passes - 1));
      const int64_t want = layers.Of(d->resident(i)).count() + AsBytes(more);
      d->RaiseResident(i, std::min(layers.count(), layers.Within(Bytes(want)) + 1));
    }
    const int gap = m_.gap_before[i];
    const double still = static_cast<double>(bytes) - d->link(slot);
    if (gap < 0 || still <= 0) continue;
    const int64_t want = layers.Of(d->there(gap)).count() + AsBytes(still * slots / c.link_share);
    Complete(gap, std::min(m_.MostResident(i), layers.Within(Bytes(want)) + 1), d);
  }
}

}  // namespace vrambroker::core
