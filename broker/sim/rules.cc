#include "broker/sim/rules.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/core/units.h"

namespace vrambroker::sim {
namespace {

constexpr std::pair<Rule, const char*> kNames[] = {
    {Rule::kBroker, "broker"},
    {Rule::kReleaseAll, "release_all"},
    {Rule::kLruWhole, "lru_whole"},
    {Rule::kLruPartial, "lru_partial"},
    {Rule::kSmallestCombination, "smallest_combination"},
    {Rule::kSmallestFirstPartial, "smallest_first_partial"},
};
constexpr size_t kMostCombined = 16;

int64_t BytesOf(const Retained& r, int layers) { return r.layers->Of(layers).count(); }

class Keeping {
 public:
  Keeping(const std::vector<Retained>& retained, int64_t room) : retained_(retained), room_(room) {
    for (const Retained& r : retained) {
      kept_.push_back(r.held);
      held_ += BytesOf(r, r.held);
    }
  }

  int64_t over() const { return held_ - room_; }
  std::vector<int> Take() { return std::move(kept_); }

  void Keep(size_t i, int layers) {
    held_ -= BytesOf(retained_[i], kept_[i]) - BytesOf(retained_[i], layers);
    kept_[i] = layers;
  }
  // In this order, whole or from the end of the keep order, until it is enough.
  void GiveUp(const std::vector<size_t>& order, bool whole) {
    for (size_t i : order) {
      if (over() <= 0) return;
      const int64_t rest = std::max<int64_t>(0, BytesOf(retained_[i], kept_[i]) - over());
      Keep(i, whole ? 0 : retained_[i].layers->Within(core::Bytes(rest)));
    }
  }
  // The fewest bytes that are enough; of those the fewest sets, then the first by order.
  void GiveUpCombination() {
    std::vector<size_t> holders = Holders();
    std::stable_sort(holders.begin(), holders.end(), [this](size_t a, size_t b) {
      return BytesOf(retained_[a], kept_[a]) < BytesOf(retained_[b], kept_[b]);
    });
    while (holders.size() > kMostCombined && over() > 0) {
      Keep(holders.back(), 0);
      holders.pop_back();
    }
    if (over() <= 0) return;
    std::sort(holders.begin(), holders.end());
    for (size_t i : BestCombination(holders)) Keep(i, 0);
  }

 private:
  std::vector<size_t> Holders() const {
    std::vector<size_t> holders;
    for (size_t i = 0; i < retained_.size(); ++i) {
      if (kept_[i] > 0) holders.push_back(i);
    }
    return holders;
  }

  // All of them where even these are not enough.
  std::vector<size_t> BestCombination(const std::vector<size_t>& holders) const {
    std::vector<size_t> best = holders;
    int64_t best_bytes = -1;
    for (uint32_t mask = 1; mask < (1u << holders.size()); ++mask) {
      std::vector<size_t> chosen;
      int64_t bytes = 0;
      for (size_t b = 0; b < holders.size(); ++b) {
        if ((mask >> b & 1) == 0) continue;
        chosen.push_back(holders[b]);
        bytes += BytesOf(retained_[holders[b]], kept_[holders[b]]);
      }
      if (bytes < over()) continue;
      const bool better = best_bytes < 0 || bytes < best_bytes ||
                          (bytes == best_bytes && std::make_pair(chosen.size(), chosen) <
                                                      std::make_pair(best.size(), best));
      if (!better) continue;
      best = std::move(chosen);
      best_bytes = bytes;
    }
    return best;
  }

  const std::vector<Retained>& retained_;
  int64_t room_;
  int64_t held_ = 0;
  std::vector<int> kept_;
};

template <typename Key>
std::vector<size_t> OrderedBy(const std::vector<Retained>& retained, Key key) {
  std::vector<size_t> order(retained.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(retained[a]) < key(retained[b]); });
  return order;
}

}  // namespace

absl::string_view RuleName(Rule rule) {
  for (const auto& [value, name] : kNames) {
    if (value == rule) return name;
  }
  return "";
}

absl::StatusOr<Rule> ParseRule(absl::string_view name) {
  for (const auto& [rule, spelt] : kNames) {
    if (name == spelt) return rule;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is no rule: ",
      absl::StrJoin(
          kNames, ", ",
          [](std::string* out, const auto& entry) { absl::StrAppend(out, entry.second); }),
      " are allowed"));
}

const std::vector<Rule>& OtherRules() {
  static const auto& rules =
      *new std::vector<Rule>{Rule::kReleaseAll, Rule::kLruWhole, Rule::kLruPartial,
                             Rule::kSmallestCombination, Rule::kSmallestFirstPartial};
  return rules;
}

std::vector<int> KeptBy(Rule rule, const std::vector<Retained>& retained, int64_t room) {
  const auto used = [](const Retained& r) { return r.used; };
  const auto bytes = [](const Retained& r) { return BytesOf(r, r.held); };
  Keeping keeping(retained, room);
  switch (rule) {
    case Rule::kBroker:
      VRAM_CHECK(rule != Rule::kBroker);
      break;
    case Rule::kReleaseAll:
      return std::vector<int>(retained.size(), 0);
    case Rule::kLruWhole:
      keeping.GiveUp(OrderedBy(retained, used), true);
      break;
    case Rule::kLruPartial:
      keeping.GiveUp(OrderedBy(retained, used), false);
      break;
    case Rule::kSmallestCombination:
      keeping.GiveUpCombination();
      break;
    case Rule::kSmallestFirstPartial:
      keeping.GiveUp(OrderedBy(retained, bytes), false);
      break;
  }
  return keeping.Take();
}

}  // namespace vrambroker::sim
