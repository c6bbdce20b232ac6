// What recurs: the order in which components of a device were used, and what followed the last time
// that the same uses came one after the other. From it, the uses that are to be expected where
// nobody declares them.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/specs.h"

namespace vrambroker::core {

// A use that was seen to begin, or is expected to.
struct ExpectedUse {
  std::string component;  // "worker/component"
  UseSpec spec;           // as it was the last time
  // From the begin of the use before it, as it was the last time. 0: not known.
  absl::Duration after;
  // Whether no other use was under way when it began.
  bool alone = true;
  // At least kLeastLikely, below one half: the share of predictions that came true lately, once for
  // each step ahead.
  double probability = 0;
};

class Habits {
 public:
  // A use of `component` was asked for; `alone`: while no other was under way. History beyond the
  // last kHistory uses is forgotten.
  void Note(const std::string& component, const UseSpec& spec, bool alone, absl::Time now);
  // At most `most` uses that follow the last one seen and then `known`, which are certain. None
  // where nothing was ever seen to follow the last of these.
  std::vector<ExpectedUse> Expect(const std::vector<std::string>& known, int most) const;
  // How long after the last begin a use is still expected: a few times the longest time between two
  // in the history, `least` at least.
  absl::Duration Patience(absl::Duration least) const;
  // How often a component was used of late: each use in the history counts, kFade less with each
  // that came after it. 0: never.
  double Weight(const std::string& component) const;
  // Mean time between the begins of a component's last uses, kIntervals of them at most. 0: fewer
  // than two uses were seen.
  absl::Duration Interval(const std::string& component) const;
  absl::Time last_begin() const { return last_begin_; }

  static constexpr int kHistory = 128;
  static constexpr int kContext = 8;       // uses that are compared
  static constexpr int kLeastContext = 3;  // fewer alike are chance, or one run's own order
  static constexpr int kIntervals = 3;
  static constexpr double kFade = 0.03;
  static constexpr double kLeastLikely = 0.05;

 private:
  struct Seen {
    int name = 0;  // index into names_
    absl::Duration after;
    bool alone = true;
  };
  // Where in `sequence` what followed stands, -1 for nowhere: after the longest earlier run of uses
  // that equals its end, the newest of these.
  static int Continuation(const std::vector<int>& sequence);
  // As Expect, however unlikely.
  std::vector<ExpectedUse> Follow(const std::vector<std::string>& known, int most) const;
  int NumberOf(const std::string& component) const;

  std::deque<Seen> history_;
  std::vector<std::string> names_;  // bounded by the components that there can be
  std::vector<UseSpec> specs_;      // by name: of its last use
  std::map<std::string, int> numbers_;
  double accuracy_ = 0.3;  // moved by every prediction
  absl::Time last_begin_ = absl::InfinitePast();
};

}  // namespace vrambroker::core
