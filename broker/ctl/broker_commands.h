// The commands that ask a broker what it knows: status, decisions, health.
#pragma once

#include <string>
#include <vector>

namespace vrambroker::ctl {

// `arguments`: those after the program. Exit status: 0 done (health: serving), 1 health: not
// serving, 2 wrong arguments, the broker did not answer, or what was asked for is not known.
int AskBroker(const std::vector<std::string>& arguments);

}  // namespace vrambroker::ctl
