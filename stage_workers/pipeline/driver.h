// Runs a workload over stage workers: declares what is to come, hands activations from stage to
// stage, measures.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_DRIVER_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_DRIVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/broker_client.h"
#include "vrambroker/v1/workload.pb.h"

namespace vrambroker::pipeline {

// Runs under way at once at most; a workload that asks for more is run with so many.
inline constexpr int kMaxConcurrentRuns = 64;
// Words of activations that a request begins with.
inline constexpr int kActivationWords = 256;

// What a driver tells the broker about runs.
enum class Declared {
  // Every run as soon as it has arrived, waiting ones too.
  kAll,
  // A run when it starts.
  kCurrent,
  // Nothing.
  kNone,
};
absl::StatusOr<Declared> ParseDeclared(const std::string& text);

struct StageRecord {
  std::string component;
  double seconds = 0;
  double stall_seconds = 0;
  double waited_seconds = 0;
  int64_t bytes_to_device = 0;
  int resident_layers = 0;
  int kept_layers = 0;
  int component_layers = 0;
  int64_t peak_bytes = 0;
};

struct RequestRecord {
  // Index in the workload.
  int run = 0;
  std::string pipeline;
  // One of the first that do not count.
  bool warm_up = false;
  // Not OK: which stage failed, and the worker's error.
  absl::Status status;
  // From arrival to start, and from start to the end of the last stage.
  double queued_seconds = 0;
  double seconds = 0;
  // Sums over the stages.
  double stall_seconds = 0;
  int64_t bytes_to_device = 0;
  // The most that one stage's worker had on the device.
  int64_t peak_bytes = 0;
  // Of the last stage's activations; empty after an error.
  std::string result_sha256;
  std::vector<StageRecord> stages;
};

struct DriverOptions {
  v1::Workload workload;
  // Address of the worker of each component that the pipelines name.
  std::map<std::string, std::string> workers;
  // gRPC address of the broker; "none": nothing is declared.
  std::string broker = "none";
  // As client::ClientOptions says.
  client::TlsFiles tls = {};
  // Name of the driver's session.
  std::string name = "pipeline";
  Declared declared = Declared::kAll;
  // Activation bytes are divided by the one, arrival times by the other.
  int64_t bytes_scale = 1;
  double time_scale = 1;
  // The first so many runs are over before the next begins, and do not count.
  int warm_ups = 0;
  // Longest time for one stage, waiting for admission included; and for workers to become ready
  // before the first.
  absl::Duration stage_timeout = absl::Minutes(10);
  // Start no run after one that failed.
  bool stop_at_error = false;
  // Hears of each request when it is over, one at a time. May be empty.
  std::function<void(const RequestRecord&)> on_request;
  // Hears one line of what it waits for before the first run, such as a worker whose component the
  // broker refuses for now. May be empty.
  std::function<void(const std::string&)> notice;
};

struct DriverReport {
  // The runs that were started, in the order of the workload.
  std::vector<RequestRecord> requests;
  // Bytes that all workers copied to the device after the warm-ups, loading ahead included. Empty:
  // not known, a worker that had counted them was gone at the end.
  std::optional<int64_t> bytes_to_device;
  // Highest use of the card by everybody since it was made. 0: the card does not count it.
  int64_t device_peak_bytes = 0;
  std::string device_uuid;
  int64_t device_capacity_bytes = 0;
  // Runs that the broker did not take a declaration of, and the last reason.
  int undeclared_runs = 0;
  absl::Status undeclared_reason;
};

// The activations that a run begins with: the same words in every process.
std::vector<uint64_t> InitialActivations(int run);

// INVALID_ARGUMENT for a component without a worker; DEADLINE_EXCEEDED or UNAVAILABLE where broker
// or workers do not answer at the begin. What fails later is in the records.
absl::StatusOr<DriverReport> RunWorkload(const DriverOptions& options);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_DRIVER_H_
