// What the core decided, for the wire. Pure.
#pragma once

#include "broker/core/effects.h"
#include "broker/core/picture.h"
#include "vrambroker/v1/admin.pb.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::server {

void Write(const core::Target& target, v1::Target* out);
void Write(const core::Welcome& welcome, v1::Welcome* out);
void Write(const core::BeginAnswer& answer, v1::BeginUseResponse* out);
void Write(const core::EndAnswer& answer, v1::EndUseResponse* out);
void Write(const core::ReportAnswer& answer, v1::ReportResidencyResponse* out);
void Write(const core::UpdateAnswer& answer, v1::UpdateComponentsResponse* out);
void Write(const core::DeclareRunAnswer& answer, v1::DeclareRunResponse* out);
inline void Write(const core::EmptyAnswer&, v1::DeclarePipelineResponse*) {}
inline void Write(const core::EmptyAnswer&, v1::FinishRunResponse*) {}
inline void Write(const core::EmptyAnswer&, v1::DrainResponse*) {}

void Write(const core::Picture& picture, v1::Picture* out);
void Write(const core::Decision& decision, v1::Decision* out);
void Write(const core::RunPicture& run, v1::RunPicture* out);

}  // namespace vrambroker::server
