// The memory picture of one device, added up from the state afresh each time it is asked for.
#pragma once

#include <string>
#include <vector>

#include "broker/core/units.h"

namespace vrambroker::core {

// capacity = free + in_use + retained + permanent + pooled + draining + external + reserve -
// overcommitted
struct Ledger {
  Bytes capacity;
  Bytes reserve;
  // Charge of components with a use, needs included, fixed bytes not.
  Bytes in_use;
  // Charge of components without one, up to their target.
  Bytes retained;
  // Permanent sets, and everybody's fixed bytes.
  Bytes permanent;
  Bytes pooled;
  // Charged, but neither in use nor wanted: above the target, or of an owner whose session is lost.
  Bytes draining;
  // What the driver shows beyond our workers, with the unexplained bytes of workers.
  Bytes external;
  // Whether any reading has come.
  bool external_known = false;

  // Everything but free.
  Bytes Sum() const {
    return reserve + in_use + retained + permanent + pooled + draining + external;
  }
  Bytes Free() const { return MinusOrZero(capacity, Sum()); }
  Bytes Overcommitted() const { return MinusOrZero(Sum(), capacity); }
  // All that our own sessions are charged.
  Bytes Charged() const { return in_use + retained + permanent + pooled + draining; }
};

}  // namespace vrambroker::core
