// The layers of a component in keep order, with the bytes of the first k for every k.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "broker/core/units.h"

namespace vrambroker::core {

class LayerTable {
 public:
  LayerTable() : before_{Bytes()} {}
  // `runs`: (count, bytes of each) in keep order; counts and bytes above 0.
  explicit LayerTable(const std::vector<std::pair<int, Bytes>>& runs) : before_{Bytes()} {
    for (const auto& [count, bytes] : runs) {
      for (int i = 0; i < count; ++i) before_.push_back(before_.back() + bytes);
    }
  }

  int count() const { return static_cast<int>(before_.size()) - 1; }
  // Bytes of the first `layers`, 0 to count().
  Bytes Of(int layers) const { return before_[static_cast<size_t>(layers)]; }
  Bytes All() const { return before_.back(); }
  // The most leading layers that `bytes` hold.
  int Within(Bytes bytes) const {
    return static_cast<int>(std::upper_bound(before_.begin(), before_.end(), bytes) -
                            before_.begin()) -
           1;
  }
  // The fewest leading layers that have `bytes`, at most All().
  int Covering(Bytes bytes) const {
    return static_cast<int>(std::lower_bound(before_.begin(), before_.end(), bytes) -
                            before_.begin());
  }
  friend bool operator==(const LayerTable&, const LayerTable&) = default;

 private:
  std::vector<Bytes> before_;  // before_[k]: bytes of the first k
};

}  // namespace vrambroker::core
