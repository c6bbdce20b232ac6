// The commands that ask a broker one question: status, decisions, explain, runs, workers, health.
#pragma once

#include <vector>

#include "broker/ctl/command.h"

namespace vrambroker::ctl {

std::vector<Command> BrokerCommands();

}  // namespace vrambroker::ctl
