// Events and effects of the machine in a line each.
#pragma once

#include <string>

#include "broker/core/effects.h"
#include "broker/core/events.h"

namespace vrambroker::simulation {

std::string Describe(const core::Event& event);
// Empty for those that say nothing of what was decided.
std::string Describe(const core::Effect& effect);

}  // namespace vrambroker::simulation
