// Why a decision fell as it did, in words. Pure.
#pragma once

#include <string>

#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::ctl {

// What was decided, what the alternatives would have cost and who would have paid, and what was
// known, as tables.
std::string RenderExplanation(const v1::ExplainDecisionResponse& why);

}  // namespace vrambroker::ctl
