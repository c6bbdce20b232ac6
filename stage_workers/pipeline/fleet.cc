#include "stage_workers/pipeline/fleet.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "stage_workers/offload/weights_writer.h"
#include "stage_workers/pipeline/stage_link.h"

namespace vrambroker::pipeline {
namespace {

// A process that was asked to end is killed after this: one that was stopped, or hangs.
constexpr absl::Duration kStopPatience = absl::Seconds(5);
// A worker that is not ready is asked this often why, and has as long to answer.
constexpr absl::Duration kAskWorker = absl::Milliseconds(500);

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Whether somebody accepts on a Unix socket.
bool Accepts(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool accepted =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return accepted;
}

std::string Number(double value) { return absl::StrFormat("%.17g", value); }

// A time of the unscaled world as a flag's value, at least `least`.
std::string ScaledTime(absl::Duration time, double scale, absl::Duration least) {
  return absl::FormatDuration(std::max(time / scale, least));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Start(const FleetOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Create();
  if (!folder.ok()) return folder.status();
  std::unique_ptr<Fleet> fleet(new Fleet(options, *std::move(folder)));
  if (absl::Status status = fleet->MakeCard(); !status.ok()) return status;
  if (options.broker) {
    if (absl::Status status = fleet->StartBroker(); !status.ok()) return status;
  }
  if (absl::Status status = fleet->StartWorkers(); !status.ok()) return status;
  return fleet;
}

Fleet::~Fleet() {
  workers_.clear();
  broker_.reset();
}

std::string Fleet::Log(const std::string& name) const {
  return absl::StrCat(options_.log_prefix, "-", name, ".log");
}

absl::Status Fleet::MakeCard() {
  const v1::WorkloadDevice& device = options_.workload.device();
  const int64_t capacity =
      options_.capacity_bytes > 0 ? options_.capacity_bytes : device.capacity_bytes();
  card::EmulatedCardOptions card;
  card.capacity_bytes = capacity / options_.bytes_scale;
  card.h2d_bytes_per_second = device.h2d_bytes_per_second() /
                              static_cast<double>(options_.bytes_scale) * options_.time_scale;
  absl::StatusOr<std::unique_ptr<card::EmulatedCard>> made =
      card::EmulatedCard::Create(card_name_.name(), card);
  if (!made.ok()) return made.status();
  card_ = *std::move(made);
  return absl::OkStatus();
}

absl::Status Fleet::StartBroker() {
  const std::string socket = folder_.path() + "/broker";
  broker_address_ = "unix:" + socket;
  const int64_t reserve = options_.workload.device().reserve_bytes() / options_.bytes_scale;
  const std::vector<std::string> command = {
      options_.program_folder + "/vram-brokerd",
      "--listen=" + broker_address_,
      absl::StrCat("--emulated-device=", card_name_.name(), "=", card_->CapacityBytes(),
                   ",rate=", Number(card_->LinkBytesPerSecond())),
      absl::StrCat("--reserve=", reserve),
      absl::StrCat("--load-ahead=", options_.load_ahead ? "true" : "false"),
      "--lock-dir=" + folder_.path(),
      // The broker's waits, in the scaled world.
      "--grow-wait=" + ScaledTime(absl::Seconds(1), options_.time_scale, absl::Milliseconds(1)),
      "--reading-interval=" +
          ScaledTime(absl::Seconds(1), options_.time_scale, absl::Milliseconds(10)),
  };
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(command, Log("broker"));
  if (!child.ok()) return child.status();
  broker_ = *std::move(child);
  return broker_->WaitUntil([&socket] { return Accepts(socket); }, options_.start_timeout);
}

absl::Status Fleet::StartWorkers() {
  for (const v1::WorkloadComponent& component : options_.workload.components()) {
    const std::string& name = component.name();
    const auto found = options_.workers.find(name);
    const WorkerSetup setup = found == options_.workers.end() ? WorkerSetup() : found->second;
    addresses_[name] = "unix:" + folder_.path() + "/" + name;
    std::vector<std::string> command = {
        options_.program_folder + "/vram-stage-worker",
        "--name=" + name,
        "--component=" + name,
        "--weights=" + offload::WeightsPath(options_.weights_dir, name),
        "--card=" + card_->Uuid(),
        "--listen=" + addresses_[name],
        "--ready-file=" + folder_.path() + "/" + name + ".ready",
        "--broker=" + broker_address_,
        "--lifetime=" + setup.lifetime,
        "--resident=" + setup.resident,
        absl::StrCat("--window-layers=",
                     component.window_layers() > 0 ? component.window_layers() : 2),
        "--pass-seconds=" + Number(component.pass_seconds()),
        "--time-scale=" + Number(options_.time_scale),
    };
    if (options_.broker) {
      command.push_back("--lock-dir=" + folder_.path());
    } else {
      command.push_back("--retain=" + setup.retain);
      command.push_back("--allocate=" + setup.allocate);
    }
    absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(command, Log(name));
    if (!child.ok()) return child.status();
    workers_[name] = *std::move(child);
  }
  for (const auto& [name, child] : workers_) {
    if (absl::Status status = WaitForWorker(name, *child); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Until it is ready; asks it meanwhile what it waits for.
absl::Status Fleet::WaitForWorker(const std::string& name, ChildProcess& worker) {
  const std::string ready = folder_.path() + "/" + name + ".ready";
  const std::string socket = folder_.path() + "/" + name;
  StageLink link(addresses_.at(name));
  std::string waiting;
  absl::Time ask_at = absl::Now() + kAskWorker;
  const auto is_ready = [&] {
    if (Exists(ready)) return true;
    if (absl::Now() < ask_at || !Exists(socket)) return false;
    const absl::StatusOr<v1::StageWorkerStatus> status = link.GetStatus(kAskWorker);
    ask_at = absl::Now() + kAskWorker;
    if (!status.ok() || status->waiting_for().empty() || status->waiting_for() == waiting) {
      return false;
    }
    waiting = status->waiting_for();
    if (options_.notice) options_.notice(absl::StrCat("worker ", name, " waits: ", waiting));
    return false;
  };
  const absl::Status status = worker.WaitUntil(is_ready, options_.start_timeout);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("worker ", name, ": ", status.message(),
                                                  waiting.empty() ? "" : "; it waits: ", waiting));
}

absl::StatusOr<int64_t> Fleet::PeakBytes() {
  const absl::StatusOr<card::Usage> usage = card_->ReadUsage();
  if (!usage.ok()) return usage.status();
  return usage->peak_used;
}

absl::Status Fleet::Stop() {
  absl::Status status;
  for (const auto& [name, child] : workers_) child->Terminate();
  // All of them were asked at once, and have the same time.
  const absl::Time give_up = absl::Now() + kStopPatience;
  for (const auto& [name, child] : workers_) status.Update(child->Join(give_up - absl::Now()));
  if (broker_ != nullptr) {
    broker_->Terminate();
    status.Update(broker_->Join(kStopPatience));
  }
  if (!status.ok()) return status;
  const absl::StatusOr<card::Usage> usage = card_->ReadUsage();
  if (usage.ok() && usage->total_used != 0) {
    return absl::InternalError(absl::StrCat(usage->total_used, " bytes are on ", card_->Uuid(),
                                            " after all workers have ended"));
  }
  return usage.status();
}

}  // namespace vrambroker::pipeline
