// Sessions: numbers, re-attach, stale sessions, snapshots.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "broker/ctl/conformance_checks.h"

namespace vrambroker::ctl {
namespace {

using grpc::StatusCode;

// Past it no bound of ended uses is looked for: those that the sessions keep are smaller.
constexpr int kMostMarks = 8192;

void CheckWelcome(ConformanceBed* bed, const TestWorker& worker) {
  const v1::Directive& first = worker.first();
  const v1::Welcome& welcome = first.welcome();
  bed->report->Holds(
      "the first directive of a stream",
      welcome.session_id() > 0 && welcome.broker_epoch() > 0 && welcome.version() == 1,
      "session id, broker epoch, version 1",
      absl::StrCat("session ", welcome.session_id(), ", epoch ", welcome.broker_epoch(),
                   ", version ", welcome.version()));
  bed->report->Holds("the welcome of a worker with one component", first.targets_size() == 1,
                     "a target for it", absl::StrCat(first.targets_size(), " targets"));
}

// A session that its process has opened anew.
void CheckAttachAgain(ConformanceBed* bed, TestWorker* worker) {
  const v1::AttachRequest first_request = worker->request();
  const uint64_t stale = worker->session();
  v1::ReportResidencyRequest report;
  report.set_session_id(stale);
  v1::ReportResidencyResponse reported;
  const grpc::Status again = worker->Attach();
  bed->report->Code("Attach again with a higher number", StatusCode::OK, again);
  bed->report->Code("the stream before it", StatusCode::ABORTED, worker->former_stream().End());
  *report.mutable_snapshot() = worker->Snapshot();
  bed->report->Code("ReportResidency in the session before it", StatusCode::ABORTED,
                    bed->Call(&BrokerStub::ReportResidency, report, &reported), "session_id");
  v1::BeginUseRequest use = worker->Use(worker->request().components(0).name());
  use.set_session_id(stale);
  v1::BeginUseResponse begun;
  bed->report->Code("BeginUse in the session before it", StatusCode::ABORTED,
                    bed->Call(&BrokerStub::BeginUse, use, &begun), "session_id");
  {
    SessionStream older(*bed, first_request);
    bed->report->Code("Attach with an older number", StatusCode::ABORTED, older.opened(),
                      "attach_number");
    SessionStream same(*bed, worker->request());
    bed->report->Code("Attach with the same number", StatusCode::ABORTED, same.opened(),
                      "attach_number");
  }
  bed->report->Code("ReportResidency in the newest session then", StatusCode::OK,
                    worker->Report(&reported));
  report.set_session_id(uint64_t{1} << 62);
  bed->report->Code("ReportResidency in a session that never was", StatusCode::ABORTED,
                    bed->Call(&BrokerStub::ReportResidency, report, &reported), "session_id");
}

// A use that goes on across two sessions has a new id there.
void CheckResumedUse(ConformanceBed* bed, TestWorker* worker, const std::string& component) {
  const v1::BeginUseRequest use = worker->Use(component);
  v1::BeginUseResponse begun;
  v1::EndUseResponse ended;
  bed->report->Code("BeginUse", StatusCode::OK, worker->Begin(use, &begun));
  worker->Hold(component, begun.resident_layers());
  v1::RunningUse running;
  running.set_request_id(use.request_id());
  running.set_component(component);
  running.set_granted_layers(begun.resident_layers());
  running.set_window_bytes(begun.window_bytes());
  running.set_activation_bytes(begun.activation_bytes());
  running.set_generation(begun.generation());
  bed->report->Code("Attach again while it runs", StatusCode::OK, worker->Attach({running}));
  const v1::Welcome& welcome = worker->first().welcome();
  const uint64_t id =
      welcome.resumed_uses_size() == 1 ? welcome.resumed_uses(0).use_id() : uint64_t{0};
  bed->report->Holds(
      "its entry in the welcome",
      id != 0 && id != begun.use_id() && welcome.resumed_uses(0).request_id() == use.request_id(),
      "one, with a new use id", absl::StrCat(welcome.resumed_uses_size(), " entries, use id ", id));
  worker->Hold(component, 0);
  bed->report->Code("EndUse by its id of before", StatusCode::FAILED_PRECONDITION,
                    worker->Finish(worker->End(begun.use_id()), &ended), "use_id");
  bed->report->Code("EndUse by its new id", StatusCode::OK,
                    worker->Finish(worker->End(id), &ended));
}

// Of an older snapshot only that part is dropped.
void CheckSnapshots(ConformanceBed* bed, TestWorker* worker, const std::string& component) {
  v1::BeginUseResponse begun;
  v1::EndUseResponse ended;
  v1::ReportResidencyResponse reported;
  bed->report->Code("BeginUse", StatusCode::OK, worker->Begin(worker->Use(component), &begun));
  v1::EndUseRequest late = worker->End(begun.use_id());
  late.mutable_snapshot()->mutable_components(0)->set_held_layers(kTestLayers + 1);
  worker->Report(&reported);
  bed->report->Code("EndUse with a snapshot older than one that came, itself wrong", StatusCode::OK,
                    worker->Finish(late, &ended));
  bed->report->Code("BeginUse after it: the use has ended", StatusCode::OK,
                    worker->Begin(worker->Use(component), &begun));
  bed->report->Code("EndUse", StatusCode::OK, worker->Finish(worker->End(begun.use_id()), &ended));

  const auto wrong = [&](const char* check, const std::string& names, auto change) {
    v1::ReportResidencyRequest request;
    request.set_session_id(worker->session());
    *request.mutable_snapshot() = worker->Snapshot();
    change(request.mutable_snapshot());
    bed->report->Code(check, StatusCode::INVALID_ARGUMENT,
                      bed->Call(&BrokerStub::ReportResidency, request, &reported), names);
  };
  wrong("a snapshot with more layers than there are", "held_layers",
        [](v1::Snapshot* s) { s->mutable_components(0)->set_held_layers(kTestLayers + 1); });
  wrong("a snapshot with a generation that was never sent", "completed_generation",
        [](v1::Snapshot* s) {
          s->mutable_components(0)->set_completed_generation(std::numeric_limits<uint64_t>::max());
        });
  wrong("a snapshot that leaves a component out", component,
        [](v1::Snapshot* s) { s->clear_components(); });
}

// Ends without a begin cost the session that sends them, past a bound, and nobody else.
void CheckMarks(ConformanceBed* bed) {
  const std::string component = bed->Name("marks");
  TestWorker worker(bed, bed->Name("marking"), {bed->Component(component)});
  if (!bed->report->Code("Attach", StatusCode::OK, worker.Attach())) return;
  v1::EndUseRequest end = worker.End(bed->NewId());
  end.clear_snapshot();
  grpc::Status status;
  for (int i = 0; i < kMostMarks && status.ok(); ++i) {
    v1::EndUseResponse ended;
    end.set_request_id(bed->NewId());
    end.set_begin_request_id(bed->NewId());
    status = bed->Call(&BrokerStub::EndUse, end, &ended);
  }
  bed->report->Code("EndUse of ever more uses that never began", StatusCode::ABORTED, status);
  if (!status.ok()) {
    bed->report->Code("its session's stream", StatusCode::RESOURCE_EXHAUSTED,
                      worker.stream().End());
  }
  bed->report->Code("Attach again then", StatusCode::OK, worker.Attach());
}

void CheckRefusedComponent(ConformanceBed* bed) {
  v1::Component component = bed->Component(bed->Name("large"));
  component.set_fixed_bytes(int64_t{1} << 45);
  TestWorker worker(bed, bed->Name("large-worker"), {component});
  if (!bed->report->Code("Attach with fixed bytes of 32 TiB", StatusCode::OK, worker.Attach())) {
    return;
  }
  const v1::Welcome& welcome = worker.first().welcome();
  const bool refused = welcome.refused_components_size() == 1 &&
                       welcome.refused_components(0).missing_bytes() > 0 &&
                       !welcome.refused_components(0).message().empty();
  bed->report->Holds("the component in the welcome", refused, "refused, with the bytes missing",
                     absl::StrCat(welcome.refused_components_size(), " refused components"));
  v1::BeginUseResponse begun;
  bed->report->Code("BeginUse of it", StatusCode::FAILED_PRECONDITION,
                    worker.Begin(worker.Use(component.name()), &begun), "component");
}

}  // namespace

void CheckSessions(ConformanceBed* bed) {
  bed->report->SetPart("sessions");
  const std::string component = bed->Name("session");
  {
    TestWorker worker(bed, bed->Name("worker"), {bed->Component(component)});
    if (!bed->report->Code("Attach", StatusCode::OK, worker.Attach())) return;
    CheckWelcome(bed, worker);
    CheckAttachAgain(bed, &worker);
    CheckResumedUse(bed, &worker, component);
    bed->report->SetPart("snapshots");
    CheckSnapshots(bed, &worker, component);
  }
  bed->report->SetPart("fixed bytes");
  CheckRefusedComponent(bed);
  bed->report->SetPart("bounds");
  CheckMarks(bed);
}

}  // namespace vrambroker::ctl
