#include "tests/sim/driver_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_calls.h"

namespace vrambroker::simulation {
namespace {

client::SessionOptions DriverOptions(const std::string& name, core::Process process) {
  client::SessionOptions options;
  options.worker = name;
  options.pid = process.pid;
  options.start_time_ticks = process.start_time;
  return options;
}

}  // namespace

DriverProcess::DriverProcess(Surroundings* world, const std::string& name, core::Process process,
                             AskStage ask)
    : Peer(world, DriverOptions(name, process)), ask_(std::move(ask)) {
  pipeline_.set_pipeline("p");
  const int stages = static_cast<int>(world_.random.Between(1, 4));
  for (int i = 0; i < stages; ++i) {
    const auto& workers = world_.scenario.workers;
    const WorkerPlan& worker =
        workers[static_cast<size_t>(world_.random.Below(static_cast<int>(workers.size())))];
    const ComponentPlan& c = worker.components[static_cast<size_t>(
        world_.random.Below(static_cast<int>(worker.components.size())))];
    v1::StageSpec* stage = pipeline_.add_stages();
    stage->set_component(absl::StrCat(worker.name, "/", c.name));
    stage->set_passes(static_cast<int>(world_.random.Between(1, 30)));
    stage->set_activation_bytes(c.layers[0] * world_.random.Between(0, 3));
  }
}

template <typename Request, typename Read>
void DriverProcess::Call(Request request, Read read,
                         std::function<void(const core::Answer&)> reply) {
  if (!session().attached()) return;
  request.set_session_id(session().session_id());
  request.set_request_id(absl::StrCat("call-", ++last_request_));
  world_.network.Call(
      this, session().attach_number(), request.request_id(),
      [request, read](core::CallId call) -> absl::StatusOr<core::Event> {
        auto event = read(request);
        if (!event.ok()) return event.status();
        event->header.call = call;
        return core::Event(*std::move(event));
      },
      std::move(reply));
}

// Its pipelines may have ended with an earlier session.
void DriverProcess::Do(const client::SessionChanged& e) {
  declared_ = false;
  if (e.attached) DeclarePipeline();
}

void DriverProcess::DeclarePipeline() {
  Call(pipeline_, server::ReadDeclarePipeline, [this](const core::Answer& answer) {
    declared_ = std::holds_alternative<core::EmptyAnswer>(answer.result);
  });
}

void DriverProcess::DeclareRun() {
  v1::DeclareRunRequest request;
  request.set_pipeline("p");
  Call(request, server::ReadDeclareRun, [this](const core::Answer& answer) {
    const auto* run = std::get_if<core::DeclareRunAnswer>(&answer.result);
    if (run != nullptr) waiting_.push_back(run->run.value());
  });
}

void DriverProcess::FinishRun(uint64_t run) {
  v1::FinishRunRequest request;
  request.set_run_id(run);
  Call(request, server::ReadFinishRun, [](const core::Answer&) {});
}

void DriverProcess::Work() {
  if (!declared_) return DeclarePipeline();
  if (world_.busy && waiting_.size() < 10 && world_.random.Chance(0.6)) return DeclareRun();
  if (waiting_.empty() || started_.size() >= 2) return;
  const uint64_t run = waiting_.front();
  waiting_.erase(waiting_.begin());
  if (!world_.busy || world_.random.Chance(0.1)) return FinishRun(run);  // given up
  NextStage(run, 0);
}

void DriverProcess::NextStage(uint64_t run, int stage) {
  if (!alive()) return;
  if (stage >= pipeline_.stages_size()) {
    started_.erase(run);
    return FinishRun(run);
  }
  started_[run] = stage;
  const v1::StageSpec& spec = pipeline_.stages(stage);
  Wanted wanted;
  wanted.run = run;
  wanted.stage = stage;
  wanted.passes = spec.passes();
  wanted.activation = spec.activation_bytes();
  wanted.over = [this, run, stage] { NextStage(run, stage + 1); };
  ask_(spec.component(), wanted);
}

}  // namespace vrambroker::simulation
