// Every field past its documented range: INVALID_ARGUMENT, naming the field.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/ctl/conformance_checks.h"

namespace vrambroker::ctl {
namespace {

using grpc::StatusCode;

constexpr int64_t kTooManyBytes = (int64_t{64} << 40) + 1;

template <typename Request>
struct OutOfRange {
  // As the message names it.
  const char* field;
  const char* what;
  void (*change)(Request*);
};

std::string TooLong() { return std::string(129, 'n'); }
std::string LongId() { return std::string(65, 'i'); }

template <typename Request, typename Response>
void Each(ConformanceBed* bed, const char* name,
          grpc::Status (BrokerStub::*method)(grpc::ClientContext*, const Request&, Response*),
          const Request& good, const std::vector<OutOfRange<Request>>& cases) {
  for (const OutOfRange<Request>& one : cases) {
    Request request = good;
    one.change(&request);
    Response response;
    bed->report->Code(absl::StrCat(name, ": ", one.field, " ", one.what),
                      StatusCode::INVALID_ARGUMENT, bed->Call(method, request, &response),
                      one.field);
  }
}

void RangesOfAttach(ConformanceBed* bed) {
  const std::vector<OutOfRange<v1::AttachRequest>> cases = {
      {"worker", "empty", [](auto* r) { r->clear_worker(); }},
      {"worker", "of 129 bytes", [](auto* r) { r->set_worker(TooLong()); }},
      {"worker", "with a slash", [](auto* r) { r->set_worker("a/b"); }},
      {"attach_number", "0", [](auto* r) { r->set_attach_number(0); }},
      {"pid", "below 0", [](auto* r) { r->set_pid(-1); }},
      {"min_version", "of another protocol",
       [](auto* r) {
         r->set_min_version(1000000);
         r->set_max_version(1000001);
       }},
      {"components", "65 of them",
       [](auto* r) {
         for (int i = 1; i < 65; ++i) {
           *r->add_components() = r->components(0);
           r->mutable_components(i)->set_name(absl::StrCat("c", i));
         }
       }},
      {"name", "twice", [](auto* r) { *r->add_components() = r->components(0); }},
      {"name", "with a space", [](auto* r) { r->mutable_components(0)->set_name("a b"); }},
      {"device_uuid", "of no device here",
       [](auto* r) { r->mutable_components(0)->set_device_uuid("no-such-device"); }},
      {"fixed_bytes", "below 0", [](auto* r) { r->mutable_components(0)->set_fixed_bytes(-1); }},
      {"fixed_bytes", "above 64 TiB",
       [](auto* r) { r->mutable_components(0)->set_fixed_bytes(kTooManyBytes); }},
      {"window_bytes", "below 0", [](auto* r) { r->mutable_components(0)->set_window_bytes(-1); }},
      {"layer_runs", "none", [](auto* r) { r->mutable_components(0)->clear_layer_runs(); }},
      {"layer_runs.count", "0",
       [](auto* r) { r->mutable_components(0)->mutable_layer_runs(0)->set_count(0); }},
      {"layer_runs.count", "4097",
       [](auto* r) { r->mutable_components(0)->mutable_layer_runs(0)->set_count(4097); }},
      {"layer_runs.layer_bytes", "0",
       [](auto* r) { r->mutable_components(0)->mutable_layer_runs(0)->set_layer_bytes(0); }},
      {"layer_runs", "above 64 TiB in all",
       [](auto* r) {
         r->mutable_components(0)->mutable_layer_runs(0)->set_layer_bytes(kTooManyBytes - 1);
       }},
      {"lifetime", "of no such kind",
       [](auto* r) { r->mutable_components(0)->set_lifetime(static_cast<v1::Lifetime>(99)); }},
      {"no_host_copy", "of a set that is not permanent",
       [](auto* r) { r->mutable_components(0)->set_no_host_copy(true); }},
      {"pass_seconds", "not a number",
       [](auto* r) { r->mutable_components(0)->set_pass_seconds(std::nan("")); }},
      {"pin_host_bytes", "below 0",
       [](auto* r) { r->mutable_components(0)->set_pin_host_bytes(-1); }},
      {"host_memory.limit_bytes", "above 64 TiB",
       [](auto* r) { r->mutable_host_memory()->set_limit_bytes(kTooManyBytes); }},
      {"host_memory.domain", "of 129 bytes",
       [](auto* r) { r->mutable_host_memory()->set_domain(TooLong()); }},
      {"host_memory.domain", "with a slash",
       [](auto* r) { r->mutable_host_memory()->set_domain("a/b"); }},
      {"snapshot.sequence", "0", [](auto* r) { r->mutable_snapshot(); }},
      {"granted_layers", "of a running use, more than there are",
       [](auto* r) {
         v1::RunningUse* use = r->add_running_uses();
         use->set_request_id("r");
         use->set_component(r->components(0).name());
         use->set_granted_layers(kTestLayers + 1);
       }},
      {"component", "of a running use, not attached",
       [](auto* r) {
         v1::RunningUse* use = r->add_running_uses();
         use->set_request_id("r");
         use->set_component("nobody");
       }},
  };
  for (const OutOfRange<v1::AttachRequest>& one : cases) {
    v1::AttachRequest request =
        bed->Attach(bed->Name("ranges"), 1, {bed->Component(bed->Name("range"))});
    one.change(&request);
    SessionStream stream(*bed, request);
    bed->report->Code(absl::StrCat("Attach: ", one.field, " ", one.what),
                      StatusCode::INVALID_ARGUMENT, stream.opened(), one.field);
  }
}

void RangesOfBeginUse(ConformanceBed* bed, const v1::BeginUseRequest& good) {
  Each<v1::BeginUseRequest, v1::BeginUseResponse>(
      bed, "BeginUse", &BrokerStub::BeginUse, good,
      {{"session_id", "0", [](auto* r) { r->set_session_id(0); }},
       {"request_id", "empty", [](auto* r) { r->clear_request_id(); }},
       {"request_id", "of 65 bytes", [](auto* r) { r->set_request_id(LongId()); }},
       {"component", "empty", [](auto* r) { r->clear_component(); }},
       {"stage", "64",
        [](auto* r) {
          r->set_run_id(1);
          r->set_stage(64);
        }},
       {"passes", "below 0", [](auto* r) { r->set_passes(-1); }},
       {"passes", "1,000,001", [](auto* r) { r->set_passes(1000001); }},
       {"activation_bytes", "below 0", [](auto* r) { r->set_activation_bytes(-1); }},
       {"activation_bytes", "above 64 TiB",
        [](auto* r) { r->set_activation_bytes(kTooManyBytes); }},
       {"window_bytes", "below 0", [](auto* r) { r->set_window_bytes(-1); }},
       {"shape", "of 65 bytes", [](auto* r) { r->set_shape(LongId()); }},
       {"min_resident_layers", "below 0", [](auto* r) { r->set_min_resident_layers(-1); }},
       {"min_resident_layers", "above the most",
        [](auto* r) {
          r->set_min_resident_layers(2);
          r->set_max_resident_layers(1);
        }},
       {"max_resident_layers", "more than the component has",
        [](auto* r) { r->set_max_resident_layers(kTestLayers + 1); }},
       {"priority", "101", [](auto* r) { r->set_priority(101); }},
       {"priority", "-101", [](auto* r) { r->set_priority(-101); }},
       {"held_use_ids", "0", [](auto* r) { r->add_held_use_ids(0); }},
       {"held_use_ids", "17 of them", [](auto* r) {
          for (int i = 0; i < 17; ++i) r->add_held_use_ids(1);
        }}});
}

void RangesOfEndUse(ConformanceBed* bed, const v1::EndUseRequest& good) {
  Each<v1::EndUseRequest, v1::EndUseResponse>(
      bed, "EndUse", &BrokerStub::EndUse, good,
      {{"use_id", "and begin_request_id, neither", [](auto* r) { r->clear_begin_request_id(); }},
       {"use_id", "and begin_request_id, both", [](auto* r) { r->set_use_id(1); }},
       {"begin_request_id", "of 65 bytes", [](auto* r) { r->set_begin_request_id(LongId()); }},
       {"snapshot.sequence", "0", [](auto* r) { r->mutable_snapshot()->set_sequence(0); }},
       {"snapshot.pool_bytes", "below 0",
        [](auto* r) { r->mutable_snapshot()->set_pool_bytes(-1); }},
       {"measured.stall_seconds", "below 0",
        [](auto* r) { r->mutable_measured()->set_stall_seconds(-1); }},
       {"measured.seconds", "infinite",
        [](auto* r) {
          r->mutable_measured()->set_seconds(std::numeric_limits<double>::infinity());
        }},
       {"measured.passes", "1,000,001",
        [](auto* r) { r->mutable_measured()->set_passes(1000001); }},
       {"measured.peak_activation_bytes", "above 64 TiB",
        [](auto* r) { r->mutable_measured()->set_peak_activation_bytes(kTooManyBytes); }}});
}

void RangesOfRuns(ConformanceBed* bed, uint64_t session) {
  v1::DeclarePipelineRequest pipeline;
  pipeline.set_session_id(session);
  pipeline.set_request_id(bed->NewId());
  pipeline.set_pipeline(bed->Name("ranges"));
  pipeline.add_stages()->set_component("nobody");
  Each<v1::DeclarePipelineRequest, v1::DeclarePipelineResponse>(
      bed, "DeclarePipeline", &BrokerStub::DeclarePipeline, pipeline,
      {{"pipeline", "empty", [](auto* r) { r->clear_pipeline(); }},
       {"stages", "none", [](auto* r) { r->clear_stages(); }},
       {"stages", "65 of them",
        [](auto* r) {
          for (int i = 1; i < 65; ++i) *r->add_stages() = r->stages(0);
        }},
       {"component", "with two slashes",
        [](auto* r) { r->mutable_stages(0)->set_component("a/b/c"); }},
       {"passes", "below 0", [](auto* r) { r->mutable_stages(0)->set_passes(-1); }}});
  v1::DeclareRunRequest run;
  run.set_session_id(session);
  run.set_request_id(bed->NewId());
  run.set_pipeline(bed->Name("ranges"));
  Each<v1::DeclareRunRequest, v1::DeclareRunResponse>(
      bed, "DeclareRun", &BrokerStub::DeclareRun, run,
      {{"starts_in", "below 0", [](auto* r) { r->mutable_starts_in()->set_seconds(-1); }},
       {"starts_in", "of 10^9 nanoseconds",
        [](auto* r) { r->mutable_starts_in()->set_nanos(1000000000); }}});
  v1::FinishRunRequest finish;
  finish.set_session_id(session);
  finish.set_request_id(bed->NewId());
  Each<v1::FinishRunRequest, v1::FinishRunResponse>(bed, "FinishRun", &BrokerStub::FinishRun,
                                                    finish, {{"run_id", "0", [](auto*) {}}});
}

void RangesOfAdmin(ConformanceBed* bed) {
  v1::ListDecisionsRequest list;
  list.set_limit(-1);
  v1::ListDecisionsResponse listed;
  const grpc::Status status =
      Ask(bed->admin, &v1::BrokerAdmin::Stub::ListDecisions, list, &listed, bed->timeout);
  if (status.error_code() == StatusCode::PERMISSION_DENIED) {
    bed->report->NotProvoked("ranges of the admin service", "INVALID_ARGUMENT",
                             "this caller has neither the role viewer nor admin");
    return;
  }
  bed->report->Code("ListDecisions: limit below 0", StatusCode::INVALID_ARGUMENT, status, "limit");
  v1::ExplainDecisionRequest explain;
  v1::ExplainDecisionResponse why;
  const auto ask = [&] {
    return Ask(bed->admin, &v1::BrokerAdmin::Stub::ExplainDecision, explain, &why, bed->timeout);
  };
  bed->report->Code("ExplainDecision: decision_id 0", StatusCode::INVALID_ARGUMENT, ask(),
                    "decision_id");
  explain.set_decision_id(uint64_t{1} << 62);
  bed->report->Code("ExplainDecision of a decision that never was", StatusCode::NOT_FOUND, ask());
}

}  // namespace

void CheckRanges(ConformanceBed* bed) {
  bed->report->SetPart("ranges");
  RangesOfAttach(bed);
  const std::string component = bed->Name("range");
  TestWorker worker(bed, bed->Name("ranging"), {bed->Component(component)});
  if (!bed->report->Code("Attach", StatusCode::OK, worker.Attach())) return;
  RangesOfBeginUse(bed, worker.Use(component));
  RangesOfEndUse(bed, worker.End(bed->NewId()));
  v1::UpdateComponentsRequest update = worker.Update();
  *update.add_upsert() = bed->Component(component);
  Each<v1::UpdateComponentsRequest, v1::UpdateComponentsResponse>(
      bed, "UpdateComponents", &BrokerStub::UpdateComponents, update,
      {{"remove", "of what is in upsert as well",
        [](auto* r) { r->add_remove(r->upsert(0).name()); }},
       {"upsert", "of a component without layers",
        [](auto* r) { r->mutable_upsert(0)->clear_layer_runs(); }},
       {"device_uuid", "of another device than the session's",
        [](auto* r) { r->mutable_upsert(0)->set_device_uuid("no-such-device"); }}});
  v1::ReportResidencyRequest report;
  report.set_session_id(worker.session());
  Each<v1::ReportResidencyRequest, v1::ReportResidencyResponse>(
      bed, "ReportResidency", &BrokerStub::ReportResidency, report,
      {{"snapshot", "none", [](auto*) {}}});
  // A session of a worker speaks for runs as well.
  RangesOfRuns(bed, worker.session());
  RangesOfAdmin(bed);
}

}  // namespace vrambroker::ctl
