#include "broker/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "broker/sim/rule_decider.h"

namespace vrambroker::sim {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
// Events in a row that take no time, after which something goes round in circles.
constexpr int kMostAtOnce = 1'000'000;

std::unique_ptr<Decider> MakeDecider(const Workload& workload, const Options& options, Card* card) {
  if (options.rule != Rule::kBroker) {
    return std::make_unique<RuleDecider>(options.rule, options.clock, card);
  }
  auto broker =
      std::make_unique<BrokerDecider>(workload, options.declared, options.load_ahead,
                                      options.horizon, options.clock, options.progress, card);
  broker->set_observe(options.observe);
  return broker;
}

class Simulation {
 public:
  Simulation(const Workload& workload, const Options& options)
      : workload_(workload),
        options_(options),
        card_(workload),
        decider_(MakeDecider(workload, options, &card_)),
        order_(workload.runs.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
      return RunOf(a).arrival_seconds < RunOf(b).arrival_seconds;
    });
    result_.requests.resize(workload.runs.size());
  }

  absl::StatusOr<Result> Play() {
    if (absl::Status status = decider_->Start(); !status.ok()) return status;
    int at_once = 0;
    while (true) {
      StartRuns();
      TakeVerdicts();
      if (absl::Status status = Check(); !status.ok()) return status;
      Sampled();
      if (ended_ == workload_.runs.size()) break;
      const double wait = NextEvent();
      if (wait == kForever) return Stuck("nothing more happens");
      at_once = wait > 0 ? 0 : at_once + 1;
      if (at_once > kMostAtOnce) return Stuck("events go round in circles");
      PassTime(wait);
    }
    Sum();
    return std::move(result_);
  }

 private:
  const Run& RunOf(int run) const { return workload_.runs[static_cast<size_t>(run)]; }
  const Stage& StageOf(int run, int stage) const {
    const Pipeline& p = workload_.pipelines[static_cast<size_t>(RunOf(run).pipeline)];
    return p.stages[static_cast<size_t>(stage)];
  }
  int StagesOf(int run) const {
    const Pipeline& p = workload_.pipelines[static_cast<size_t>(RunOf(run).pipeline)];
    return static_cast<int>(p.stages.size());
  }

  bool LaneFree() const {
    return static_cast<int>(started_ - ended_) < workload_.max_concurrent_runs;
  }

  // In order of arrival, as lanes are free.
  void StartRuns() {
    while (started_ < order_.size() && LaneFree()) {
      const int run = order_[started_];
      if (RunOf(run).arrival_seconds > card_.now()) return;
      ++started_;
      RequestRecord& record = result_.requests[static_cast<size_t>(run)];
      record.run = run;
      record.arrived = RunOf(run).arrival_seconds;
      decider_->RunBegins(run);
      Ask(run, 0);
      TakeVerdicts();
    }
  }

  void Ask(int run, int stage) {
    const Stage& s = StageOf(run, stage);
    Request request{static_cast<int>(asked_++), run,          stage,  s.component, s.passes,
                    s.activation_bytes,         s.Declared(), s.shape};
    open_.push_back({request, card_.now()});
    decider_->Ask(request);
  }

  struct Open {
    Request request;
    double asked = 0;
  };
  std::vector<Open>::iterator Find(int request) {
    return std::find_if(open_.begin(), open_.end(),
                        [&](const Open& open) { return open.request.id == request; });
  }

  void TakeVerdicts() {
    for (std::vector<Verdict> taken = decider_->Take(); !taken.empty(); taken = decider_->Take()) {
      for (const Verdict& verdict : taken) {
        if (verdict.granted) continue;
        const auto it = Find(verdict.request);
        const Request request = it->request;
        open_.erase(it);
        result_.fits = false;
        RequestRecord& record = result_.requests[static_cast<size_t>(request.run)];
        record.refusal = verdict.refusal;
        record.refused_stage = request.stage;
        EndRun(request.run);
      }
    }
  }

  void EndRun(int run) {
    result_.requests[static_cast<size_t>(run)].ended = card_.now();
    ++ended_;
    decider_->RunEnds(run);
    if (options_.progress) {
      options_.progress("requests done", static_cast<int64_t>(ended_),
                        static_cast<int64_t>(workload_.runs.size()));
    }
  }

  double NextEvent() {
    double wait = std::min(card_.NextChange(), decider_->NextWake() - card_.now());
    if (started_ < order_.size() && LaneFree()) {
      wait = std::min(wait, RunOf(order_[started_]).arrival_seconds - card_.now());
    }
    return std::max(0.0, wait);
  }

  void PassTime(double wait) {
    const double wake = decider_->NextWake();
    const bool woken = wake - card_.now() <= wait;
    if (!card_.InUse()) CountWaiting(wait);
    const Card::Done done = card_.Advance(wait);
    for (int component : done.loaded) decider_->Loaded(component);
    for (int component : done.uses) EndUse(component);
    if (woken && decider_->NextWake() == wake) decider_->Wake();
  }

  // Where nothing runs, what waits is held up by copies alone: that is lost to loading as well.
  void CountWaiting(double seconds) {
    for (const Open& open : open_) {
      result_.stall_seconds += seconds;
      result_.requests[static_cast<size_t>(open.request.run)].stall_seconds += seconds;
    }
  }

  void EndUse(int component) {
    const ActiveUse use = *card_.place(component).use;
    const auto it = Find(use.request);
    const Open open = *it;
    open_.erase(it);
    Outcome outcome;
    outcome.seconds = card_.now() - use.began;
    outcome.compute_seconds = use.passes * card_.pass_seconds(component);
    outcome.stall_seconds = std::max(0.0, outcome.seconds - outcome.compute_seconds);
    outcome.bytes_loaded = use.BytesLoaded();
    streamed_ += outcome.bytes_loaded;
    result_.stall_seconds += outcome.stall_seconds;
    const int run = open.request.run;
    result_.requests[static_cast<size_t>(run)].stall_seconds += outcome.stall_seconds;
    card_.End(component);
    decider_->Ended(open.request, outcome);
    const Place& after = card_.place(component);
    const int kept = after.use.has_value() ? after.use->held_before : after.held;
    if (options_.record) {
      result_.uses.push_back({run, open.request.stage, component, open.asked, use.began,
                              card_.now(), use.held_before, use.granted, kept,
                              outcome.stall_seconds});
    }
    if (open.request.stage + 1 < StagesOf(run)) {
      Ask(run, open.request.stage + 1);
    } else {
      EndRun(run);
    }
  }

  absl::Status Check() {
    const int64_t occupied = card_.Occupied();
    result_.peak_bytes = std::max(result_.peak_bytes, occupied + card_.fixed());
    if (occupied > 0 && occupied > card_.room()) {
      return absl::InternalError(
          absl::StrFormat("over-granted at %.6f s: %d bytes of layers and needs where %d are",
                          card_.now(), occupied, card_.room()));
    }
    if (options_.check_core) decider_->CheckAll();
    return decider_->fault();
  }

  absl::Status Stuck(const char* how) const {
    return absl::InternalError(
        absl::StrFormat("%s at %.6f s: %d of %d requests have ended, %d uses run or wait", how,
                        card_.now(), ended_, workload_.runs.size(), open_.size()));
  }

  void Sampled() {
    if (!options_.record || result_.samples.size() >= kMaxSamples) return;
    Sample sample;
    sample.time = card_.now();
    for (int c = 0; c < card_.components(); ++c) {
      const Place& p = card_.place(c);
      sample.components.push_back({card_.Layers(c), card_.Needs(c), p.use.has_value(), p.loading});
    }
    std::vector<Sample>& samples = result_.samples;
    if (!samples.empty() && samples.back().components == sample.components) return;
    if (!samples.empty() && samples.back().time == sample.time) samples.pop_back();
    samples.push_back(std::move(sample));
  }

  void Sum() {
    std::vector<double> seconds;
    for (const RequestRecord& r : result_.requests) {
      if (r.refusal.empty()) seconds.push_back(r.ended - r.arrived);
      result_.seconds = std::max(result_.seconds, r.ended);
    }
    result_.request_p50_seconds = Percentile(seconds, 50);
    result_.request_p95_seconds = Percentile(seconds, 95);
    result_.bytes_to_device = std::llround(streamed_ + card_.bytes_ahead());
    result_.decisions = decider_->decisions();
    result_.decision_p99_seconds = Percentile(decider_->decision_seconds(), 99);
  }

  const Workload& workload_;
  const Options& options_;
  Card card_;
  std::unique_ptr<Decider> decider_;
  std::vector<int> order_;  // runs by arrival
  size_t started_ = 0;
  size_t ended_ = 0;
  size_t asked_ = 0;
  std::vector<Open> open_;  // uses that wait or run
  double streamed_ = 0;
  Result result_;
};

}  // namespace

absl::StatusOr<Result> Simulate(const Workload& workload, const Options& options) {
  if (absl::Status status = Validate(workload); !status.ok()) return status;
  return Simulation(workload, options).Play();
}

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace vrambroker::sim
