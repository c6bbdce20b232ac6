// Pipelines and runs: order, owner, bound. Every mutation twice.
#include <string>

#include "absl/strings/str_cat.h"
#include "broker/ctl/conformance_checks.h"

namespace vrambroker::ctl {
namespace {

using grpc::StatusCode;

// Past it no bound of pipelines is looked for.
constexpr int kMostPipelines = 4096;

// A driver: a session without components.
class TestDriver {
 public:
  TestDriver(ConformanceBed* bed, const std::string& name)
      : bed_(bed), stream_(*bed, bed->Attach(name, 1, {})) {}

  const grpc::Status& opened() const { return stream_.opened(); }
  uint64_t session() const { return stream_.first().welcome().session_id(); }

  v1::DeclarePipelineRequest Pipeline(const std::string& name) const {
    v1::DeclarePipelineRequest request;
    request.set_session_id(session());
    request.set_request_id(bed_->NewId());
    request.set_pipeline(name);
    request.add_stages()->set_component(bed_->Name("nobody"));
    return request;
  }
  v1::DeclareRunRequest Run(const std::string& pipeline) const {
    v1::DeclareRunRequest request;
    request.set_session_id(session());
    request.set_request_id(bed_->NewId());
    request.set_pipeline(pipeline);
    return request;
  }
  v1::FinishRunRequest Finish(uint64_t run) const {
    v1::FinishRunRequest request;
    request.set_session_id(session());
    request.set_request_id(bed_->NewId());
    request.set_run_id(run);
    return request;
  }

