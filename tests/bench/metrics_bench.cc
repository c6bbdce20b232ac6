// What the metrics cost: counting beside deciding, and a scrape of a large broker over HTTP.
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine.h"
#include "broker/observe/metrics.h"
#include "broker/observe/tally.h"
#include "tests/bench/bench.h"
#include "tests/http_get.h"

namespace vrambroker::bench {
namespace {

constexpr int kUses = 5000;
constexpr int kRounds = 20;
constexpr int kScrapes = 30;
constexpr double kGoalShare = 5;    // percent
constexpr double kGoalScrape = 50;  // ms
constexpr int kWorkers = 16;
constexpr int kComponentsEach = 64;
const char kCard[] = "GPU-12345678-1234-1234-1234-123456789abc";

int64_t Nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

// A machine with one card, and workers whose calls it answers.
class Driven {
 public:
  Driven(int workers, int components) : machine_(Config(), {Card()}) {
    for (int w = 0; w < workers; ++w) Attach(w, components);
  }

  core::Effects Step(const core::Event& event) {
    now_ += absl::Milliseconds(1);
    return machine_.Step(event, now_);
  }
  // A use of the first worker's first component, which fits whole: the cheapest decision there is.
  core::BeginUseEvent Begin(int number) {
    core::BeginUseEvent e;
    e.header = {core::CallId(++call_), core::SessionId(1), absl::StrCat("b", number), 1};
    e.use.component = "c0";
    return e;
  }
  core::EndUseEvent End(int number, core::Generation completed) {
    core::EndUseEvent e;
    e.header = {core::CallId(++call_), core::SessionId(1), absl::StrCat("e", number), 1};
    e.begin_request_id = absl::StrCat("b", number);
    e.snapshot = {++sequence_, {{"c0", 8, completed, true}}, {}, {}};
    return e;
  }
  core::Machine& machine() { return machine_; }
  absl::Time now() const { return now_; }

 private:
  static core::Config Config() {
    core::Config config;
    config.max_decisions = 64;
    return config;
  }
  static core::DeviceSpec Card() {
    core::DeviceSpec card;
    card.uuid = kCard;
    card.capacity = core::Bytes(int64_t{1} << 40);
    return card;
  }
  void Attach(int worker, int components) {
    core::AttachEvent e;
    e.connection = core::ConnectionId(static_cast<uint64_t>(worker) + 1);
    e.worker = absl::StrCat("worker-", worker);
    e.process = {1000 + worker, 1};
    e.attach_number = 1;
    e.device_uuid = kCard;
    for (int c = 0; c < components; ++c) {
      core::ComponentSpec spec;
      spec.name = absl::StrCat("c", c);
      spec.layers = core::LayerTable({{8, core::Bytes(1 << 20)}});
      e.components.push_back(spec);
    }
    Step(e);
  }

  core::Machine machine_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  uint64_t call_ = 0;
  uint64_t sequence_ = 0;
};

struct Costs {
  int64_t deciding = 0;
  int64_t counting = 0;
  uint64_t uses = 0;
};

// Takes the time of deciding events, and of counting what came of them.
class Meter {
 public:
  explicit Meter(Driven* driven) : driven_(driven) {}

  core::Effects Take(const core::Event& event) {
    const int64_t began = Nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    core::Effects effects = driven_->Step(event);
    const int64_t decided = Nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    tally_.Note(event, absl::Nanoseconds(decided - began));
    for (const core::Effect& effect : effects) tally_.Note(effect);
    costs_.deciding += decided - began;
    costs_.counting += Nanoseconds(CLOCK_THREAD_CPUTIME_ID) - decided;
    return effects;
  }
  Costs costs() {
    for (const auto& [uuid, device] : tally_.devices()) costs_.uses += device.uses_ended;
    return costs_;
  }

 private:
  Driven* const driven_;
  observe::Tally tally_;
  Costs costs_;
};

Costs MeasureCounting() {
  Driven driven(1, 1);
  Meter meter(&driven);
  for (int i = 0; i < kUses; ++i) {
    core::Generation generation;
    for (const core::Effect& effect : meter.Take(driven.Begin(i))) {
      const auto* answer = std::get_if<core::Answer>(&effect);
      if (answer == nullptr) continue;
      if (const auto* begun = std::get_if<core::BeginAnswer>(&answer->result)) {
        generation = begun->generation;
      }
    }
    meter.Take(driven.End(i, generation));
  }
  return meter.costs();
}

absl::Status AddScrapes(Figures* figures) {
  Driven driven(kWorkers, kComponentsEach);
  std::vector<double> looks, scrapes;
  const observe::Tally tally;
  auto metrics = std::make_shared<observe::Metrics>([&](const observe::Metrics::Take& take) {
    const int64_t began = Nanoseconds(CLOCK_MONOTONIC);
    take({driven.machine().GetPicture(driven.now()), tally, 0});
    looks.push_back(static_cast<double>(Nanoseconds(CLOCK_MONOTONIC) - began) * 1e-6);
  });
  auto endpoint = observe::MetricsEndpoint::Open("127.0.0.1:0", std::move(metrics));
  if (!endpoint.ok()) return endpoint.status();
  size_t bytes = 0;
  for (int i = 0; i < kScrapes; ++i) {
    const int64_t began = Nanoseconds(CLOCK_MONOTONIC);
    bytes = HttpGet((*endpoint)->address(), "/metrics").size();
    scrapes.push_back(static_cast<double>(Nanoseconds(CLOCK_MONOTONIC) - began) * 1e-6);
  }
  const std::string of = absl::StrCat("scrape of ", kWorkers * kComponentsEach, " components: ");
  figures->push_back({of + "p50", Percentile(&scrapes, 0.5), "ms", kGoalScrape});
  figures->push_back({of + "of it the look between two decisions, p50", Percentile(&looks, 0.5),
                      "ms", std::nullopt});
  figures->push_back({of + "size", static_cast<double>(bytes) / 1024, "KiB", std::nullopt});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Figures> MetricsBench(const BenchOptions&) {
  std::vector<double> shares, counting, deciding;
  for (int i = 0; i < kRounds; ++i) {
    const Costs costs = MeasureCounting();
    if (costs.uses != kUses) return absl::InternalError("a use did not begin and end");
    shares.push_back(100.0 * static_cast<double>(costs.counting) /
                     static_cast<double>(costs.deciding));
    counting.push_back(static_cast<double>(costs.counting) / (2.0 * kUses));
    deciding.push_back(static_cast<double>(costs.deciding) / (2.0 * kUses));
  }
  Figures figures;
  figures.push_back({"counting beside the cheapest decisions, the clock's own time included",
                     Percentile(&shares, 0.5), "%", kGoalShare});
  figures.push_back({"  counting, of a step", Percentile(&counting, 0.5), "ns", std::nullopt});
  figures.push_back({"  deciding, of a step", Percentile(&deciding, 0.5), "ns", std::nullopt});
  if (absl::Status status = AddScrapes(&figures); !status.ok()) return status;
  return figures;
}

}  // namespace vrambroker::bench
