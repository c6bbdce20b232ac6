#include "broker/observe/probe_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::observe {
namespace {

// Adding it to a clock's reading must not overflow.
constexpr absl::Duration kLongestInterval = absl::Hours(24 * 365);

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeThread>> ProbeThread::Start(
    std::vector<std::unique_ptr<DriverProbe>> probes, Callback callback, const Options& options) {
  if (options.interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("interval between readings is ",
                                                   absl::FormatDuration(options.interval),
                                                   ", must be above 0"));
  }
  if (callback == nullptr) return absl::InvalidArgumentError("no callback for readings");
  if (probes.size() > kMaxProbes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(probes.size(), " devices to read, at most ", kMaxProbes));
  }
  for (size_t i = 0; i < probes.size(); ++i) {
    if (probes[i] == nullptr) return absl::InvalidArgumentError("a probe is null");
    for (size_t j = 0; j < i; ++j) {
      if (probes[i]->Uuid() == probes[j]->Uuid()) {
        return absl::InvalidArgumentError(
            absl::StrCat("device \"", probes[i]->Uuid(), "\" is given twice"));
      }
    }
  }
  return std::unique_ptr<ProbeThread>(
      new ProbeThread(std::move(probes), std::move(callback), options));
}

ProbeThread::ProbeThread(std::vector<std::unique_ptr<DriverProbe>> probes, Callback callback,
                         const Options& options)
    : callback_(std::move(callback)),
      interval_(absl::ToChronoNanoseconds(std::min(options.interval, kLongestInterval))) {
  for (auto& probe : probes) slots_.push_back({std::move(probe), SteadyTime::min()});
  thread_ = std::thread([this] { Run(); });
}

ProbeThread::~ProbeThread() { Stop(); }

absl::Status ProbeThread::RequestReading(const std::string& uuid) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) return absl::CancelledError("readings have been stopped");
  for (Slot& slot : slots_) {
    if (slot.probe->Uuid() != uuid) continue;
    slot.due = std::min(slot.due, std::chrono::steady_clock::now());
    changed_.notify_all();
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("no probe reads device \"", uuid, "\""));
}

void ProbeThread::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  std::lock_guard<std::mutex> lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void ProbeThread::Run() {
  const auto earlier = [](const Slot& a, const Slot& b) { return a.due < b.due; };
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const auto next = std::min_element(slots_.begin(), slots_.end(), earlier);
    if (next == slots_.end()) {
      changed_.wait(lock);
      continue;
    }
    const SteadyTime now = std::chrono::steady_clock::now();
    if (next->due > now) {
      changed_.wait_until(lock, next->due);
      continue;
    }
    next->due = now + interval_;
    lock.unlock();
    const absl::StatusOr<DriverReading> reading = next->probe->Read();
    lock.lock();
    if (stopping_) break;
    lock.unlock();
    callback_(next->probe->Uuid(), reading);
    lock.lock();
  }
}

}  // namespace vrambroker::observe
