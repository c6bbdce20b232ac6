// vramctl conformance: whether a running broker speaks the protocol as it is written.
#pragma once

#include "broker/ctl/command.h"

namespace vrambroker::ctl {

// Its exit status: 0 everything that was checked is as the protocol says, 1 something is not, 2
// wrong arguments or a broker that does not answer.
Command ConformanceCommand();

}  // namespace vrambroker::ctl
