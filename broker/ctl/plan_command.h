// vramctl plan: what a card of some size would mean for a workload, in words.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "broker/ctl/command.h"
#include "broker/sim/what_if.h"

namespace vrambroker::ctl {

// `arguments`: those after the command. Exit status: 0 all fit, 1 one does not fit, 2 wrong
// arguments or a workload that cannot be read, 3 a simulation that broke a guarantee.
int Plan(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

Command PlanCommand();

// One workload on the card that its device names. Pure.
std::string PlanText(const sim::Workload& workload, const sim::WhatIf& what_if);
std::string PlanJson(const sim::Workload& workload, const sim::WhatIf& what_if);

}  // namespace vrambroker::ctl
