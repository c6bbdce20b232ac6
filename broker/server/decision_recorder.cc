#include "broker/server/decision_recorder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_decision_log.h"

namespace vrambroker::server {
namespace {

template <typename Key, typename Value>
void Bound(std::map<Key, Value>* map) {
  if (map->size() > DecisionRecorder::kMost) map->erase(map->begin());
}

}  // namespace

void DecisionRecorder::Note(const core::Event& event, absl::Time now) {
  now_ = now;
  attaching_.reset();
  if (const auto* attach = std::get_if<core::AttachEvent>(&event)) {
    attaching_ = *attach;
  } else if (const auto* died = std::get_if<core::ProcessDiedEvent>(&event)) {
    Died(died->process);
  } else if (const auto* cancelled = std::get_if<core::CallCancelledEvent>(&event)) {
    calls_.erase(cancelled->call);
  } else if (const auto* begin = std::get_if<core::BeginUseEvent>(&event)) {
    Keep(begin->header, *begin);
  } else if (const auto* end = std::get_if<core::EndUseEvent>(&event)) {
    Keep(end->header, *end);
  } else if (const auto* update = std::get_if<core::UpdateComponentsEvent>(&event)) {
    Keep(update->header, *update);
  } else if (const auto* declare = std::get_if<core::DeclareRunEvent>(&event)) {
    Keep(declare->header, *declare);
  } else if (const auto* finish = std::get_if<core::FinishRunEvent>(&event)) {
    Keep(finish->header, *finish);
  }
}

void DecisionRecorder::Keep(const core::CallHeader& header, Call call) {
  calls_.insert_or_assign(header.call, std::move(call));
  Bound(&calls_);
}

void DecisionRecorder::Note(const core::Effect& effect, absl::Time now) {
  now_ = now;
  if (const auto* directive = std::get_if<core::SendDirective>(&effect)) {
    if (directive->welcome.has_value()) Welcomed(*directive->welcome);
  } else if (const auto* answer = std::get_if<core::Answer>(&effect)) {
    const auto found = calls_.find(answer->call);
    if (found == calls_.end()) return;
    const Call call = std::move(found->second);
    calls_.erase(found);
    std::visit([this](const auto& asked, const auto& said) { Answered(asked, said); }, call,
               answer->result);
  }
}

v1::DecisionLogLine& DecisionRecorder::NewLine() {
  lines_.emplace_back();
  WriteTime(now_, lines_.back().mutable_time());
  return lines_.back();
}

void DecisionRecorder::SayWorker(const std::string& name, const Worker& worker) {
  v1::LoggedWorker* out = NewLine().mutable_worker();
  out->set_worker(name);
  out->set_device_uuid(worker.device);
  for (const core::ComponentSpec& one : worker.components) Write(one, out->add_components());
}

void DecisionRecorder::Welcomed(const core::Welcome& welcome) {
  if (!attaching_.has_value()) return;
  const core::AttachEvent& attach = *attaching_;
  const auto former = workers_.find(attach.worker);
  if (former != workers_.end()) sessions_.erase(former->second.session);
  sessions_[welcome.session] = attach.worker;
  Bound(&sessions_);
  LoseUsesOf(attach.worker, &welcome);
  if (!attach.components.empty()) {
    Worker& worker = workers_[attach.worker];
    worker = {welcome.session, attach.process, attach.device_uuid, attach.components};
    SayWorker(attach.worker, worker);
    Bound(&workers_);
  }
  attaching_.reset();
}

// But for those that go on, under other ids from now on. Null: none goes on.
void DecisionRecorder::LoseUsesOf(const std::string& worker, const core::Welcome* welcome) {
  std::map<std::string, core::UseId> resumed;
  if (welcome != nullptr) {
    for (const auto& [request_id, use] : welcome->resumed_uses) {
      resumed[request_id] = use;
      newest_use_ = std::max(newest_use_, use);
    }
  }
  std::map<core::UseId, Use> going_on;
  for (auto it = uses_.begin(); it != uses_.end();) {
    if (it->second.worker != worker) {
      ++it;
      continue;
    }
    const auto found = resumed.find(it->second.request_id);
    if (found != resumed.end()) {
      going_on.emplace(found->second, it->second);
    } else {
      v1::LoggedUseEnded* ended = NewLine().mutable_use_ended();
      ended->set_use_id(it->second.logged.value());
      ended->set_lost(true);
    }
    it = uses_.erase(it);
  }
  uses_.merge(going_on);
}

void DecisionRecorder::Died(const core::Process& process) {
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (!(it->second.process == process)) {
      ++it;
      continue;
    }
    LoseUsesOf(it->first, nullptr);
    NewLine().mutable_worker_gone()->set_worker(it->first);
    sessions_.erase(it->second.session);
    it = workers_.erase(it);
  }
}

