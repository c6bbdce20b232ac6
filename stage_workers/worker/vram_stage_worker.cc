// vram-stage-worker: one process that owns components on a card and runs them as stages.
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "stage_workers/card/standard_descriptors.h"
#include "stage_workers/worker/command_line.h"
#include "stage_workers/worker/signals.h"
#include "stage_workers/worker/stage_service.h"
#include "stage_workers/worker/worker.h"

ABSL_FLAG(std::string, name, "",
          "Name of this worker, unique among those of the broker: letters, digits, '.', '-', '_'. "
          "Empty: the name of its first component.");
ABSL_FLAG(std::vector<std::string>, component, {},
          "Name of the component that it serves; several, separated by commas, share the process, "
          "its allocator and all flags below.");
ABSL_FLAG(std::vector<std::string>, weights, {},
          "Safetensors file of the component; one for each of --component, in the same order.");
ABSL_FLAG(std::string, card, "",
          "The card: emulated:NAME, which must exist, or the UUID of a CUDA card.");
ABSL_FLAG(std::string, listen, "", "Where the stage is served: unix:PATH.");
ABSL_FLAG(std::string, ready_file, "",
          "A file that is written, with the address in it, when the worker is attached, placed and "
          "served. Empty: none.");
ABSL_FLAG(std::string, broker, "",
          "The broker: unix:PATH or HOST:PORT; none: run without one, by --retain and --allocate. "
          "Empty: $VRAM_BROKER_ADDRESS, else the default socket.");
ABSL_FLAG(std::string, tls_ca, "",
          "For a broker at HOST:PORT: PEM file of the CA of its certificate. Empty: "
          "$VRAM_BROKER_TLS_CA. Does nothing with --broker=none.");
ABSL_FLAG(std::string, tls_cert, "",
          "The same: PEM file of the certificate to show. Empty: $VRAM_BROKER_TLS_CERT.");
ABSL_FLAG(std::string, tls_key, "",
          "The same: PEM file of that certificate's key. Empty: $VRAM_BROKER_TLS_KEY.");
ABSL_FLAG(std::string, lock_dir, "",
          "Folder in which brokers lock their devices, to know whether one lives. Empty: that of "
          "the default socket. Does nothing with --broker=none.");
ABSL_FLAG(std::string, resident, "0",
          "The configured set: a count of layers (53, the first ones), a ratio of each block list "
          "(0.8; with a point), or all. It comes first in the order in which layers are kept. "
          "Without a broker so many layers are resident during a use; with one they are what a use "
          "has where the broker's device lock is free, and the broker's word counts otherwise. "
          "Does nothing with --lifetime=permanent.");
ABSL_FLAG(std::string, lifetime, "forward",
          "forward: a use loads what it needs, and what stays after it is decided each time. "
          "permanent: all layers are placed once and never released by a use.");
ABSL_FLAG(bool, host_copy, true,
          "Whether a permanent set keeps its copy in host memory once it is placed. Without it "
          "ReleaseAll is refused. Does nothing with --lifetime=forward.");
ABSL_FLAG(int, window_layers, 2,
          "Slots of the streamed window, each of the largest layer's size: 1 to 64. Does nothing "
          "for a use whose layers are all resident, permanent ones too.");
ABSL_FLAG(
    std::string, tier, "pageable",
    "Host memory of the layers: pinned or pageable. With a broker each component is pinned once "
    "its budget of host memory allows it, between two uses; with none at once. What is not "
    "allowed, or what the system refuses, stays pageable, as the worker and its status say. On "
    "an emulated card both copy at the same rate.");
ABSL_FLAG(double, pass_seconds, 0,
          "Seconds that one pass over all layers computes, before --time-scale: 0 to 1000000.");
ABSL_FLAG(double, time_scale, 1, "Divides --pass-seconds: above 0.");
ABSL_FLAG(std::string, retain, "none",
          "What stays of the configured set after a use: none, all, or if-free:BYTES (all of it if "
          "at least so many bytes are free on the card beside it, as in if-free:4GiB). Does "
          "nothing with a broker, which decides that itself, nor with --lifetime=permanent.");
ABSL_FLAG(std::string, allocate, "whole",
          "How much of the configured set a use tries to have resident: whole (running out of "
          "memory is an error) or fit (as much as is free when the use begins). Does nothing with "
          "a broker, nor with --lifetime=permanent.");
ABSL_FLAG(bool, caching_allocator, true,
          "Whether freed device memory stays with the worker's allocator for reuse, as frameworks "
          "do. Without it every free goes straight back to the card.");
