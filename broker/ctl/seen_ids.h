// Which ids of which brokers were met already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace vrambroker::ctl {

// Ids rise by one as a broker gives them out, so that they are kept as ranges: one for each gap.
class SeenIds {
 public:
  static constexpr size_t kMostRanges = size_t{1} << 20;

  enum class Met { kNew, kAgain, kTooMany };
  // kTooMany: it is new, and past the bound of ranges.
  Met Take(uint64_t epoch, uint64_t id) {
    std::map<uint64_t, uint64_t>& ranges = ranges_[epoch];
    auto next = ranges.upper_bound(id);
    const auto before = next == ranges.begin() ? ranges.end() : std::prev(next);
    if (before != ranges.end() && before->second >= id) return Met::kAgain;
    const bool joins_before = before != ranges.end() && before->second + 1 == id;
    const bool joins_next = next != ranges.end() && next->first - 1 == id;
    if (!joins_before && !joins_next) {
      if (count_ >= kMostRanges) return Met::kTooMany;
      ++count_;
      ranges.emplace_hint(next, id, id);
      return Met::kNew;
    }
    const uint64_t last = joins_next ? next->second : id;
    if (joins_next) ranges.erase(next);
    if (joins_before) {
      before->second = last;
      if (joins_next) --count_;
    } else {
      ranges.emplace(id, last);
    }
    return Met::kNew;
  }

 private:
  // First to last, by epoch.
  std::map<uint64_t, std::map<uint64_t, uint64_t>> ranges_;
  size_t count_ = 0;
};

}  // namespace vrambroker::ctl
