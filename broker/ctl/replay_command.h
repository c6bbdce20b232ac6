// vramctl replay: the decisions of a decision log, made again.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "broker/ctl/command.h"

namespace vrambroker::ctl {

// `arguments`: those after the command. Exit status: 0 every plan came out as it was logged, 1 one
// did not, 2 wrong arguments or a log that cannot be read.
int ReplayLog(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

Command ReplayCommand();

}  // namespace vrambroker::ctl