ABSL_FLAG(
    bool, trim_after_use, true,
    "Whether the allocator gives what it keeps back to the card after each use, so that other "
    "processes can have it. Does nothing with a broker, which asks for it when somebody is "
    "short, nor with --caching-allocator=false.");
ABSL_FLAG(int, warm_up_uses, 1,
          "First uses of each component that the broker learns nothing from, as caches and "
          "frameworks are cold: 0 to 1000. Does nothing without a broker.");
ABSL_FLAG(
    absl::Duration, start_timeout, absl::Minutes(5),
    "How long attaching and placing may take before the worker gives up: above 0. What it waits "
    "for is said on stderr and in its status meanwhile.");

namespace vrambroker::worker {
namespace {

// Running stages have this long to end after SIGTERM, before they are cancelled after the pass at
// hand; twice this later the process ends in any case, which gives its device memory back as well.
constexpr absl::Duration kGrace = absl::Seconds(5);

CommandHelp Help() {
  return {
      "vram-stage-worker",
      "vram-stage-worker: owns components of a pipeline on a card and serves them as stages.\n\n"
      "  vram-stage-worker --component=dit --weights=dit.safetensors --card=emulated:a \\\n"
      "      --listen=unix:/run/dit.sock [--broker=unix:/run/vram-broker/broker.sock]\n\n"
      "Says \"ready ADDRESS\" on stderr when it runs stages, and before that what it waits for. "
      "SIGTERM and SIGINT: releases everything "
      "and "
      "exits 0.",
      {"name",         "component",         "weights",       "card",
       "listen",       "ready-file",        "broker",        "tls-ca",
       "tls-cert",     "tls-key",           "lock-dir",      "resident",
       "lifetime",     "host-copy",         "window-layers", "tier",
       "pass-seconds", "time-scale",        "retain",        "trim-after-use",
       "allocate",     "caching-allocator", "warm-up-uses",  "start-timeout"}};
}

absl::Status OneOf(const char* flag, const std::string& value, const char* first,
                   const char* second) {
  if (value == first || value == second) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": '", value, "' given; ", first, " or ", second, " is allowed"));
}

absl::StatusOr<WorkerOptions> OptionsFromFlags() {
  WorkerOptions options;
  if (const absl::Duration timeout = absl::GetFlag(FLAGS_start_timeout);
      timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--start-timeout: ", absl::FormatDuration(timeout),
                     " given; a duration above 0 is allowed, such as 30s or 5m"));
  }
  options.components = absl::GetFlag(FLAGS_component);
  options.weights = absl::GetFlag(FLAGS_weights);
  options.name = absl::GetFlag(FLAGS_name);
  if (options.name.empty() && !options.components.empty()) options.name = options.components[0];
  options.card_uuid = absl::GetFlag(FLAGS_card);
  if (options.card_uuid.empty()) {
    return absl::InvalidArgumentError("--card is needed: emulated:NAME or a CUDA card's UUID");
  }
  options.broker = absl::GetFlag(FLAGS_broker);
  options.tls = {absl::GetFlag(FLAGS_tls_ca), absl::GetFlag(FLAGS_tls_cert),
                 absl::GetFlag(FLAGS_tls_key)};
  options.lock_dir = absl::GetFlag(FLAGS_lock_dir);

  absl::StatusOr<offload::KeepSpec> resident = ParseResident(absl::GetFlag(FLAGS_resident));
  if (!resident.ok()) return resident.status();
  options.resident = *resident;
  absl::StatusOr<RetainRule> retain = ParseRetain(absl::GetFlag(FLAGS_retain));
  if (!retain.ok()) return retain.status();
  options.rules.retain = *retain;
  const std::string lifetime = absl::GetFlag(FLAGS_lifetime);
  const std::string tier = absl::GetFlag(FLAGS_tier);
  const std::string allocate = absl::GetFlag(FLAGS_allocate);
  for (const absl::Status& status :
       {OneOf("lifetime", lifetime, "forward", "permanent"),
        OneOf("tier", tier, "pinned", "pageable"), OneOf("allocate", allocate, "whole", "fit")}) {
    if (!status.ok()) return status;
  }
  options.lifetime =
      lifetime == "permanent" ? offload::Lifetime::kPermanent : offload::Lifetime::kForward;
  options.tier = tier == "pinned" ? offload::HostTier::kPinned : offload::HostTier::kPageable;
  options.rules.allocate = allocate == "fit" ? Allocate::kFit : Allocate::kWhole;
  options.rules.trim_after_use = absl::GetFlag(FLAGS_trim_after_use);
  options.host_copy = absl::GetFlag(FLAGS_host_copy);
  options.window_layers = absl::GetFlag(FLAGS_window_layers);
  options.pass_seconds = absl::GetFlag(FLAGS_pass_seconds);
  options.time_scale = absl::GetFlag(FLAGS_time_scale);
  options.warm_up_uses = absl::GetFlag(FLAGS_warm_up_uses);
  options.caching_allocator = absl::GetFlag(FLAGS_caching_allocator);
  options.notice = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return options;
}

