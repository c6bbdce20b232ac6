// The workload that a decision log tells of: what ran, when, and what it lost to loading then.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/ctl/seen_ids.h"
#include "broker/sim/simulate.h"
#include "broker/sim/workload.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::ctl {

struct RecordedWorkload {
  sim::Workload workload;
  std::string device;  // UUID
  // How runs were declared, as a simulation can do it.
  sim::Declared declared = sim::Declared::kNone;
  bool load_ahead = false;
  int64_t uses = 0;
  // Uses that are left out: on other devices; of components that the log does not name.
  int64_t uses_elsewhere = 0;
  int64_t unknown_uses = 0;
  // Lines of uses that were met already, as of a file that was named twice; passed over.
  int64_t repeated_uses = 0;
  // Seconds: stall that workers measured, and waits while no use ran.
  double stall_seconds = 0;
  double request_p50_seconds = 0;
  double request_p95_seconds = 0;
  // During uses, as workers measured.
  int64_t bytes_to_device = 0;
};

// Takes the lines of a log, or of several that follow each other. A run arrives when it was to
// start or did, whichever is earlier; a use without a run is one of its own. A pass takes the
// median of what was measured, an activation the most that was charged for uses alike.
class WorkloadReader {
 public:
  // As much as a simulation takes.
  static constexpr size_t kMostRuns = 100'000;
  static constexpr size_t kMostComponents = 256;
  static constexpr size_t kMostStages = 64;

  // `device`: UUID; empty: the only one.
  explicit WorkloadReader(std::string device) : device_(std::move(device)) {}

  // INVALID_ARGUMENT past a bound, or where the line says what cannot be.
  absl::Status Take(const v1::DecisionLogLine& line);
  // INVALID_ARGUMENT where there is no such device, there are several, or nothing ran.
  absl::StatusOr<RecordedWorkload> Finish();

 private:
  struct Component {
    std::string id;
    v1::Component spec;
    std::vector<double> pass_seconds;  // measured, the last ones
    bool used = false;
  };
  // What uses have in common that count as one stage.
  struct StageKey {
    int component = 0;
    int passes = 1;
    int64_t declared_activation = 0;
    auto operator<=>(const StageKey&) const = default;
  };
  struct Run {
    double arrived = 0;
    double asked = -1;  // below 0: nothing of it has run
    double ended = 0;
    std::vector<int> stages;
  };
  struct Use {
    size_t run = 0;
    int component = 0;
    int passes = 1;
  };

  absl::Status TakeHeader(const v1::DecisionLogHeader& header);
  absl::Status TakeWorker(const v1::LoggedWorker& worker);
  absl::Status TakeBegan(const v1::LoggedUseBegan& use);
  void TakeEnded(const v1::LoggedUseEnded& use);
  absl::Status NewRun(double arrived, size_t* index);
  int StageOf(const StageKey& key, int64_t activation);
  double IdleBetween(double from, double to) const;

  std::vector<sim::Component> Components(std::vector<int>* index) const;
  void AddRuns(const std::vector<int>& index, std::vector<double>* seconds,
               RecordedWorkload* out) const;
  int MostAtOnce() const;

  const std::string device_;
  double now_ = 0;  // seconds since 1970
  uint64_t epoch_ = 0;
  bool load_ahead_ = false;
  std::vector<v1::LoggedDevice> devices_;
  std::map<std::string, int> index_;  // of components_, by id
  std::set<std::string> elsewhere_;   // components of other devices
  std::vector<Component> components_;
  std::map<StageKey, int> stage_index_;
  std::vector<std::pair<StageKey, int64_t>> stages_;  // with the most activation
  std::vector<Run> runs_;
  std::map<uint64_t, size_t> open_runs_;  // of this broker, by id; declared and not ended
  std::map<uint64_t, Use> running_;       // of this broker, by id
  SeenIds seen_uses_;
  // When nothing ran, the last times.
  std::deque<std::pair<double, double>> idle_;
  double idle_since_ = -1;  // below 0: something runs
  bool declared_any_ = false;
  bool declared_ahead_ = false;
  double copied_bytes_ = 0;
  double copy_seconds_ = 0;
  RecordedWorkload result_;
};

// For people, and for programs.
std::string RecordedText(const RecordedWorkload& recorded);
std::string RecordedJson(const RecordedWorkload& recorded);

}  // namespace vrambroker::ctl
