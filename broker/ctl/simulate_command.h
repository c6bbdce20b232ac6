// vramctl simulate: a workload under virtual time, as a table, JSON, CSV or a plot.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "broker/ctl/command.h"

namespace vrambroker::ctl {

// `arguments`: those after the command. Exit status: 0 all fit, 1 one does not fit, 2 wrong
// arguments or a workload that cannot be read, 3 a simulation that broke a guarantee. Where it
// takes long, `error` gets the progress.
int Simulate(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

Command SimulateCommand();

}  // namespace vrambroker::ctl
