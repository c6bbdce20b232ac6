// Uses: order, ends before their begin, waits, deadlocks, what cannot fit; components in use.
#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/ctl/conformance_checks.h"

namespace vrambroker::ctl {
namespace {

using grpc::StatusCode;

// How long a call waits whose deadline is to pass.
constexpr absl::Duration kShortWait = absl::Milliseconds(200);
// "At once", the way to a far broker included.
constexpr absl::Duration kAtOnce = absl::Seconds(2);

void CheckOrder(ConformanceBed* bed, TestWorker* worker, const std::string& component) {
  v1::BeginUseResponse begun;
  v1::EndUseResponse ended;
  bed->report->Code("BeginUse of a component that is not attached", StatusCode::FAILED_PRECONDITION,
                    worker->Begin(worker->Use(bed->Name("nobody")), &begun), "component");
  bed->report->Code("EndUse of a use that never was", StatusCode::FAILED_PRECONDITION,
                    worker->Finish(worker->End(uint64_t{1} << 62), &ended), "use_id");

  v1::BeginUseRequest use = worker->Use(component);
  bed->report->Code("BeginUse", StatusCode::OK, worker->Begin(use, &begun));
  bed->report->Holds("its answer",
                     begun.use_id() != 0 && begun.generation() != 0 && begun.decision_id() != 0 &&
                         begun.resident_layers() >= 1 && begun.resident_layers() <= kTestLayers,
                     "use id, generation, decision, layers within what was asked",
                     begun.ShortDebugString());
  bed->report->Code("EndUse", StatusCode::OK, worker->Finish(worker->End(begun.use_id()), &ended));
  bed->report->Holds(
      "its answer",
      ended.target().component() == component && ended.target().generation() > begun.generation(),
      "a target of a newer generation", ended.ShortDebugString());
  bed->report->Code("EndUse of it again by its use id, under a new request_id",
                    StatusCode::FAILED_PRECONDITION,
                    worker->Finish(worker->End(begun.use_id()), &ended), "use_id");
  bed->report->Code("EndUse of it again by its begin_request_id", StatusCode::OK,
                    worker->Finish(worker->End(use.request_id()), &ended));
  bed->report->Code("BeginUse under its request_id: it has ended", StatusCode::CANCELLED,
                    worker->Begin(use, &begun));

  use = worker->Use(component);
  bed->report->Code("EndUse naming the request_id of a BeginUse that comes later", StatusCode::OK,
                    worker->Finish(worker->End(use.request_id()), &ended));
  bed->report->Code("that BeginUse", StatusCode::CANCELLED, worker->Begin(use, &begun));
}

// The next use of a component queues behind the one that runs.
void CheckWaits(ConformanceBed* bed, TestWorker* worker, const std::string& component) {
  v1::BeginUseResponse running, begun;
  v1::EndUseResponse ended;
  if (!bed->report->Code("BeginUse", StatusCode::OK,
                         worker->Begin(worker->Use(component), &running))) {
    return;
  }
  const v1::BeginUseRequest second = worker->Use(component);
  bed->report->Code("BeginUse while one runs, until its deadline", StatusCode::DEADLINE_EXCEEDED,
                    worker->BeginLater(second, kShortWait).get());
  bed->report->Code("EndUse by its request_id", StatusCode::OK,
                    worker->Finish(worker->End(second.request_id()), &ended));
  bed->report->Code("BeginUse under the same request_id", StatusCode::CANCELLED,
                    worker->Begin(second, &begun));

  v1::BeginUseRequest cycle = worker->Use(component);
  cycle.add_held_use_ids(running.use_id());
  bed->report->Code("BeginUse that would wait for a use that its own run holds",
                    StatusCode::ABORTED, worker->Begin(cycle, &begun), "deadlock");

  v1::UpdateComponentsResponse updated;
  v1::UpdateComponentsRequest remove = worker->Update();
  remove.add_remove(component);
  bed->report->Code("UpdateComponents of a component in use", StatusCode::FAILED_PRECONDITION,
                    bed->Call(&BrokerStub::UpdateComponents, remove, &updated), component);
  bed->report->Code("EndUse", StatusCode::OK,
                    worker->Finish(worker->End(running.use_id()), &ended));
}

// Two calls of one waiting request: the later one takes over the place, whichever that is.
void CheckTakenOver(ConformanceBed* bed, TestWorker* worker, const std::string& component) {
  v1::BeginUseResponse running, begun;
  v1::EndUseResponse ended;
  if (!worker->Begin(worker->Use(component), &running).ok()) return;
  const v1::BeginUseRequest waiting = worker->Use(component);
  std::future<grpc::Status> one = worker->BeginLater(waiting, 2 * bed->timeout);
  std::future<grpc::Status> other = worker->BeginLater(waiting, 2 * bed->timeout);
  const absl::Time end = absl::Now() + bed->timeout;
  const auto done = [](std::future<grpc::Status>* call) {
    return call->wait_for(std::chrono::milliseconds(10)) == std::future_status::ready;
  };
  while (absl::Now() < end && !done(&one) && !done(&other)) continue;
  const bool first_left = done(&one);
  bed->report->Code("BeginUse that waits, repeated: the earlier call", StatusCode::CANCELLED,
                    first_left || done(&other) ? (first_left ? one : other).get()
                                               : grpc::Status(StatusCode::UNKNOWN, "no answer"));
  worker->Finish(worker->End(running.use_id()), &ended);
  std::future<grpc::Status>& rest = one.valid() ? one : other;
  bed->report->Code("the later call, once the use before has ended", StatusCode::OK, rest.get());
  bed->report->Code("BeginUse under that id: the first answer", StatusCode::OK,
                    worker->Begin(waiting, &begun));
  bed->report->Code("EndUse by its request_id", StatusCode::OK,
                    worker->Finish(worker->End(waiting.request_id()), &ended));
}

std::optional<v1::Target> TargetOf(const v1::ReportResidencyResponse& report,
                                   const std::string& component) {
  for (const v1::Target& target : report.targets()) {
    if (target.component() == component) return target;
  }
  return std::nullopt;
}

v1::BeginUseRequest TooLarge(TestWorker* worker, const std::string& component) {
  v1::BeginUseRequest use = worker->Use(component);
  use.set_activation_bytes(int64_t{1} << 45);
  return use;
}

void CheckRefusal(ConformanceBed* bed, TestWorker* worker, const std::string& component,
                  const char* check) {
  v1::BeginUseResponse begun;
  const absl::Time start = absl::Now();
  const grpc::Status status = worker->Begin(TooLarge(worker, component), &begun);
  const absl::Duration took = absl::Now() - start;
  bed->report->Code(check, StatusCode::RESOURCE_EXHAUSTED, status, component);
  bed->report->Holds("it was said at once", took < kAtOnce, absl::FormatDuration(kAtOnce),
                     absl::FormatDuration(took));
  const std::string& said = status.error_message();
  const bool need = absl::StrContains(said, "32.00 TiB") || absl::StrContains(said, "32768.00 GiB");
  bed->report->Holds("the message says what can be had", need && absl::StrContains(said, "reserve"),
                     "need, capacity and holders", said);
}

// What never fits moves nobody: here, a set that is kept. Somebody else may want its bytes at the
// same moment, but hardly every time.
void CheckNobodyMoved(ConformanceBed* bed, TestWorker* worker, const std::string& component,
                      const std::string& kept) {
  bool moved = true;
  std::string got;
  for (int attempt = 0; attempt < 3 && moved; ++attempt) {
    v1::BeginUseResponse begun;
    v1::EndUseResponse ended;
    v1::ReportResidencyResponse before, after;
    worker->Begin(worker->Use(kept), &begun);
    worker->Hold(kept, begun.resident_layers());
    worker->Finish(worker->End(begun.use_id()), &ended);
    worker->Hold(kept, ended.target().layers());
    worker->Report(&before);
    worker->Begin(TooLarge(worker, component), &begun);
    worker->Report(&after);
    const std::optional<v1::Target> was = TargetOf(before, kept);
    const std::optional<v1::Target> is = TargetOf(after, kept);
    moved = !was.has_value() || !is.has_value() || was->layers() != is->layers();
    got = absl::StrCat(was.has_value() ? was->layers() : -1, " layers, then ",
                       is.has_value() ? is->layers() : -1);
    worker->Hold(kept, 0);
  }
  bed->report->Holds("a set that was kept before it", !moved, "its target is what it was", got);
}

void CheckSizes(ConformanceBed* bed, TestWorker* worker, const std::string& component) {
  v1::UpdateComponentsResponse updated;
  v1::UpdateComponentsRequest many = worker->Update();
  for (int i = 0; i < 64; ++i) {
    *many.add_upsert() = bed->Component(bed->Name(absl::StrCat("many-", i)));
  }
  bed->report->Code("UpdateComponents past 64 components of a session",
                    StatusCode::RESOURCE_EXHAUSTED,
                    bed->Call(&BrokerStub::UpdateComponents, many, &updated), "64");

  v1::BeginUseResponse begun;
  v1::EndUseResponse ended;
  if (!worker->Begin(worker->Use(component), &begun).ok()) return;
  worker->Hold(component, 1);
  worker->Finish(worker->End(begun.use_id()), &ended);
  v1::UpdateComponentsRequest resize = worker->Update();
  *resize.add_upsert() = bed->Component(component);
  resize.mutable_upsert(0)->mutable_layer_runs(0)->set_count(kTestLayers - 1);
  bed->report->Code("UpdateComponents of a component of which a layer is held",
                    StatusCode::FAILED_PRECONDITION,
                    bed->Call(&BrokerStub::UpdateComponents, resize, &updated), component);
  worker->Hold(component, 0);
}

}  // namespace

void CheckUses(ConformanceBed* bed) {
  bed->report->SetPart("uses");
  const std::string component = bed->Name("used");
  const std::string kept = bed->Name("kept");
  TestWorker worker(bed, bed->Name("user"), {bed->Component(component), bed->Component(kept)});
  if (!bed->report->Code("Attach", StatusCode::OK, worker.Attach())) return;
  CheckOrder(bed, &worker, component);
  bed->report->SetPart("waits");
  CheckWaits(bed, &worker, component);
  CheckTakenOver(bed, &worker, component);
  bed->report->SetPart("what cannot fit");
  CheckRefusal(bed, &worker, component, "BeginUse with an activation of 32 TiB");
  CheckRefusal(bed, &worker, component, "the same under a new id");
  CheckNobodyMoved(bed, &worker, component, kept);
}

void CheckComponents(ConformanceBed* bed) {
  bed->report->SetPart("components");
  const std::string component = bed->Name("sized");
  TestWorker worker(bed, bed->Name("sizer"), {bed->Component(component)});
  if (!bed->report->Code("Attach", StatusCode::OK, worker.Attach())) return;
  CheckSizes(bed, &worker, component);
}

}  // namespace vrambroker::ctl
