#include "broker/core/habits.h"

#include <algorithm>
#include <cmath>

namespace vrambroker::core {
namespace {

// How much one more prediction moves the share that came true.
constexpr double kLearning = 0.2;
// What nobody declared is less than certain: it claims no room for itself.
constexpr double kMost = 0.49;
// A step further ahead is a little less likely still.
constexpr double kFurther = 0.98;
// Names that are remembered. Past it, the history starts afresh.
constexpr size_t kNames = 4096;
constexpr double kPatience = 4;

}  // namespace

int Habits::NumberOf(const std::string& component) const {
  const auto it = numbers_.find(component);
  return it == numbers_.end() ? -1 : it->second;
}

void Habits::Note(const std::string& component, const UseSpec& spec, bool alone, absl::Time now) {
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
  history_.push_back({number, after, alone});
  if (history_.size() > kHistory) history_.pop_front();
}

int Habits::Continuation(const std::vector<int>& sequence) {
  const int n = static_cast<int>(sequence.size());
  int best = -1, longest = kLeastContext - 1;
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
  std::vector<Seen> seen(history_.begin(), history_.end());
  for (const std::string& name : known)
    seen.push_back({NumberOf(name), absl::ZeroDuration(), true});
  sequence.reserve(seen.size());
  for (const Seen& s : seen) sequence.push_back(s.name);
  std::vector<ExpectedUse> expected;
  if (sequence.empty()) return expected;
  const int from = Continuation(sequence);
  double probability = kMost / kFurther;
  for (int i = 0; from >= 0 && i < most; ++i) {
    const Seen next = seen[static_cast<size_t>(from) + static_cast<size_t>(i)];
    if (next.name < 0) break;
    probability *= accuracy_ * kFurther;
    ExpectedUse use;
    use.component = names_[static_cast<size_t>(next.name)];
    use.spec = specs_[static_cast<size_t>(next.name)];
    use.after = next.after;
    use.alone = next.alone;
    use.probability = probability;
    seen.push_back(next);
    expected.push_back(std::move(use));
  }
  return expected;
}

double Habits::Weight(const std::string& component) const {
  const int number = NumberOf(component);
  double weight = 0, each = 1;
  for (auto seen = history_.rbegin(); seen != history_.rend(); ++seen, each *= 1 - kFade) {
    if (seen->name == number) weight += each;
  }
  return weight;
}

absl::Duration Habits::Interval(const std::string& component) const {
  const int number = NumberOf(component);
  int begins = 0;
  absl::Duration back, newest, oldest;  // before the last begin of anything
  for (auto seen = history_.rbegin(); seen != history_.rend(); ++seen) {
    if (seen->name == number) {
      if (begins == 0) newest = back;
      oldest = back;
      if (++begins > kIntervals) break;
    }
    back += seen->after;
  }
  return begins < 2 ? absl::ZeroDuration() : (oldest - newest) / (begins - 1);
}

absl::Duration Habits::Patience(absl::Duration least) const {
  absl::Duration longest;
  for (const Seen& seen : history_) longest = std::max(longest, seen.after);
  return std::max(least, kPatience * longest);
}

}  // namespace vrambroker::core
