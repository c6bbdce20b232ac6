#include "stage_workers/pipeline/driver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/offload/weights_writer.h"
#include "stage_workers/pipeline/declarations.h"
#include "stage_workers/pipeline/run_queue.h"
#include "stage_workers/pipeline/sha256.h"
#include "stage_workers/pipeline/stage_link.h"

namespace vrambroker::pipeline {
namespace {

constexpr absl::Duration kStatusTimeout = absl::Seconds(30);
// At the end a worker that does not answer has been stopped or hangs.
constexpr absl::Duration kLastStatusTimeout = absl::Seconds(2);
// A worker that is not ready is asked again after this.
constexpr absl::Duration kAskAgain = absl::Milliseconds(50);

using Links = std::map<std::string, std::unique_ptr<StageLink>>;

absl::StatusOr<Links> Connect(const DriverOptions& options) {
  Links links;
  for (const v1::WorkloadPipeline& pipeline : options.workload.pipelines()) {
    for (const v1::WorkloadStage& stage : pipeline.stages()) {
      const auto address = options.workers.find(stage.component());
      if (address == options.workers.end()) {
        return absl::InvalidArgumentError(absl::StrCat("pipeline ", pipeline.name(),
                                                       ": no worker is given for component ",
                                                       stage.component()));
      }
      if (links.count(stage.component()) == 0) {
        links[stage.component()] = std::make_unique<StageLink>(address->second);
      }
    }
  }
  return links;
}

std::vector<absl::Duration> Arrivals(const DriverOptions& options) {
  std::vector<absl::Duration> arrivals;
  for (const v1::WorkloadRun& run : options.workload.runs()) {
    arrivals.push_back(absl::Seconds(run.arrival_seconds() / options.time_scale));
  }
  return arrivals;
}

std::string_view AsBytes(const std::vector<uint64_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint64_t)};
}

StageRecord ToRecord(const std::string& component, const v1::RunStageResponse& response) {
  StageRecord record;
  record.component = component;
  record.seconds = response.seconds();
  record.stall_seconds = response.stall_seconds();
  record.waited_seconds = response.waited_seconds();
  record.bytes_to_device = response.bytes_to_device();
  record.resident_layers = response.resident_layers();
  record.kept_layers = response.kept_layers();
  record.component_layers = response.component_layers();
  record.peak_bytes = response.peak_bytes();
  return record;
}

class Driver {
 public:
  Driver(const DriverOptions& options, Links links, std::unique_ptr<Declarations> declarations)
      : options_(options),
        links_(std::move(links)),
        declarations_(std::move(declarations)),
        arrivals_(Arrivals(options)),
        queue_(arrivals_, std::clamp(options.workload.max_concurrent_runs(), 1, kMaxConcurrentRuns),
               options.warm_ups) {}

  absl::StatusOr<DriverReport> Run() {
    if (absl::Status ready = WaitForWorkers(); !ready.ok()) return ready;
    absl::StatusOr<int64_t> before = CopiedBytes();
    if (!before.ok()) return before.status();
    copied_before_ = *before;
    begin_ = std::chrono::steady_clock::now();
    const int threads = std::clamp(options_.workload.max_concurrent_runs(), 1, kMaxConcurrentRuns);
    std::vector<std::thread> crew;
    for (int i = 0; i < threads; ++i) crew.emplace_back([this] { Work(); });
    for (std::thread& thread : crew) thread.join();

    std::sort(report_.requests.begin(), report_.requests.end(),
              [](const RequestRecord& a, const RequestRecord& b) { return a.run < b.run; });
    report_.undeclared_runs = declarations_->undeclared_runs();
    report_.undeclared_reason = declarations_->undeclared_reason();
    ReadWorkers();
    return std::move(report_);
  }

 private:
  absl::Duration Elapsed() const {
    return absl::FromChrono(std::chrono::steady_clock::now() - begin_);
  }

  const std::string& PipelineOf(int run) const { return options_.workload.runs(run).pipeline(); }

