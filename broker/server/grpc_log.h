// What gRPC itself has to say, such as why a handshake failed, in the form of the broker's log.
#pragma once

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "broker/server/log.h"

namespace vrambroker::server {

// Lets so many lines pass in each window, so that whoever knocks at a port does not fill the log.
class LineBudget {
 public:
  static constexpr size_t kLines = 20;
  static constexpr absl::Duration kWindow = absl::Seconds(10);

  // Whether a line at `now` passes. If so, `held_back` is how many did not since the last that did.
  bool Pass(absl::Time now, size_t* held_back);

 private:
  absl::Time window_ends_ = absl::InfinitePast();
  size_t passed_ = 0;
  size_t held_back_ = 0;
};

// From here on gRPC's lines of this process go to stderr as events "grpc" with where in gRPC and
// message, within the budget, where their level is `least` or above: a warning is what gRPC calls
// an error, as it concerns one connection. For programs; once, before there is any server.
void LogGrpcAs(LogFormat format, LogLevel least);

}  // namespace vrambroker::server
