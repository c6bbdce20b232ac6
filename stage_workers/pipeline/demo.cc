#include "stage_workers/pipeline/demo.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "stage_workers/pipeline/driver.h"
#include "stage_workers/pipeline/sha256.h"

namespace vrambroker::pipeline {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// The local rule keeps the set if so much is free beside it.
constexpr int64_t kLocalRuleBytes = int64_t{4} << 30;

// The workload with as many runs as the demo makes, one after the other.
v1::Workload WithRuns(const DemoOptions& options) {
  v1::Workload workload = options.workload;
  const std::string pipeline = workload.pipelines(0).name();
  workload.set_max_concurrent_runs(1);
  workload.clear_runs();
  for (int i = 0; i < options.warm_ups + options.requests; ++i) {
    workload.add_runs()->set_pipeline(pipeline);
  }
  return workload;
}

void TakeRequests(const DriverReport& report, ArmResult* arm) {
  double stall = 0;
  int64_t of_uses = 0;
  for (const RequestRecord& request : report.requests) {
    if (!request.status.ok()) {
      arm->error = request.status.ToString();
      return;
    }
    arm->results.push_back(request.result_sha256);
    if (request.warm_up) continue;
    arm->request_seconds.push_back(request.seconds);
    stall += request.stall_seconds;
    of_uses += request.bytes_to_device;
  }
  arm->ran = true;
  arm->stall_seconds = stall / std::max<double>(1, arm->request_seconds.size());
  arm->bytes_to_device = report.bytes_to_device.value_or(of_uses);
  arm->bytes_loaded_ahead = arm->bytes_to_device - of_uses;
}

class ArmRunner {
 public:
  ArmRunner(const DemoOptions& options, const v1::Workload& workload, double card_gib,
            const std::string& label)
      : options_(options), workload_(workload), card_gib_(card_gib), label_(label) {}

  // Not OK only where the processes did not end in good order.
  absl::StatusOr<ArmResult> Run(const Arm& arm, CardResult* card) {
    ArmResult result;
    result.name = arm.name;
    result.must_run = arm.must_run;
    result.load_ahead = arm.load_ahead;
    absl::StatusOr<std::unique_ptr<Fleet>> fleet = Fleet::Start(FleetFor(arm));
    if (!fleet.ok()) {
      result.error = fleet.status().ToString();
      return result;
    }
    card->card_bytes = (*fleet)->card_bytes();
    card->link_bytes_per_second = (*fleet)->link_bytes_per_second();
    const absl::StatusOr<DriverReport> report = RunWorkload(DriverFor(**fleet));
    result.peak_bytes = (*fleet)->PeakBytes().value_or(0);
    if (report.ok()) {
      TakeRequests(*report, &result);
    } else {
      result.error = report.status().ToString();
    }
    if (absl::Status status = (*fleet)->Stop(); !status.ok()) return status;
    return result;
  }

 private:
  FleetOptions FleetFor(const Arm& arm) const {
    FleetOptions fleet;
    fleet.workload = workload_;
    fleet.capacity_bytes = static_cast<int64_t>(std::llround(card_gib_ * kGiB));
    fleet.bytes_scale = options_.bytes_scale;
    fleet.time_scale = options_.time_scale;
    fleet.weights_dir = options_.weights_dir;
    fleet.broker = arm.broker;
    fleet.load_ahead = arm.load_ahead;
    fleet.workers = arm.workers;
    fleet.program_folder = options_.program_folder;
    fleet.notice = [this](const std::string& line) {
      options_.progress(absl::StrCat(label_, " ", line));
    };
    fleet.log_prefix =
        absl::StrCat(options_.log_folder, "/", absl::StrFormat("%g", card_gib_), "-", arm.name);
    return fleet;
  }

  DriverOptions DriverFor(const Fleet& fleet) const {
    DriverOptions driver;
    driver.workload = workload_;
    driver.workers = fleet.workers();
    driver.broker = fleet.broker();
    driver.name = "demo";
    driver.declared = Declared::kAll;
    driver.bytes_scale = options_.bytes_scale;
    driver.time_scale = options_.time_scale;
    driver.warm_ups = options_.warm_ups;
    driver.stop_at_error = true;
    driver.on_request = [this](const RequestRecord& request) {
      options_.progress(absl::StrFormat(
          "%s request %d of %d%s: %s", label_, request.run + 1, workload_.runs_size(),
          request.warm_up ? " (does not count)" : "",
          request.status.ok() ? absl::StrFormat("%.3f s, %.3f s of them lost to loading",
                                                request.seconds, request.stall_seconds)
                              : request.status.ToString()));
    };
    return driver;
  }

