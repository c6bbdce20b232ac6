// Whether a running broker speaks the protocol as it is written: every code of its error table
// provoked, every mutation sent twice, calls out of order, fields out of range.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/ctl/conformance_report.h"

namespace vrambroker::ctl {

struct ConformanceOptions {
  std::shared_ptr<grpc::Channel> channel;
  // Of the broker's Unix socket, for calls of a second process. Empty: it is reached another way.
  std::string socket_path;
  // For each call. Above 0.
  absl::Duration timeout = absl::Seconds(5);
  // Device of the components. Empty: the first that the broker lists; where this caller may not
  // see them, the broker's only one.
  std::string device;
  // Of this process, in clock ticks since boot. 0: not known.
  uint64_t start_time_ticks = 0;
  // Drains the broker at the end: nobody gets a use of it until it is restarted.
  bool drain = false;
};

// Takes some seconds. Uses names of its own, components of a few KiB, and leaves nothing attached.
// The broker's status where it does not answer at all; PERMISSION_DENIED where this caller has not
// both roles, worker and driver; FAILED_PRECONDITION where the broker drains already.
absl::StatusOr<ConformanceReport> RunConformance(const ConformanceOptions& options);

}  // namespace vrambroker::ctl
