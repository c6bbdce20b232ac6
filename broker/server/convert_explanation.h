// Why a decision fell as it did, for the wire. Pure.
#pragma once

#include "broker/core/explain.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::server {

void Write(const core::Explanation& explanation, v1::ExplainDecisionResponse* out);

}  // namespace vrambroker::server
