// Looks at the machine that several ask for.
#pragma once

#include <cstddef>

#include "broker/core/machine.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::server {

// The last `limit` decisions after the one of that id, oldest first. 0: no lower bound.
void CopyDecisions(const core::Machine& machine, size_t limit, core::DecisionId after,
                   v1::ListDecisionsResponse* out);

}  // namespace vrambroker::server
