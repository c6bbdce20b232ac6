// What a use is charged by the layers that it is granted.
#pragma once

#include <cstdint>

#include "broker/core/charge.h"
#include "broker/core/state.h"

namespace vrambroker::core {

// The bytes of a use by layers granted. Signed: a grant below what is charged gives bytes back.
class Sizing {
 public:
  Sizing(const Component& c, const UseSpec& use)
      : c_(c),
        need_(use.activation),
        window_(use.window == Bytes() ? c.spec.window : use.window),
        charged_(ChargedLayers(c)) {}

  int charged() const { return charged_; }
  Bytes window(int layers) const { return layers < c_.count() ? window_ : Bytes(); }
  // All that the use is charged with `layers`.
  int64_t Total(int layers) const {
    const Bytes mine = c_.permanent() ? Bytes() : c_.spec.layers.Of(layers);
    return (mine + window(layers) + need_).count();
  }
  // What that is above the component's charge now.
  int64_t Raise(int layers) const {
    const Bytes mine = c_.permanent() ? Bytes() : c_.spec.layers.Of(charged_);
    return Total(layers) - mine.count();
  }
  // The most layers within [fewest, most] whose raise is within `bytes`; -1 where none.
  int MostWithin(int64_t bytes, int fewest, int most) const {
    for (int k = most; k >= fewest; --k) {
      if (Raise(k) <= bytes) return k;
    }
    return -1;
  }

 private:
  const Component& c_;
  Bytes need_;
  Bytes window_;
  int charged_;
};

inline int Most(const Component& c, const UseSpec& use) {
  return c.permanent() || use.max_resident == 0 ? c.count() : use.max_resident;
}
inline int Fewest(const Component& c, const UseSpec& use) {
  return c.permanent() ? c.count() : use.min_resident;
}

}  // namespace vrambroker::core
