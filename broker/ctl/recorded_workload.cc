#include "broker/ctl/recorded_workload.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "broker/ctl/logged_line_checks.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/render.h"

namespace vrambroker::ctl {
namespace {

constexpr size_t kMeasuredPasses = 101;
constexpr size_t kIdlePeriods = 4096;
constexpr size_t kMostStageKinds = 65536;
constexpr int64_t kMostBytes = int64_t{1} << 46;

double Median(std::vector<double> values, double otherwise) {
  if (values.empty()) return otherwise;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double Finite(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

template <typename List>
std::string CountedSize(const List& list, const char* one, const char* more) {
  return Counted(static_cast<int64_t>(list.size()), one, more);
}

int64_t SizeOf(const v1::Component& spec) {
  double bytes = 0;
  for (const v1::LayerRun& run : spec.layer_runs()) {
    bytes += static_cast<double>(run.count()) * static_cast<double>(run.layer_bytes());
  }
  return static_cast<int64_t>(std::clamp(bytes, 0.0, 1e18));
}

// A permanent set is on the card throughout, as fixed bytes are.
sim::Component ToSimulated(const v1::Component& spec, std::string name, double pass_seconds) {
  sim::Component c;
  c.name = std::move(name);
  c.fixed_bytes = spec.fixed_bytes();
  c.pass_seconds = pass_seconds;
  if (spec.lifetime() == v1::LIFETIME_PERMANENT) {
    if (c.fixed_bytes >= 0 && c.fixed_bytes <= kMostBytes) c.fixed_bytes += SizeOf(spec);
    c.layer_groups = {{1, 1}};
    c.window_layers = 1;
    return c;
  }
  int64_t largest = 1;
  for (const v1::LayerRun& run : spec.layer_runs()) {
    c.layer_groups.emplace_back(run.count(), run.layer_bytes());
    largest = std::max(largest, run.layer_bytes());
  }
  const int64_t window = std::max<int64_t>(0, spec.window_bytes());
  c.window_layers =
      static_cast<int>(std::clamp<int64_t>(window / largest + (window % largest != 0), 1, 4096));
  return c;
}

}  // namespace

absl::Status WorkloadReader::Take(const v1::DecisionLogLine& line) {
  if (line.has_time()) now_ = std::max(now_, SecondsOf(line));
  if (line.has_header()) return TakeHeader(line.header());
  if (line.has_worker()) return TakeWorker(line.worker());
  if (line.has_use_began()) return TakeBegan(line.use_began());
  if (line.has_use_ended()) TakeEnded(line.use_ended());
  if (line.has_run_declared()) {
    declared_any_ = true;
    for (const auto& [id, run] : open_runs_) declared_ahead_ |= runs_[run].asked < 0;
    size_t run = 0;
    const double starts_in = Finite(line.run_declared().starts_in_seconds());
    if (absl::Status status = NewRun(now_ + starts_in, &run); !status.ok()) return status;
    open_runs_[line.run_declared().run_id()] = run;
  }
  if (line.has_run_ended()) {
    const auto found = open_runs_.find(line.run_ended().run_id());
    if (found == open_runs_.end()) return absl::OkStatus();
    runs_[found->second].ended = std::max(runs_[found->second].ended, now_);
    open_runs_.erase(found);
  }
  return absl::OkStatus();
}

absl::Status WorkloadReader::TakeHeader(const v1::DecisionLogHeader& header) {
  if (header.broker_epoch() == epoch_ && !devices_.empty()) return absl::OkStatus();
  epoch_ = header.broker_epoch();
  load_ahead_ = header.load_ahead();
  devices_.assign(header.devices().begin(), header.devices().end());
  open_runs_.clear();
  running_.clear();
  if (idle_since_ < 0) idle_since_ = now_;
  return absl::OkStatus();
}

absl::Status WorkloadReader::TakeWorker(const v1::LoggedWorker& worker) {
  const bool elsewhere =
      !device_.empty() && !worker.device_uuid().empty() && worker.device_uuid() != device_;
  for (const v1::Component& spec : worker.components()) {
    if (elsewhere && elsewhere_.size() < 16 * kMostComponents) {
      elsewhere_.insert(absl::StrCat(worker.worker(), "/", spec.name()));
    }
  }
  if (elsewhere) return absl::OkStatus();
  for (const v1::Component& spec : worker.components()) {
    const std::string id = absl::StrCat(worker.worker(), "/", spec.name());
    const auto [at, added] = index_.emplace(id, static_cast<int>(components_.size()));
    if (added) components_.push_back({id, spec, {}, false});
    components_[static_cast<size_t>(at->second)].spec = spec;
    if (components_.size() > 16 * kMostComponents) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker: the log names more than ", 16 * kMostComponents, " components"));
    }
  }
  return absl::OkStatus();
}

absl::Status WorkloadReader::NewRun(double arrived, size_t* index) {
  if (runs_.size() >= kMostRuns) {
    return absl::InvalidArgumentError(absl::StrCat(
        "more than ", kMostRuns, " runs, which a simulation takes at most; give fewer files"));
  }
  *index = runs_.size();
  runs_.emplace_back();
  runs_.back().arrived = arrived;
  return absl::OkStatus();
}

int WorkloadReader::StageOf(const StageKey& key, int64_t activation) {
  const auto [at, added] = stage_index_.emplace(key, static_cast<int>(stages_.size()));
  if (added) stages_.emplace_back(key, 0);
  int64_t& most = stages_[static_cast<size_t>(at->second)].second;
  most = std::max(most, activation);
  return at->second;
}

absl::Status WorkloadReader::TakeBegan(const v1::LoggedUseBegan& use) {
  const auto component = index_.find(use.component_id());
  if (component == index_.end()) {
    ++(elsewhere_.contains(use.component_id()) ? result_.uses_elsewhere : result_.unknown_uses);
    return absl::OkStatus();
  }
  const SeenIds::Met met = seen_uses_.Take(epoch_, use.use_id());
  if (met == SeenIds::Met::kAgain) {
    ++result_.repeated_uses;
    return absl::OkStatus();
  }
  if (met == SeenIds::Met::kTooMany) {
    return absl::InvalidArgumentError(
        absl::StrCat("use_began.use_id: the ids have more than ", SeenIds::kMostRanges, " gaps"));
  }
  const double asked = now_ - std::min(Finite(use.waited_seconds()), now_);
  size_t run = 0;
  const auto found = use.run_id() == 0 ? open_runs_.end() : open_runs_.find(use.run_id());
  if (found != open_runs_.end()) {
    run = found->second;
  } else {
    if (absl::Status status = NewRun(asked, &run); !status.ok()) return status;
    if (use.run_id() != 0) open_runs_[use.run_id()] = run;
  }
  Run& r = runs_[run];
  if (r.asked < 0) r.asked = asked;
  r.arrived = std::min(r.arrived, asked);
  if (r.stages.size() >= kMostStages || stages_.size() >= kMostStageKinds) {
    return absl::InvalidArgumentError(
        absl::StrCat("use_began: run ", use.run_id(), " has more than ", kMostStages,
                     " uses, or the log more than ", kMostStageKinds, " kinds of them"));
  }
  const int passes = std::max(1, use.passes());
  r.stages.push_back(StageOf({component->second, passes, use.declared_activation_bytes()},
                             use.activation_bytes()));
  components_[static_cast<size_t>(component->second)].used = true;
  ++result_.uses;
  result_.stall_seconds += IdleBetween(asked, now_);
  running_[use.use_id()] = {run, component->second, passes};
  if (idle_since_ >= 0) {
    idle_.emplace_back(idle_since_, now_);
    if (idle_.size() > kIdlePeriods) idle_.pop_front();
    idle_since_ = -1;
  }
  return absl::OkStatus();
}

void WorkloadReader::TakeEnded(const v1::LoggedUseEnded& ended) {
  const auto found = running_.find(ended.use_id());
  if (found == running_.end()) return;  // it began before the log
  const Use use = found->second;
  running_.erase(found);
  if (running_.empty()) idle_since_ = now_;
  runs_[use.run].ended = std::max(runs_[use.run].ended, now_);
  if (ended.lost()) return;
  result_.stall_seconds += Finite(ended.stall_seconds());
  result_.bytes_to_device += std::clamp<int64_t>(ended.loaded_bytes(), 0, kMostBytes);
  copied_bytes_ += static_cast<double>(std::max<int64_t>(0, ended.loaded_bytes()));
  copy_seconds_ += Finite(ended.copy_seconds());
  if (ended.warm_up() || ended.passes() <= 0 || Finite(ended.compute_seconds()) == 0) return;
  std::vector<double>& measured = components_[static_cast<size_t>(use.component)].pass_seconds;
  if (measured.size() >= kMeasuredPasses) measured.erase(measured.begin());
  measured.push_back(ended.compute_seconds() / ended.passes());
}

// Seconds between these in which nothing ran; `to` is now.
double WorkloadReader::IdleBetween(double from, double to) const {
  double seconds = idle_since_ >= 0 ? std::max(0.0, to - std::max(from, idle_since_)) : 0;
  for (auto it = idle_.rbegin(); it != idle_.rend() && it->second > from; ++it) {
    seconds += it->second - std::max(from, it->first);
  }
  return seconds;
}

// The used ones, by bare names where these are unique. `index`: of each of the log's.
std::vector<sim::Component> WorkloadReader::Components(std::vector<int>* index) const {
  std::map<std::string, int> bare;
  for (const Component& c : components_) bare[c.spec.name()] += c.used;
  index->assign(components_.size(), -1);
  std::vector<sim::Component> all;
  for (size_t i = 0; i < components_.size(); ++i) {
    const Component& c = components_[i];
    if (!c.used) continue;
    std::string name =
        bare[c.spec.name()] == 1 ? c.spec.name() : absl::StrReplaceAll(c.id, {{"/", "."}});
    if (name.size() > sim::kMaxNameBytes) name = absl::StrCat("component-", i);
    (*index)[i] = static_cast<int>(all.size());
    all.push_back(ToSimulated(c.spec, std::move(name),
                              Median(c.pass_seconds, Finite(c.spec.pass_seconds()))));
  }
  return all;
}

void WorkloadReader::AddRuns(const std::vector<int>& index, std::vector<double>* seconds,
                             RecordedWorkload* out) const {
  std::vector<const Run*> ran;
  for (const Run& run : runs_) {
    if (!run.stages.empty()) ran.push_back(&run);
  }
  std::stable_sort(ran.begin(), ran.end(), [](const Run* a, const Run* b) {
    return std::pair(a->arrived, a->asked) < std::pair(b->arrived, b->asked);
  });
  std::map<std::vector<int>, int> pipelines;
  for (const Run* run : ran) {
    const auto [at, added] = pipelines.emplace(run->stages, static_cast<int>(pipelines.size()));
    if (added) {
      sim::Pipeline pipeline;
      pipeline.name = absl::StrCat("order-", pipelines.size());
      for (const int stage : run->stages) {
        const auto& [key, activation] = stages_[static_cast<size_t>(stage)];
        pipeline.stages.push_back(
            {index[static_cast<size_t>(key.component)], key.passes, activation, "", 0});
      }
      out->workload.pipelines.push_back(std::move(pipeline));
    }
    out->workload.runs.push_back({at->second, run->arrived - ran.front()->arrived});
    seconds->push_back(std::max(run->ended, run->asked) - run->arrived);
  }
}

// Runs that were under way at once.
int WorkloadReader::MostAtOnce() const {
  std::vector<std::pair<double, int>> changes;
  for (const Run& run : runs_) {
    if (run.stages.empty()) continue;
    changes.emplace_back(run.asked, 1);
    changes.emplace_back(std::max(run.ended, run.asked), -1);
  }
  std::sort(changes.begin(), changes.end());  // an end before a begin at the same time
  int now = 0, most = 1;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return std::min(most, sim::kMaxConcurrentRuns);
}

absl::StatusOr<RecordedWorkload> WorkloadReader::Finish() {
  const auto named = [](std::string* out, const v1::LoggedDevice& d) { out->append(d.uuid()); };
  const auto device =
      device_.empty() && devices_.size() == 1
          ? devices_.begin()
          : std::find_if(devices_.begin(), devices_.end(),
                         [&](const v1::LoggedDevice& d) { return d.uuid() == device_; });
  if (device == devices_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: ", device_.empty() ? "none" : sim::Quoted(device_),
                     " given, the log has ", absl::StrJoin(devices_, ", ", named)));
  }
  RecordedWorkload out = result_;
  out.device = device->uuid();
  out.load_ahead = load_ahead_;
  out.declared = declared_ahead_ ? sim::Declared::kAll
                 : declared_any_ ? sim::Declared::kCurrent
                                 : sim::Declared::kNone;
  std::vector<int> index;
  std::vector<double> seconds;
  out.workload.name = "recorded";
  out.workload.device = {device->capacity_bytes(), device->reserve_bytes(),
                         copy_seconds_ > 0 && copied_bytes_ > 0 ? copied_bytes_ / copy_seconds_
                                                                : device->link_bytes_per_second()};
  out.workload.components = Components(&index);
  out.workload.max_concurrent_runs = MostAtOnce();
  AddRuns(index, &seconds, &out);
  if (out.uses == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the log tells of no use on ", out.device, " that could be simulated"));
  }
  out.request_p50_seconds = sim::Percentile(seconds, 50);
  out.request_p95_seconds = sim::Percentile(seconds, 95);
  if (absl::Status status = sim::Validate(out.workload); !status.ok()) return status;
  return out;
}