std::string DecisionRecorder::WorkerOf(core::SessionId session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? "" : found->second;
}

void DecisionRecorder::Answered(const core::BeginUseEvent& call, const core::BeginAnswer& answer) {
  if (answer.use <= newest_use_) return;  // the answer to a repeat
  newest_use_ = answer.use;
  const std::string worker = WorkerOf(call.header.session);
  uses_[answer.use] = {worker, call.header.request_id, answer.use};
  Bound(&uses_);
  if (const auto run = runs_.find(call.use.run); run != runs_.end() && !run->second) {
    run->second = true;
    NewLine().mutable_run_started()->set_run_id(call.use.run.value());
  }
  v1::LoggedUseBegan* out = NewLine().mutable_use_began();
  out->set_use_id(answer.use.value());
  out->set_component_id(absl::StrCat(worker, "/", call.use.component));
  out->set_request_id(call.header.request_id);
  out->set_decision_id(answer.decision.value());
  out->set_run_id(call.use.run.value());
  out->set_stage(call.use.stage);
  out->set_passes(call.use.passes);
  out->set_declared_activation_bytes(call.use.activation.count());
  out->set_activation_bytes(answer.activation.count());
  out->set_window_bytes(answer.window.count());
  out->set_granted_layers(answer.resident);
  out->set_waited_seconds(absl::ToDoubleSeconds(answer.waited));
}

void DecisionRecorder::Answered(const core::EndUseEvent& call, const core::EndAnswer& answer) {
  auto use = uses_.find(call.use);
  if (!call.use) {
    const std::string worker = WorkerOf(call.header.session);
    use = std::find_if(uses_.begin(), uses_.end(), [&](const auto& one) {
      return one.second.worker == worker && one.second.request_id == call.begin_request_id;
    });
  }
  if (use == uses_.end()) return;  // a repeat, or a use that is not known here
  v1::LoggedUseEnded* out = NewLine().mutable_use_ended();
  out->set_use_id(use->second.logged.value());
  out->set_kept_layers(answer.target.layers);
  out->set_passes(call.measured.passes);
  out->set_seconds(call.measured.seconds);
  out->set_compute_seconds(call.measured.compute_seconds);
  out->set_stall_seconds(call.measured.stall_seconds);
  out->set_copy_seconds(call.measured.copy_seconds);
  out->set_loaded_bytes(call.measured.bytes_loaded.count());
  out->set_peak_activation_bytes(call.measured.peak_activation.count());
  out->set_warm_up(call.measured.warm_up);
  uses_.erase(use);
}

void DecisionRecorder::Answered(const core::UpdateComponentsEvent& call,
                                const core::UpdateAnswer&) {
  const auto worker = workers_.find(WorkerOf(call.header.session));
  if (worker == workers_.end()) return;
  std::vector<core::ComponentSpec>& all = worker->second.components;
  const auto named = [](const std::string& name) {
    return [&name](const core::ComponentSpec& one) { return one.name == name; };
  };
  for (const std::string& name : call.remove) std::erase_if(all, named(name));
  for (const core::ComponentSpec& spec : call.upsert) {
    std::erase_if(all, named(spec.name));
    all.push_back(spec);
  }
  SayWorker(worker->first, worker->second);
}

void DecisionRecorder::Answered(const core::DeclareRunEvent& call,
                                const core::DeclareRunAnswer& answer) {
  if (answer.run <= newest_run_) return;  // the answer to a repeat
  newest_run_ = answer.run;
  runs_[answer.run] = false;
  Bound(&runs_);
  v1::LoggedRunDeclared* out = NewLine().mutable_run_declared();
  out->set_run_id(answer.run.value());
  out->set_driver(WorkerOf(call.header.session));
  out->set_pipeline(call.pipeline);
  out->set_starts_in_seconds(absl::ToDoubleSeconds(call.starts_in));
}

void DecisionRecorder::Answered(const core::FinishRunEvent& call, const core::EmptyAnswer&) {
  if (runs_.erase(call.run) > 0) NewLine().mutable_run_ended()->set_run_id(call.run.value());
}

}  // namespace vrambroker::server
