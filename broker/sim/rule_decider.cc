#include "broker/sim/rule_decider.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::sim {

RuleDecider::RuleDecider(Rule rule, std::function<int64_t()> clock, Card* card)
    : rule_(rule),
      clock_(std::move(clock)),
      card_(card),
      used_(static_cast<size_t>(card->components()), 0) {}

absl::Status RuleDecider::Start() {
  for (int c = 0; c < card_->components(); ++c) card_->PlaceFixed(c);
  return absl::OkStatus();
}

int64_t RuleDecider::Free() const {
  int64_t free = card_->room();
  for (int c = 0; c < card_->components(); ++c) {
    if (card_->place(c).use.has_value()) free -= card_->Layers(c) + card_->Needs(c);
  }
  return free;
}

// All layers without a window, or none beside it.
int64_t RuleDecider::Least(const Request& r) const {
  const int64_t all = card_->layers(r.component).All().count();
  return r.declared + std::min(all, card_->window(r.component));
}

void RuleDecider::Ask(const Request& request) {
  if (Least(request) > card_->room()) {
    verdicts_.push_back(
        {request.id, false,
         absl::StrCat("needs at least ", core::ToString(core::Bytes(Least(request))))});
    return;
  }
  waiting_.push_back(request);
  AdmitWaiting();
}

void RuleDecider::Ended(const Request& request, const Outcome&) {
  used_[static_cast<size_t>(request.component)] = ++last_used_;
  AdmitWaiting();
}

void RuleDecider::AdmitWaiting() {
  std::vector<int> busy;
  for (size_t i = 0; i < waiting_.size();) {
    const Request request = waiting_[i];
    const bool in_use = card_->place(request.component).use.has_value();
    if (in_use || std::find(busy.begin(), busy.end(), request.component) != busy.end()) {
      busy.push_back(request.component);
      ++i;
      continue;
    }
    if (Least(request) > Free()) return;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    Admit(request);
  }
}

// Requires that its least fits beside the uses that run.
void RuleDecider::Admit(const Request& request) {
  const int64_t began = clock_ ? clock_() : 0;
  const core::LayerTable& layers = card_->layers(request.component);
  const int64_t free = Free() - request.declared;
  const int64_t all = layers.All().count();
  std::vector<Retained> retained;
  std::vector<int> components;
  for (int c = 0; c < card_->components(); ++c) {
    const Place& p = card_->place(c);
    if (c == request.component || p.use.has_value() || p.held == 0) continue;
    retained.push_back({&card_->layers(c), p.held, used_[static_cast<size_t>(c)]});
    components.push_back(c);
  }
  const std::vector<int> kept = KeptBy(rule_, retained, std::max<int64_t>(0, free - all));
  int64_t left = free;
  for (size_t i = 0; i < kept.size(); ++i) {
    card_->Release(components[i], kept[i]);
    left -= card_->Layers(components[i]);
  }
  const int64_t beside = std::max<int64_t>(0, left - card_->window(request.component));
  const int granted = all <= left ? layers.count() : layers.Within(core::Bytes(beside));
  ++decisions_;
  if (clock_) decision_seconds_.push_back(static_cast<double>(clock_() - began) * 1e-9);
  card_->Begin(request.component, request.id, granted, request.passes, request.activation);
  verdicts_.push_back({request.id, true, ""});
}

std::vector<Verdict> RuleDecider::Take() { return std::exchange(verdicts_, {}); }

}  // namespace vrambroker::sim
