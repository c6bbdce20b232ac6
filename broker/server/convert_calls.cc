#include "broker/server/convert_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "broker/server/convert_attach.h"

namespace vrambroker::server {
namespace {

constexpr double kMaxSeconds = 1e9;

// Which call a fingerprint is of: the same id with another call is another request.
enum class Call { kBeginUse, kEndUse, kUpdate, kDeclarePipeline, kDeclareRun, kFinishRun };

int OneIfZero(int passes) { return passes == 0 ? 1 : passes; }

core::Measurements ReadMeasurements(const v1::UseMeasurements& measured, Checks* checks) {
  core::Measurements result;
  checks->SetPrefix("measured.");
  checks->Bytes("peak_activation_bytes", measured.peak_activation_bytes());
  checks->Range("bytes_loaded", measured.bytes_loaded(), 0, INT64_MAX);
  checks->Amount("stall_seconds", measured.stall_seconds(), kMaxSeconds);
  checks->Amount("seconds", measured.seconds(), kMaxSeconds);
  checks->Amount("compute_seconds", measured.compute_seconds(), kMaxSeconds);
  checks->Amount("copy_seconds", measured.copy_seconds(), kMaxSeconds);
  checks->Range("passes", measured.passes(), 0, kMaxPasses);
  if (!checks->ok()) return result;
  checks->SetPrefix("");
  result.peak_activation = core::Bytes(measured.peak_activation_bytes());
  result.bytes_loaded = core::Bytes(measured.bytes_loaded());
  result.stall_seconds = measured.stall_seconds();
  result.seconds = measured.seconds();
  result.compute_seconds = measured.compute_seconds();
  result.copy_seconds = measured.copy_seconds();
  result.passes = measured.passes();
  result.warm_up = measured.warm_up();
  return result;
}

void CheckUse(const v1::BeginUseRequest& request, Checks* checks) {
  checks->Name("component", request.component());
  if (request.run_id() != 0) checks->Range("stage", request.stage(), 0, kMaxStages - 1);
  checks->Range("passes", request.passes(), 0, kMaxPasses);
  checks->Bytes("activation_bytes", request.activation_bytes());
  checks->Length("shape", request.shape(), kMaxShapeBytes);
  checks->Bytes("window_bytes", request.window_bytes());
  checks->Range("min_resident_layers", request.min_resident_layers(), 0, kMaxLayers);
  checks->Range("max_resident_layers", request.max_resident_layers(), 0, kMaxLayers);
  if (request.max_resident_layers() != 0) {
    checks->Range("min_resident_layers", request.min_resident_layers(), 0,
                  request.max_resident_layers());
  }
  checks->Range("priority", request.priority(), -kMaxPriority, kMaxPriority);
  checks->Range("held_use_ids (count)", request.held_use_ids_size(), 0, kMaxHeldUses);
  for (uint64_t id : request.held_use_ids()) checks->NotZero("held_use_ids", id);
  if (!request.has_shard_group()) return;
  const std::string& group = request.shard_group().name();
  checks->Require(!group.empty() && group.size() <= kMaxGroupNameBytes, "shard_group.name",
                  absl::StrCat(group.size(), " bytes"), "1 to 64 bytes are");
  checks->Range("shard_group.size", request.shard_group().size(), 2, kMaxGroupSize);
  checks->Require(request.held_use_ids().empty(), "held_use_ids",
                  absl::StrCat(request.held_use_ids_size(), " ids beside shard_group"),
                  "none beside it is");
}

}  // namespace

core::CallHeader ReadHeader(uint64_t session_id, const std::string& request_id, Checks* checks) {
  checks->NotZero("session_id", session_id);
  checks->RequestId("request_id", request_id);
  core::CallHeader header;
  if (!checks->ok()) return header;
  header.session = core::SessionId(session_id);
  header.request_id = request_id;
  return header;
}

absl::StatusOr<core::BeginUseEvent> ReadBeginUse(const v1::BeginUseRequest& request) {
  core::BeginUseEvent event;
  Checks checks;
  event.header = ReadHeader(request.session_id(), request.request_id(), &checks);
  CheckUse(request, &checks);
  if (!checks.ok()) return checks.status();
  event.header.fingerprint = Fingerprint(request);
  event.use.component = request.component();
  event.use.run = core::RunId(request.run_id());
  event.use.stage = request.run_id() == 0 ? 0 : request.stage();
  event.use.passes = OneIfZero(request.passes());
  event.use.activation = core::Bytes(request.activation_bytes());
  event.use.shape = request.shape();
  event.use.activation_is_exact = request.activation_is_exact();
  event.use.window = core::Bytes(request.window_bytes());
  event.use.min_resident = request.min_resident_layers();
  event.use.max_resident = request.max_resident_layers();
  event.use.priority = request.priority();
  for (uint64_t id : request.held_use_ids()) event.use.held_uses.emplace_back(id);
  event.use.group = request.shard_group().name();
  event.use.group_size = request.shard_group().size();
  return event;
}

absl::StatusOr<core::EndUseEvent> ReadEndUse(const v1::EndUseRequest& request) {
  core::EndUseEvent event;
  Checks checks;
  event.header = ReadHeader(request.session_id(), request.request_id(), &checks);
  const bool by_id = request.use_id() != 0;
  const bool by_request = !request.begin_request_id().empty();
  checks.Require(by_id != by_request, "use_id, begin_request_id", by_id ? "both" : "neither",
                 "one of the two is");
  if (by_request) checks.RequestId("begin_request_id", request.begin_request_id());
  event.snapshot = ReadSnapshot(request.has_snapshot(), request.snapshot(), &checks);
  event.measured = ReadMeasurements(request.measured(), &checks);
  if (!checks.ok()) return checks.status();
  event.header.fingerprint = Fingerprint(request);
  event.use = core::UseId(request.use_id());
  event.begin_request_id = request.begin_request_id();
  return event;
}

absl::StatusOr<core::ReportEvent> ReadReport(const v1::ReportResidencyRequest& request) {
  core::ReportEvent event;
  Checks checks;
  checks.NotZero("session_id", request.session_id());
  checks.Require(request.has_snapshot(), "snapshot", "none", "a snapshot of all that is held is");
  event.header.session = core::SessionId(request.session_id());
  event.snapshot = ReadSnapshot(request.has_snapshot(), request.snapshot(), &checks);
  if (!checks.ok()) return checks.status();
  return event;
}

absl::StatusOr<core::DeclarePipelineEvent> ReadDeclarePipeline(
    const v1::DeclarePipelineRequest& request) {
  core::DeclarePipelineEvent event;
  Checks checks;
  event.header = ReadHeader(request.session_id(), request.request_id(), &checks);
  checks.Name("pipeline", request.pipeline());
  checks.Range("stages (count)", request.stages_size(), 1, kMaxStages);
  for (int i = 0; i < request.stages_size() && checks.ok(); ++i) {
    const v1::StageSpec& stage = request.stages(i);
    checks.SetPrefix(absl::StrCat("stages[", i, "]."));
    checks.ComponentReference("component", stage.component());
    checks.Range("passes", stage.passes(), 0, kMaxPasses);
    checks.Bytes("activation_bytes", stage.activation_bytes());
    checks.Length("shape", stage.shape(), kMaxShapeBytes);
    if (!checks.ok()) break;
    event.stages.push_back({stage.component(), OneIfZero(stage.passes()),
                            core::Bytes(stage.activation_bytes()), stage.shape(),
                            stage.activation_is_exact()});
  }
  if (!checks.ok()) return checks.status();
  event.header.fingerprint = Fingerprint(request);
  event.pipeline = request.pipeline();
  return event;
}

absl::StatusOr<core::DeclareRunEvent> ReadDeclareRun(const v1::DeclareRunRequest& request) {
  core::DeclareRunEvent event;
  Checks checks;
  event.header = ReadHeader(request.session_id(), request.request_id(), &checks);
  checks.Name("pipeline", request.pipeline());
  checks.Duration("starts_in", request.starts_in());
  if (!checks.ok()) return checks.status();
  event.header.fingerprint = Fingerprint(request);
  event.pipeline = request.pipeline();
  event.starts_in = ToDuration(request.starts_in());
  return event;
}

absl::StatusOr<core::FinishRunEvent> ReadFinishRun(const v1::FinishRunRequest& request) {
  core::FinishRunEvent event;
  Checks checks;
  event.header = ReadHeader(request.session_id(), request.request_id(), &checks);
  checks.NotZero("run_id", request.run_id());
  if (!checks.ok()) return checks.status();
  event.header.fingerprint = Fingerprint(request);
  event.run = core::RunId(request.run_id());
  return event;
}

uint64_t Fingerprint(const v1::BeginUseRequest& request) {
  const std::vector<uint64_t> held(request.held_use_ids().begin(), request.held_use_ids().end());
  return absl::HashOf(
      Call::kBeginUse, request.component(), request.run_id(), request.stage(), request.passes(),
      request.activation_bytes(), request.shape(), request.activation_is_exact(),
      request.window_bytes(), request.min_resident_layers(), request.max_resident_layers(),
      request.priority(), held, request.shard_group().name(), request.shard_group().size());
}

uint64_t Fingerprint(const v1::EndUseRequest& request) {
  return absl::HashOf(Call::kEndUse, request.use_id(), request.begin_request_id());
}

uint64_t Fingerprint(const v1::UpdateComponentsRequest& request) {
  std::vector<std::string> parts(request.remove().begin(), request.remove().end());
  for (const v1::Component& component : request.upsert()) {
    parts.push_back(component.SerializeAsString());  // no maps in it: one form only
  }
  return absl::HashOf(Call::kUpdate, request.remove_size(), parts);
}

uint64_t Fingerprint(const v1::DeclarePipelineRequest& request) {
  std::vector<std::string> parts{request.pipeline()};
  for (const v1::StageSpec& stage : request.stages()) parts.push_back(stage.SerializeAsString());
  return absl::HashOf(Call::kDeclarePipeline, parts);
}

uint64_t Fingerprint(const v1::DeclareRunRequest& request) {
  return absl::HashOf(Call::kDeclareRun, request.pipeline(), request.starts_in().seconds(),
                      request.starts_in().nanos());
}

uint64_t Fingerprint(const v1::FinishRunRequest& request) {
  return absl::HashOf(Call::kFinishRun, request.run_id());
}

}  // namespace vrambroker::server
