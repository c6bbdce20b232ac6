// Every command of vramctl, in the order in which help lists them.
#pragma once

#include <string>
#include <vector>

#include "broker/ctl/command.h"

namespace vrambroker::ctl {

const std::vector<Command>& Commands();

// The command of this name. Null: there is none.
const Command* FindCommand(const std::string& name);

// What vramctl --help prints.
std::string GeneralUsage();

// Which of the arguments is the command: the first that is neither a flag nor the value of one.
// arguments.size(): there is none.
size_t CommandAt(const std::vector<std::string>& arguments);

}  // namespace vrambroker::ctl