  // One of the threads that take runs from the queue until all are started.
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopped_ && !queue_.AllStarted()) {
      const absl::Duration now = Elapsed();
      for (int run : queue_.TakeArrivals(now)) declarations_->Arrived(run, PipelineOf(run));
      const bool counting_begins = queue_.AtFirstPart();
      const std::optional<int> run = queue_.Start(now);
      if (!run.has_value()) {
        Wait(lock);
        continue;
      }
      if (counting_begins) copied_before_ = CopiedBytes().value_or(copied_before_);
      const bool warm_up = started_++ < options_.warm_ups;
      lock.unlock();
      RequestRecord record = RunRequest(*run, now, warm_up);
      lock.lock();
      Record(std::move(record));
    }
    changed_.notify_all();
  }

  void Wait(std::unique_lock<std::mutex>& lock) {
    const absl::Duration next = queue_.NextArrival();
    if (next == absl::InfiniteDuration()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, begin_ + absl::ToChronoNanoseconds(next));
    }
  }

  void Record(RequestRecord record) {
    queue_.Finish();
    if (!record.status.ok() && options_.stop_at_error) stopped_ = true;
    if (options_.on_request) options_.on_request(record);
    report_.requests.push_back(std::move(record));
    changed_.notify_all();
  }

  RequestRecord RunRequest(int run, absl::Duration started, bool warm_up) {
    RequestRecord record;
    record.run = run;
    record.pipeline = PipelineOf(run);
    record.warm_up = warm_up;
    record.queued_seconds = absl::ToDoubleSeconds(started - arrivals_[run]);
    const auto pipeline = std::find_if(
        options_.workload.pipelines().begin(), options_.workload.pipelines().end(),
        [&record](const v1::WorkloadPipeline& p) { return p.name() == record.pipeline; });
    declarations_->Started(run, record.pipeline);
    std::string activations(AsBytes(InitialActivations(run)));
    const absl::Duration begin = Elapsed();
    for (int stage = 0; stage < pipeline->stages_size() && record.status.ok(); ++stage) {
      record.status =
          RunStage(pipeline->stages(stage), declarations_->IdOf(run), stage, &activations, &record);
    }
    record.seconds = absl::ToDoubleSeconds(Elapsed() - begin);
    if (record.status.ok()) record.result_sha256 = Sha256Hex(activations);
    declarations_->Finished(run);
    return record;
  }

  absl::Status RunStage(const v1::WorkloadStage& stage, uint64_t id, int index,
                        std::string* activations, RequestRecord* record) {
    v1::RunStageRequest request;
    request.set_component(stage.component());
    request.set_run_id(id);
    request.set_stage(index);
    request.set_passes(stage.passes());
    request.set_activation_bytes(
        offload::ScaleBytes(stage.activation_bytes(), options_.bytes_scale));
    request.set_declared_activation_bytes(
        offload::ScaleBytes(stage.declared_activation_bytes(), options_.bytes_scale));
    request.set_shape(stage.shape());
    request.set_activations(std::move(*activations));
    request.set_warm_up(record->warm_up);
    absl::StatusOr<v1::RunStageResponse> response =
        links_.at(stage.component())->RunStage(request, options_.stage_timeout);
    if (!response.ok()) {
      return absl::Status(response.status().code(), absl::StrCat("stage ", stage.component(), ": ",
                                                                 response.status().message()));
    }
    *activations = std::move(*response->mutable_activations());
    record->stages.push_back(ToRecord(stage.component(), *response));
    record->stall_seconds += response->stall_seconds();
    record->bytes_to_device += response->bytes_to_device();
    record->peak_bytes = std::max(record->peak_bytes, response->peak_bytes());
    return absl::OkStatus();
  }

  // Until every worker runs stages; also shows that each answers before anything is started.
  absl::Status WaitForWorkers() {
    const absl::Time give_up = absl::Now() + options_.stage_timeout;
    for (const auto& [name, link] : links_) {
      std::string said;
      while (true) {
        const absl::StatusOr<v1::StageWorkerStatus> status = link->GetStatus(kStatusTimeout);
        if (!status.ok()) return status.status();
        const std::string& waiting = status->waiting_for();
        if (waiting.empty()) break;
        const std::string line = absl::StrCat("worker of ", name, " waits: ", waiting);
        if (absl::Now() >= give_up) {
          return absl::DeadlineExceededError(absl::StrCat(
              line, "; given up after ", absl::FormatDuration(options_.stage_timeout)));
        }
        if (options_.notice && line != said) options_.notice(line);
        said = line;
        absl::SleepFor(kAskAgain);
      }
    }
    return absl::OkStatus();
  }

  // Bytes that the workers have copied so far.
  absl::StatusOr<int64_t> CopiedBytes(absl::Duration timeout = kStatusTimeout) {
    int64_t bytes = 0;
    // Components may share a worker, which then tells of all of them each time.
    for (const auto& [name, link] : links_) {
      absl::StatusOr<v1::StageWorkerStatus> status = link->GetStatus(timeout);
      if (!status.ok()) return status.status();
      for (const v1::ComponentStatus& component : status->components()) {
        if (component.component() == name) bytes += component.bytes_to_device();
      }
      report_.device_uuid = status->device_uuid();
      report_.device_capacity_bytes = status->device_capacity_bytes();
      report_.device_peak_bytes = std::max(report_.device_peak_bytes, status->device_peak_bytes());
    }
    return bytes;
  }

  // A worker that is gone by now leaves the figures as they were, and the bytes unknown.
  void ReadWorkers() {
    const absl::StatusOr<int64_t> after = CopiedBytes(kLastStatusTimeout);
    if (after.ok()) report_.bytes_to_device = *after - copied_before_;
  }

  const DriverOptions& options_;
  const Links links_;
  const std::unique_ptr<Declarations> declarations_;
  const std::vector<absl::Duration> arrivals_;
  std::chrono::steady_clock::time_point begin_;

  std::mutex mutex_;
  std::condition_variable changed_;
  RunQueue queue_;
  bool stopped_ = false;
  int started_ = 0;
  int64_t copied_before_ = 0;
  DriverReport report_;
};

}  // namespace

absl::StatusOr<Declared> ParseDeclared(const std::string& text) {
  if (text == "all") return Declared::kAll;
  if (text == "current") return Declared::kCurrent;
  if (text == "none") return Declared::kNone;
  return absl::InvalidArgumentError(
      absl::StrCat("--declared: '", text, "' given; all, current or none is allowed"));
}

std::vector<uint64_t> InitialActivations(int run) {
  // SplitMix64: every word is spread over all bits, whatever the run's number.
  std::vector<uint64_t> words(kActivationWords);
  uint64_t state = (static_cast<uint64_t>(run) + 1) * 0x9e3779b97f4a7c15;
  for (uint64_t& word : words) {
    state += 0x9e3779b97f4a7c15;
    word = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
  }
  return words;
}

absl::StatusOr<DriverReport> RunWorkload(const DriverOptions& options) {
  absl::StatusOr<Links> links = Connect(options);
  if (!links.ok()) return links.status();
  absl::StatusOr<std::unique_ptr<Declarations>> declarations = Declarations::Create(options);
  if (!declarations.ok()) return declarations.status();
  return Driver(options, *std::move(links), *std::move(declarations)).Run();
}

}  // namespace vrambroker::pipeline
