// Directives of one stream that wait until the one before has gone out.
#pragma once

#include <optional>

#include "broker/core/effects.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::server {

// Merges: the newest generation of each component wins, the wish to trim is or-ed, the newest
// allowance to pin wins, the welcome stays. So it holds at most one target for each component,
// however slowly the stream is read. Not thread-safe.
class PendingDirective {
 public:
  void Add(const core::SendDirective& directive);
  bool empty() const {
    return !welcome_.has_value() && targets_.empty() && !trim_pool_ && !pin_allowance_.has_value();
  }
  // Writes all that waits into `out`, which is cleared first; nothing waits then.
  void Take(v1::Directive* out);

 private:
  std::optional<core::Welcome> welcome_;
  std::vector<core::Target> targets_;  // in the order in which components were first named
  bool trim_pool_ = false;
  std::optional<core::Bytes> pin_allowance_;
};

}  // namespace vrambroker::server
