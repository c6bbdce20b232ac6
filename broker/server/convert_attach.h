// Sessions and components from the wire. Every range that the contract documents is checked here;
// errors are INVALID_ARGUMENT and name field, value and what is allowed. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "broker/core/events.h"
#include "broker/server/checks.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::server {

// Of one of the components of a message; `prefix` is "components[2].".
core::ComponentSpec ReadComponent(const v1::Component& component, const std::string& prefix,
                                  Checks* checks);

// A snapshot, present or not: sequence 0 then.
core::Snapshot ReadSnapshot(bool present, const v1::Snapshot& snapshot, Checks* checks);

// Without connection; process as the caller says.
absl::StatusOr<core::AttachEvent> ReadAttach(const v1::AttachRequest& request);

// The UUID of the device that all of them name; empty where none names one. Components of one
// session are on one device.
std::string ReadDevice(const google::protobuf::RepeatedPtrField<v1::Component>& components,
                       absl::string_view field, Checks* checks);

// Without call number. `device_uuid` gets the device that the components name, or nothing.
absl::StatusOr<core::UpdateComponentsEvent> ReadUpdate(const v1::UpdateComponentsRequest& request,
                                                       std::string* device_uuid);

}  // namespace vrambroker::server