  const DemoOptions& options_;
  const v1::Workload& workload_;
  const double card_gib_;
  const std::string label_;
};

}  // namespace

std::vector<Arm> AllArms(int64_t bytes_scale) {
  const WorkerSetup permanent = {.lifetime = "permanent"};
  const WorkerSetup revocable;
  // 29 + 22 + 2 of the text encoder's 36 + 27 + 3 layers.
  const WorkerSetup set_released = {.resident = "0.8", .retain = "none"};
  const WorkerSetup local_rule = {
      .resident = "0.8", .retain = absl::StrCat("if-free:", kLocalRuleBytes / bytes_scale)};
  const auto beside_permanent = [&](const WorkerSetup& text_encoder) {
    return std::map<std::string, WorkerSetup>{
        {"text_encoder", text_encoder}, {"dit", permanent}, {"vae", permanent}};
  };
  std::vector<Arm> arms(7);
  arms[0] = {.name = "streamed",
             .meaning = "DiT and VAE stay on the card, the text encoder is streamed",
             .workers = beside_permanent(revocable)};
  arms[1] = {.name = "set_released",
             .meaning = "the same, 53 of 66 text encoder layers resident and dropped by each use",
             .workers = beside_permanent(set_released),
             .must_run = false};
  arms[2] = {.name = "local_rule",
             .meaning = "the same, all 53 kept if 4 GiB (scaled) are free beside them",
             .workers = beside_permanent(local_rule),
             .must_run = false};
  arms[3] = {.name = "broker",
             .meaning = "DiT and VAE stay, a broker decides about the text encoder",
             .broker = true,
             .workers = beside_permanent(revocable)};
  arms[4] = {.name = "broker_all",
             .meaning = "a broker decides about all three",
             .broker = true,
             .workers = {}};
  for (int i : {3, 4}) {
    Arm& ahead = arms[i + 2];
    ahead = arms[i];
    ahead.name += "_ahead";
    ahead.meaning += ", and has layers loaded ahead of uses to come";
    ahead.load_ahead = true;
  }
  return arms;
}

absl::StatusOr<std::vector<Arm>> ChooseArms(const std::vector<std::string>& names,
                                            int64_t bytes_scale) {
  std::vector<Arm> all = AllArms(bytes_scale);
  std::vector<std::string> known;
  std::vector<Arm> chosen;
  for (Arm& arm : all) {
    known.push_back(arm.name);
    if (std::count(names.begin(), names.end(), arm.name) > 0) chosen.push_back(std::move(arm));
  }
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--arms: '", name, "' given twice; each at most once is allowed"));
    }
    if (std::count(known.begin(), known.end(), name) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--arms: '", name, "' given; ", absl::StrJoin(known, ", "), " are allowed"));
    }
  }
  if (chosen.empty()) return absl::InvalidArgumentError("--arms: none given; at least 1 is needed");
  return chosen;
}

absl::StatusOr<DemoResult> RunDemo(const DemoOptions& options) {
  const v1::Workload workload = WithRuns(options);
  DemoResult result;
  result.bytes_scale = options.bytes_scale;
  result.time_scale = options.time_scale;
  result.requests = options.requests;
  result.warm_ups = options.warm_ups;
  const size_t count = options.arms.size();
  int done = 0;
  for (size_t i = 0; i < options.card_gib.size(); ++i) {
    CardResult card;
    card.capacity_gib = options.card_gib[i];
    card.arms.resize(count);
    for (size_t step = 0; step < count; ++step) {
      // Every other card in reverse: what drifts with time does not favour an arm.
      const size_t at = i % 2 == 0 ? step : count - 1 - step;
      const Arm& arm = options.arms[at];
      const std::string label =
          absl::StrFormat("[%d/%d] %g GiB, %s:", ++done, options.card_gib.size() * count,
                          card.capacity_gib, arm.name);
      absl::StatusOr<ArmResult> arm_result =
          ArmRunner(options, workload, card.capacity_gib, label).Run(arm, &card);
      if (!arm_result.ok()) {
        return absl::InternalError(absl::StrCat(label, " ", arm_result.status().message()));
      }
      if (!arm_result->ran) options.progress(absl::StrCat(label, " did not run"));
      card.order.push_back(arm.name);
      card.arms[at] = *std::move(arm_result);
    }
    result.cards.push_back(std::move(card));
  }
  return result;
}

std::string ArmResult::ResultSha256() const {
  return results.empty() ? "" : Sha256Hex(absl::StrJoin(results, "\n"));
}

}  // namespace vrambroker::pipeline