 private:
  ConformanceBed* const bed_;
  SessionStream stream_;
};

void CheckOrder(ConformanceBed* bed, const TestDriver& driver, const TestDriver& other) {
  v1::DeclarePipelineResponse declared;
  v1::DeclareRunResponse run;
  v1::FinishRunResponse finished;
  const std::string name = bed->Name("pipeline");
  bed->report->Code("DeclareRun of a pipeline that is not declared",
                    StatusCode::FAILED_PRECONDITION,
                    bed->Call(&BrokerStub::DeclareRun, driver.Run(name), &run), "pipeline");
  bed->report->Code("DeclarePipeline", StatusCode::OK,
                    bed->Call(&BrokerStub::DeclarePipeline, driver.Pipeline(name), &declared));
  bed->report->Code("DeclareRun of it in another session", StatusCode::FAILED_PRECONDITION,
                    bed->Call(&BrokerStub::DeclareRun, other.Run(name), &run), "pipeline");
  bed->report->Code("DeclareRun", StatusCode::OK,
                    bed->Call(&BrokerStub::DeclareRun, driver.Run(name), &run));
  bed->report->Code("FinishRun by another driver", StatusCode::PERMISSION_DENIED,
                    bed->Call(&BrokerStub::FinishRun, other.Finish(run.run_id()), &finished),
                    "run_id");
  bed->report->Code("FinishRun", StatusCode::OK,
                    bed->Call(&BrokerStub::FinishRun, driver.Finish(run.run_id()), &finished));
  bed->report->Code("FinishRun of it again under a new id", StatusCode::FAILED_PRECONDITION,
                    bed->Call(&BrokerStub::FinishRun, driver.Finish(run.run_id()), &finished),
                    "run_id");

  v1::UpdateComponentsRequest components;
  components.set_session_id(driver.session());
  components.set_request_id(bed->NewId());
  *components.add_upsert() = bed->Component(bed->Name("of-a-driver"));
  components.mutable_upsert(0)->clear_device_uuid();
  v1::UpdateComponentsResponse updated;
  bed->report->Code("UpdateComponents of a session attached without components",
                    StatusCode::FAILED_PRECONDITION,
                    bed->Call(&BrokerStub::UpdateComponents, components, &updated));
}

void CheckPipelineBound(ConformanceBed* bed, const TestDriver& driver) {
  grpc::Status status;
  for (int i = 0; i < kMostPipelines && status.ok(); ++i) {
    v1::DeclarePipelineResponse declared;
    const std::string name = bed->Name(absl::StrCat("pipeline-", i));
    status = bed->Call(&BrokerStub::DeclarePipeline, driver.Pipeline(name), &declared);
  }
  bed->report->Code("DeclarePipeline of ever more pipelines", StatusCode::RESOURCE_EXHAUSTED,
                    status, "pipeline");
}

// `request` three times: twice the same, once changed; then another call under its id. What the
// first answered is in `response`.
template <typename Request, typename Response, typename Change>
void Twice(ConformanceBed* bed, const std::string& name,
           grpc::Status (BrokerStub::*method)(grpc::ClientContext*, const Request&, Response*),
           const Request& request, Change change, Response* response) {
  if (!bed->report->Code(name, StatusCode::OK, bed->Call(method, request, response))) return;
  Response again;
  const grpc::Status repeated = bed->Call(method, request, &again);
  bed->report->Code(absl::StrCat(name, " again"), StatusCode::OK, repeated);
  bed->report->Holds(absl::StrCat(name, " again: its answer"),
                     again.SerializeAsString() == response->SerializeAsString(), "the first answer",
                     again.ShortDebugString());
  Request other = request;
  change(&other);
  bed->report->Code(absl::StrCat(name, " again with another payload"), StatusCode::INVALID_ARGUMENT,
                    bed->Call(method, other, &again), "request_id");
  v1::FinishRunRequest finish;
  finish.set_session_id(request.session_id());
  finish.set_request_id(request.request_id());
  finish.set_run_id(uint64_t{1} << 62);
  v1::FinishRunResponse finished;
  bed->report->Code(absl::StrCat("another call under the id of ", name),
                    StatusCode::INVALID_ARGUMENT,
                    bed->Call(&BrokerStub::FinishRun, finish, &finished), "request_id");
}

void RepeatOfWorker(ConformanceBed* bed) {
  const std::string component = bed->Name("repeated");
  TestWorker worker(bed, bed->Name("repeater"), {bed->Component(component)});
  if (!bed->report->Code("Attach", StatusCode::OK, worker.Attach())) return;
  v1::BeginUseResponse begun;
  Twice(
      bed, "BeginUse", &BrokerStub::BeginUse, worker.Use(component),
      [](v1::BeginUseRequest* r) { r->set_passes(2); }, &begun);
  worker.Complete(component, begun.generation());
  const v1::EndUseRequest end = worker.End(begun.use_id());
  v1::EndUseResponse ended;
  Twice(
      bed, "EndUse", &BrokerStub::EndUse, end,
      [](v1::EndUseRequest* r) { r->set_use_id(r->use_id() + 1); }, &ended);
  worker.Complete(component, ended.target().generation());
  v1::ReportResidencyResponse reached;
  worker.Report(&reached);
  v1::UpdateComponentsRequest update = worker.Update();
  *update.add_upsert() = bed->Component(component);
  update.mutable_upsert(0)->mutable_layer_runs(0)->set_count(kTestLayers - 1);
  v1::UpdateComponentsResponse updated;
  Twice(
      bed, "UpdateComponents", &BrokerStub::UpdateComponents, update,
      [](v1::UpdateComponentsRequest* r) { r->mutable_upsert(0)->set_fixed_bytes(1); }, &updated);
}

void RepeatOfDriver(ConformanceBed* bed) {
  TestDriver driver(bed, bed->Name("repeating-driver"));
  if (!bed->report->Code("Attach of a driver", StatusCode::OK, driver.opened())) return;
  v1::DeclarePipelineResponse declared;
  const std::string name = bed->Name("pipeline");
  Twice(
      bed, "DeclarePipeline", &BrokerStub::DeclarePipeline, driver.Pipeline(name),
      [](v1::DeclarePipelineRequest* r) { r->mutable_stages(0)->set_passes(2); }, &declared);
  v1::DeclareRunResponse run;
  Twice(
      bed, "DeclareRun", &BrokerStub::DeclareRun, driver.Run(name),
      [](v1::DeclareRunRequest* r) { r->mutable_starts_in()->set_seconds(1); }, &run);
  v1::FinishRunResponse finished;
  Twice(
      bed, "FinishRun", &BrokerStub::FinishRun, driver.Finish(run.run_id()),
      [](v1::FinishRunRequest* r) { r->set_run_id(r->run_id() + 1); }, &finished);
}

}  // namespace

void CheckRuns(ConformanceBed* bed) {
  bed->report->SetPart("runs");
  const TestDriver driver(bed, bed->Name("driver"));
  const TestDriver other(bed, bed->Name("other-driver"));
  if (!bed->report->Code("Attach of a driver", StatusCode::OK, driver.opened()) ||
      !bed->report->Code("Attach of another", StatusCode::OK, other.opened())) {
    return;
  }
  CheckOrder(bed, driver, other);
  bed->report->SetPart("bounds");
  CheckPipelineBound(bed, driver);
}

void CheckRepeats(ConformanceBed* bed) {
  bed->report->SetPart("repeats");
  RepeatOfWorker(bed);
  RepeatOfDriver(bed);
}

}  // namespace vrambroker::ctl