std::string RecordedText(const RecordedWorkload& r) {
  std::string out = absl::StrFormat(
      "recorded on %s, %s: %s in %s of stages, %d at once, %s of %s;\n"
      "%.3f s lost to loading, requests %.3f s (p50), %.3f s (p95), %s moved during uses at %s/s\n",
      PrintableAscii(r.device), RenderBytes(r.workload.device.capacity_bytes),
      CountedSize(r.workload.runs, "run", "runs"),
      CountedSize(r.workload.pipelines, "order", "orders"), r.workload.max_concurrent_runs,
      Counted(r.uses, "use", "uses"), CountedSize(r.workload.components, "component", "components"),
      r.stall_seconds, r.request_p50_seconds, r.request_p95_seconds, RenderBytes(r.bytes_to_device),
      RenderBytes(static_cast<int64_t>(std::min(r.workload.device.link_rate, 1e18))));
  if (r.uses_elsewhere > 0) {
    absl::StrAppend(&out, "uses on other devices, which are left out: ", r.uses_elsewhere, "\n");
  }
  if (r.unknown_uses > 0) {
    absl::StrAppend(&out, "uses of components that the log does not name, which are left out: ",
                    r.unknown_uses, "\n");
  }
  if (r.repeated_uses > 0) {
    absl::StrAppend(
        &out, "uses that stand in the files once more, which count once: ", r.repeated_uses, "\n");
  }
  return out;
}

std::string RecordedJson(const RecordedWorkload& r) {
  const nlohmann::ordered_json json = {{"device", r.device},
                                       {"capacity_bytes", r.workload.device.capacity_bytes},
                                       {"link_bytes_per_second", r.workload.device.link_rate},
                                       {"runs", r.workload.runs.size()},
                                       {"orders", r.workload.pipelines.size()},
                                       {"at_once", r.workload.max_concurrent_runs},
                                       {"uses", r.uses},
                                       {"uses_elsewhere", r.uses_elsewhere},
                                       {"unknown_uses", r.unknown_uses},
                                       {"repeated_uses", r.repeated_uses},
                                       {"components", r.workload.components.size()},
                                       {"stall_seconds", r.stall_seconds},
                                       {"request_p50_seconds", r.request_p50_seconds},
                                       {"request_p95_seconds", r.request_p95_seconds},
                                       {"bytes_to_device", r.bytes_to_device}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace vrambroker::ctl
