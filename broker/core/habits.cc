#include "broker/core/habits.h"

#include <algorithm>
#include <cmath>

namespace vrambroker::core {
namespace {

// How much one more prediction moves the share that came true.
constexpr double kLearning = 0.2;
// Nothing that people do is certain.
constexpr double kMost = 0.98;
// Names that are remembered. Past it, the history starts afresh.
constexpr size_t kNames = 4096;
constexpr absl::Duration kLeastPatience = absl::Seconds(30);
constexpr double kPatience = 4;

}  // namespace

int Habits::NumberOf(const std::string& component) const {
  const auto it = numbers_.find(component);
  return it == numbers_.end() ? -1 : it->second;
}

void Habits::Note(const std::string& component, const UseSpec& spec, absl::Time now) {
  if (const std::vector<ExpectedUse> expected = Follow({}, 1); !expected.empty()) {
    const double hit = expected.front().component == component ? 1 : 0;
    accuracy_ += kLearning * (hit - accuracy_);
  }
  int number = NumberOf(component);
  if (number < 0) {
    if (names_.size() >= kNames) *this = Habits();
    number = static_cast<int>(names_.size());
    names_.push_back(component);
    specs_.emplace_back();
    numbers_.emplace(component, number);
  }
  UseSpec& last = specs_[static_cast<size_t>(number)];
  last = spec;
  last.run = RunId();
  last.held_uses.clear();
  const absl::Duration after =
      last_begin_ == absl::InfinitePast() ? absl::ZeroDuration() : now - last_begin_;
  last_begin_ = now;
  history_.push_back({number, after});
  if (history_.size() > kHistory) history_.pop_front();
}

int Habits::Continuation(const std::vector<int>& sequence) {
  const int n = static_cast<int>(sequence.size());
  int best = -1, longest = 0;
  for (int end = n - 2; end >= 0 && longest < kContext; --end) {
    int same = 0;
    while (same < kContext && same <= end && sequence[end - same] == sequence[n - 1 - same]) ++same;
    if (same <= longest) continue;
    longest = same;
    best = end + 1;
  }
  return best;
}

std::vector<ExpectedUse> Habits::Expect(const std::vector<std::string>& known, int most) const {
  std::vector<ExpectedUse> expected = Follow(known, most);
  const auto unlikely = std::find_if(expected.begin(), expected.end(), [](const ExpectedUse& e) {
    return e.probability < kLeastLikely;
  });
  expected.erase(unlikely, expected.end());
  return expected;
}

std::vector<ExpectedUse> Habits::Follow(const std::vector<std::string>& known, int most) const {
  std::vector<int> sequence;
  std::vector<absl::Duration> after;
  for (const Seen& seen : history_) {
    sequence.push_back(seen.name);
    after.push_back(seen.after);
  }
  for (const std::string& name : known) {
    sequence.push_back(NumberOf(name));
    after.push_back(absl::ZeroDuration());
  }
  std::vector<ExpectedUse> expected;
  if (sequence.empty()) return expected;
  const int from = Continuation(sequence);
  double probability = kMost;
  for (int i = 0; from >= 0 && i < most; ++i) {
    const int number = sequence[static_cast<size_t>(from + i)];
    if (number < 0) break;
    probability *= accuracy_ * (i == 0 ? 1 : kMost);
    ExpectedUse use;
    use.component = names_[static_cast<size_t>(number)];
    use.spec = specs_[static_cast<size_t>(number)];
    use.after = after[static_cast<size_t>(from + i)];
    use.probability = probability;
    sequence.push_back(number);
    after.push_back(use.after);
    expected.push_back(std::move(use));
  }
  return expected;
}

absl::Duration Habits::patience() const {
  absl::Duration longest;
  for (const Seen& seen : history_) longest = std::max(longest, seen.after);
  return std::max(kLeastPatience, kPatience * longest);
}

}  // namespace vrambroker::core
