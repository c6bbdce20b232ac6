// vramctl watch: the picture as it changes, on a terminal or line by line.
#pragma once

#include "broker/ctl/command.h"

namespace vrambroker::ctl {

// Its exit status: 0 ended by a key, a signal or --count, 2 wrong arguments, a broker that did not
// answer at first or refuses, or a terminal that cannot be drawn on.
Command WatchCommand();

}  // namespace vrambroker::ctl
