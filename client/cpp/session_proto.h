// Small helpers between the session's logic and the messages that it speaks in.
#pragma once

#include <google/protobuf/duration.pb.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "vrambroker/v1/types.pb.h"

namespace vrambroker::client {

// A call that failed on the way, or that a draining broker put off, is sent again after this.
inline constexpr absl::Duration kSendAgain = absl::Milliseconds(100);

inline absl::Duration FromProto(const google::protobuf::Duration& d) {
  return absl::Seconds(d.seconds()) + absl::Nanoseconds(d.nanos());
}

inline int LayerCount(const v1::Component& component) {
  int count = 0;
  for (const v1::LayerRun& run : component.layer_runs()) count += run.count();
  return count;
}

// The call did not arrive, or its answer did not, or the broker is draining or recovering: the same
// again later.
inline bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsUnknown(status);
}

// ABORTED with these words means that the wait was refused, not that the session is stale.
inline bool IsRefusedWait(const absl::Status& status) {
  return absl::StrContains(status.message(), "deadlock") ||
         absl::StrContains(status.message(), "shard group");
}

// An Attach that will be refused again. A name in use may become free: that is tried again.
inline bool IsFinalRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ||
         absl::IsUnauthenticated(status) || absl::IsUnimplemented(status);
}

}  // namespace vrambroker::client
