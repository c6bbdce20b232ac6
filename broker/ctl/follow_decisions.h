// vramctl decisions --follow.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <ostream>
#include <string>

#include "broker/ctl/connection.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::ctl {

// One line, with its end: columns that fit most decisions, so that lines stand below each other.
std::string RenderDecisionLine(const v1::Decision& decision);

// The last `limit` decisions and each one that follows, a line each, until `out` takes no more,
// nobody reads it (of standard output; then as EndWithReader), or the broker ends the stream, which
// is said on `error`. The connection's timeout is for the broker
// to be reached. Returns the exit status.
int FollowDecisions(const Connection& connection, const std::shared_ptr<grpc::Channel>& channel,
                    int limit, std::ostream& out, std::ostream& error);

}  // namespace vrambroker::ctl
