// Calls of a session from the wire, but for those of convert_attach.h: checked against the ranges
// that the contract documents, INVALID_ARGUMENT otherwise. Without call numbers. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "broker/core/events.h"
#include "broker/server/checks.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::server {

core::CallHeader ReadHeader(uint64_t session_id, const std::string& request_id, Checks* checks);

absl::StatusOr<core::BeginUseEvent> ReadBeginUse(const v1::BeginUseRequest& request);
absl::StatusOr<core::EndUseEvent> ReadEndUse(const v1::EndUseRequest& request);
absl::StatusOr<core::ReportEvent> ReadReport(const v1::ReportResidencyRequest& request);
absl::StatusOr<core::DeclarePipelineEvent> ReadDeclarePipeline(
    const v1::DeclarePipelineRequest& request);
absl::StatusOr<core::DeclareRunEvent> ReadDeclareRun(const v1::DeclareRunRequest& request);
absl::StatusOr<core::FinishRunEvent> ReadFinishRun(const v1::FinishRunRequest& request);

// Of what a request asks for: the same for a repeat, within a process. Snapshots and measurements
// are left out: a repeat may carry newer ones, which have a number of their own.
uint64_t Fingerprint(const v1::BeginUseRequest& request);
uint64_t Fingerprint(const v1::EndUseRequest& request);
uint64_t Fingerprint(const v1::UpdateComponentsRequest& request);
uint64_t Fingerprint(const v1::DeclarePipelineRequest& request);
uint64_t Fingerprint(const v1::DeclareRunRequest& request);
uint64_t Fingerprint(const v1::FinishRunRequest& request);

}  // namespace vrambroker::server