absl::Status WriteReadyFile(const std::string& path, const std::string& address) {
  const std::string unfinished = path + ".new";
  FILE* file = std::fopen(unfinished.c_str(), "w");
  const bool written = file != nullptr && std::fprintf(file, "%s\n", address.c_str()) > 0;
  if (file != nullptr && std::fclose(file) == 0 && written &&
      std::rename(unfinished.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("--ready-file: cannot write ", path));
}

// SIGTERM and SIGINT. Before the worker runs stages they end the process at once, which gives its
// device memory back; then Wait() returns.
class StopSignals {
 public:
  StopSignals() {
    OnFirstSignal({SIGTERM, SIGINT}, [this](int signal) { Take(signal); });
  }

  // Has these files removed where a signal ends the process at once.
  void RemoveAtOnce(std::vector<std::string> files) {
    const std::lock_guard<std::mutex> lock(mutex_);
    files_ = std::move(files);
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    serving_ = true;
    changed_.wait(lock, [this] { return signalled_; });
  }

 private:
  void Take(int signal) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::fprintf(stderr, "signal %d: releasing everything\n", signal);
    if (!serving_) {
      for (const std::string& file : files_) unlink(file.c_str());
      std::_Exit(0);
    }
    signalled_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  bool signalled_ = false;
  std::vector<std::string> files_;
};

// Ends the process should it hang in an orderly end.
void EndAfter(absl::Duration limit) {
  std::thread([limit] {
    absl::SleepFor(limit);
    std::fprintf(stderr, "not ended %s after the signal: leaving at once\n",
                 absl::FormatDuration(limit).c_str());
    std::_Exit(0);
  }).detach();
}

absl::Status Serve(StopSignals& signals) {
  const absl::StatusOr<WorkerOptions> options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  const std::string address = absl::GetFlag(FLAGS_listen);
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create(*options);
  if (!worker.ok()) return worker.status();
  if (!(*worker)->pin_status().ok()) {
    std::fprintf(stderr, "--tier=pinned was refused, pageable memory serves: %s\n",
                 (*worker)->pin_status().ToString().c_str());
  }
  if (absl::Status connected = (*worker)->Connect(); !connected.ok()) return connected;
  // Served before it has started, so that its status says what it waits for.
  absl::StatusOr<std::unique_ptr<StageServer>> server = StageServer::Start(worker->get(), address);
  if (!server.ok()) return server.status();
  signals.RemoveAtOnce((*server)->Files());
  absl::Status started = (*worker)->Start(absl::Now() + absl::GetFlag(FLAGS_start_timeout));
  if (!started.ok()) return started;
  const std::string ready_file = absl::GetFlag(FLAGS_ready_file);
  if (!ready_file.empty()) {
    if (absl::Status status = WriteReadyFile(ready_file, address); !status.ok()) return status;
  }
  std::fprintf(stderr, "ready %s\n", address.c_str());

  signals.Wait();
  EndAfter(3 * kGrace);
  (*server)->Stop(kGrace);
  server->reset();
  worker->reset();
  if (!ready_file.empty()) unlink(ready_file.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace vrambroker::worker

__attribute__((section(".preinit_array"),
               used)) static void (*g_first)() = vrambroker::card::OpenStandardDescriptors;

int main(int argc, char** argv) {
  const std::vector<std::string> rest =
      vrambroker::worker::ParseCommandLine(argc, argv, vrambroker::worker::Help());
  if (!rest.empty()) {
    std::fprintf(stderr, "vram-stage-worker: '%s' is not a flag; --help lists them\n",
                 rest[0].c_str());
    return 2;
  }
  // Lives as long as the process: its thread may be waiting at the end.
  static auto* const signals = new vrambroker::worker::StopSignals();
  const absl::Status status = vrambroker::worker::Serve(*signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "vram-stage-worker: %s\n", status.ToString().c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
