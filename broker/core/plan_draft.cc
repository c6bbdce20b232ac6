#include "broker/core/plan_draft.h"

#include <algorithm>

namespace vrambroker::core {
namespace {

// Bytes; more than any card has, so that sums of it do not overflow.
constexpr double kMostLink = 1e15;
// Share of its worth that a byte loses by being loaded rather than kept: links are shared, and
// times only estimated.
constexpr double kLoadRisk = 0.01;

}  // namespace

PlanModel::PlanModel(const PlanProblem& problem) : p(problem) {
  std::vector<int> latest(p.components.size(), kNoUse);
  gap_before.assign(p.uses.size(), -1);
  for (int i = 0; i < static_cast<int>(p.uses.size()); ++i) {
    const PlanUse& u = p.uses[i];
    const PlanComponent& c = p.components[u.component];
    resident_values.push_back(u.granted >= 0 ? 0 : u.probability * c.sigma * (u.passes - 1));
    const int spread = u.last_slot - u.first_slot + 1;
    link_takes.push_back(loads() && u.certain() ? c.link_share / spread : 0);
    const int from = latest[u.component];
    latest[u.component] = i;
    if (u.granted >= 0) continue;  // what it has, it has
    Gap g;
    g.component = u.component;
    g.from = from;
    g.to = i;
    g.first = from == kNoUse ? 0 : p.uses[from].last_slot + 1;
    g.last = u.first_slot - 1;
    g.most_kept = from == kNoUse ? std::min(c.held, MostResident(i))
                                 : std::min(MostResident(from), MostResident(i));
    g.value = c.sigma * u.probability;
    gap_before[i] = static_cast<int>(gaps.size());
    gaps.push_back(g);
  }
  for (int c = 0; c < static_cast<int>(p.components.size()); ++c) {
    if (latest[c] != kNoUse || p.components[c].held == 0 || !p.components[c].keep_by_recency)
      continue;
    gaps.push_back({c, kNoUse, kNoUse, 0, p.slots - 1, p.components[c].held, 0});
  }
}

Draft::Draft(const PlanModel& model, const std::vector<bool>& whole) : m_(&model) {
  const PlanProblem& p = m_->p;
  free_.assign(p.slots, p.capacity.count());
  kept_.assign(m_->gaps.size(), 0);
  loaded_.assign(m_->gaps.size(), 0);
  resident_.reserve(p.uses.size());
  for (int i = 0; i < static_cast<int>(p.uses.size()); ++i) {
    const PlanUse& u = p.uses[i];
    const LayerTable& layers = m_->Layers(i);
    int have = u.granted >= 0 ? u.granted : u.certain() ? u.min_resident : 0;
    if (u.granted < 0 && whole[i]) have = layers.count();
    resident_.push_back(have);
    const bool window = have < layers.count() && u.certain();
    const int64_t needs = u.certain() ? u.need.count() : 0;
    Take(u.first_slot, u.last_slot,
         layers.Of(have).count() + needs + (window ? u.window.count() : 0));
  }
  for (int64_t free : free_) feasible_ &= free >= 0;
}

void Draft::BeginLoads() {
  link_ = m_->p.link;
  loads_.assign(m_->gaps.size(), {});
  for (int i = 0; i < static_cast<int>(resident_.size()); ++i) {
    const PlanUse& u = m_->p.uses[i];
    if (!u.certain()) continue;
    const LayerTable& layers = m_->Layers(i);
    // Of a use that runs the first pass is taken to be over.
    const int64_t first = u.granted >= 0           ? layers.Of(resident_[i]).count()
                          : m_->gap_before[i] >= 0 ? layers.Of(kept_[m_->gap_before[i]]).count()
                                                   : 0;
    ReturnLink(
        i,
        first + layers.Of(resident_[i]).count() * (u.passes - 1) - layers.All().count() * u.passes,
        1);
  }
}

void Draft::Take(int first, int last, int64_t bytes) {
  for (int s = first; s <= last; ++s) free_[s] -= bytes;
}

// Spread evenly over the slots of the use.
void Draft::ReturnLink(int use, int64_t bytes, double passes) {
  if (link_.empty()) return;
  const double each = m_->link_takes[use] * passes * static_cast<double>(bytes);
  const PlanUse& u = m_->p.uses[use];
  for (int s = u.first_slot; s <= u.last_slot; ++s) link_[s] += each;
}

int64_t Draft::Room(int first, int last) const {
  int64_t room = m_->p.capacity.count();
  for (int s = first; s <= last; ++s) room = std::min(room, free_[s]);
  return std::max<int64_t>(0, room);
}

int Draft::ReachableResident(int use) const {
  const PlanUse& u = m_->p.uses[use];
  const int most = m_->MostResident(use);
  if (u.granted >= 0 || resident_[use] >= most) return most;
  const LayerTable& layers = m_->Layers(use);
  const int64_t have = layers.Of(resident_[use]).count();
  return std::min(most, layers.Within(Bytes(have + Room(u.first_slot, u.last_slot))));
}

void Draft::SetResident(int use, int layers) {
  if (layers <= resident_[use]) return;
  const PlanUse& u = m_->p.uses[use];
  const LayerTable& table = m_->Layers(use);
  const int64_t more = (table.Of(layers) - table.Of(resident_[use])).count();
  Take(u.first_slot, u.last_slot, more);
  ReturnLink(use, more, u.passes - 1);
  resident_[use] = layers;
}

void Draft::RaiseResident(int use, int most) {
  SetResident(use, std::min(most, ReachableResident(use)));
}

void Draft::RaiseKept(int gap, int most) {
  const Gap& g = m_->gaps[gap];
  most = std::min(most, g.most_kept);
  if (most <= kept_[gap]) return;
  const int before = there(gap);
  if (loaded_[gap] > 0) Unload(gap);
  const LayerTable& layers = m_->LayersOf(g.component);
  const int64_t have = layers.Of(kept_[gap]).count();
  int reach = most;
  if (g.first <= g.last) {
    reach = std::min(reach, layers.Within(Bytes(have + Room(g.first, g.last))));
  }
  if (g.from != kNoUse) reach = std::min(reach, ReachableResident(g.from));
  if (g.to != kNoUse) reach = std::min(reach, ReachableResident(g.to));
  if (reach > kept_[gap]) {
    const int64_t more = layers.Of(reach).count() - have;
    Take(g.first, g.last, more);
    if (g.from != kNoUse) SetResident(g.from, reach);
    if (g.to != kNoUse) {
      SetResident(g.to, reach);
      ReturnLink(g.to, more, 1);
    }
    kept_[gap] = reach;
  }
  if (before > kept_[gap]) Load(gap, before);
}

bool Draft::LowerKept(int gap, int layers) {
  const Gap& g = m_->gaps[gap];
  const LayerTable& table = m_->LayersOf(g.component);
  const int64_t less = (table.Of(kept_[gap]) - table.Of(layers)).count();
  if (g.to != kNoUse) {
    ReturnLink(g.to, -less, 1);
    const PlanUse& u = m_->p.uses[g.to];
    for (int s = u.first_slot; s <= u.last_slot && !link_.empty(); ++s) {
      if (link_[s] >= -1) continue;
      ReturnLink(g.to, less, 1);
      return false;
    }
  }
  Take(g.first, g.last, -less);
  kept_[gap] = layers;
  return true;
}

// The most bytes that can come in the last `slots` slots of the gap, the later ones first. A layer
// has its room from the slot in which its copy begins.
int64_t Draft::MostLoadable(const Gap& g, int slots, int64_t have) const {
  const LayerTable& layers = m_->LayersOf(g.component);
  int64_t most = layers.All().count() - have, link = 0;
  for (int i = 0; i < slots && most > link; ++i) {
    const int slot = g.last - i;
    const int fit = layers.Within(Bytes(have + std::max<int64_t>(0, free_[slot])));
    most = std::min(most, layers.Of(fit).count() - have + link);
    link += static_cast<int64_t>(std::clamp(link_[slot], 0.0, kMostLink));
  }
  return std::min(most, link);
}

void Draft::Load(int gap, int most) {
  const Gap& g = m_->gaps[gap];
  if (link_.empty() || g.to == kNoUse || loaded_[gap] > 0) return;
  const int reach = std::min(most, ReachableResident(g.to));
  if (reach <= kept_[gap] || g.last < g.first) return;
  const LayerTable& layers = m_->LayersOf(g.component);
  const int64_t have = layers.Of(kept_[gap]).count();
  // Most often there is no room at all, or no link.
  if (layers.Of(kept_[gap] + 1).count() - have > free_[g.last]) return;
  const int slots = std::min(kLoadReach, g.last - g.first + 1);
  const int there = std::min(reach, layers.Within(Bytes(have + MostLoadable(g, slots, have))));
  if (there <= kept_[gap]) return;
  const int64_t bytes = layers.Of(there).count() - have;
  int64_t left = bytes;
  for (int i = 0; i < slots && left > 0; ++i) {
    const int slot = g.last - i;
    const int64_t link = static_cast<int64_t>(std::clamp(link_[slot], 0.0, kMostLink));
    loads_[gap][i] = std::min(left, link);
    free_[slot] -= layers.Of(layers.Covering(Bytes(have + left))).count() - have;
    link_[slot] -= static_cast<double>(loads_[gap][i]);
    left -= loads_[gap][i];
  }
  loaded_[gap] = there - kept_[gap];
  SetResident(g.to, there);
  ReturnLink(g.to, bytes, 1);
}

void Draft::Unload(int gap) {
  if (loaded_[gap] == 0) return;
  const Gap& g = m_->gaps[gap];
  const LayerTable& layers = m_->LayersOf(g.component);
  const int64_t have = layers.Of(kept_[gap]).count();
  const int64_t bytes = layers.Of(there(gap)).count() - have;
  int64_t left = bytes;
  for (int i = 0; i < kLoadReach && left > 0; ++i) {
    free_[g.last - i] += layers.Of(layers.Covering(Bytes(have + left))).count() - have;
    link_[g.last - i] += static_cast<double>(loads_[gap][i]);
    left -= loads_[gap][i];
  }
  ReturnLink(g.to, -bytes, 1);
  loads_[gap] = {};
  loaded_[gap] = 0;
}

void Draft::Mark::Set(const Draft& d, int gap, int other) {
  free_ = d.free_;
  link_ = d.link_;
  resident_ = d.resident_;
  gaps_[0] = {gap, d.kept_[gap], d.loaded_[gap], d.loads_[gap]};
  gaps_[1] = {other, d.kept_[other], d.loaded_[other], d.loads_[other]};
}

void Draft::Mark::TakeBack(Draft* d) const {
  d->free_ = free_;
  d->link_ = link_;
  d->resident_ = resident_;
  for (const OfGap& g : gaps_) {
    d->kept_[g.gap] = g.kept;
    d->loaded_[g.gap] = g.loaded;
    d->loads_[g.gap] = g.loads;
  }
}

double Draft::Score() const {
  double risked = 0;
  for (int i = 0; i < static_cast<int>(loaded_.size()); ++i) {
    if (loaded_[i] == 0) continue;
    const Gap& g = m_->gaps[i];
    const LayerTable& layers = m_->LayersOf(g.component);
    risked += g.value * (layers.Of(there(i)) - layers.Of(kept_[i])).as_double();
  }
  return Saved() - kLoadRisk * risked;
}

double Draft::Saved() const {
  double saved = 0;
  for (int i = 0; i < static_cast<int>(resident_.size()); ++i) {
    saved += m_->ResidentValue(i) * m_->Layers(i).Of(resident_[i]).as_double();
  }
  for (int i = 0; i < static_cast<int>(kept_.size()); ++i) {
    const Gap& g = m_->gaps[i];
    saved += g.value * m_->LayersOf(g.component).Of(there(i)).as_double();
  }
  return saved;
}

}  // namespace vrambroker::core
