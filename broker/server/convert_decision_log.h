// Lines of the decision log of what the core says. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/core/explain.h"
#include "broker/core/specs.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::server {

void WriteTime(absl::Time time, google::protobuf::Timestamp* out);
void Write(const core::ComponentSpec& spec, v1::Component* out);
void Write(const core::DeviceSpec& device, v1::LoggedDevice* out);
void Write(const core::Knowledge& knowledge, v1::LoggedPlan* out);

// One line of JSON, its end included. Empty where JSON has no form for it, such as for the year
// 10000.
std::string ToLine(const v1::DecisionLogLine& line);

}  // namespace vrambroker::server
