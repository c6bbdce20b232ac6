#include "tests/sim/observer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace vrambroker::simulation {
namespace {

// Pids of processes that are not ours; and what the same process is called elsewhere, beyond its
// own pid.
constexpr int32_t kFirstForeign = 900'000;
constexpr int32_t kElsewhere = 1'000'000;

}  // namespace

void Observer::Read(const std::string& device) {
  if (world_.scenario.probe == Probe::kNone) return;
  if (under_way_[device] && !world_.Fault(0.1)) return;  // as a rule one at a time
  under_way_[device] = true;
  const uint64_t reading = ++last_reading_;
  world_.time.After(world_.random.Delay(absl::Duration(), absl::Milliseconds(5)),
                    [this, device, reading] {
                      step_(core::ReadingBeganEvent{device, reading});
                      Sample(device, reading);
                    });
}

void Observer::Sample(const std::string& device, uint64_t reading) {
  Random& random = world_.random;
  world_.time.After(random.Delay(absl::Duration(), absl::Milliseconds(20)), [=, this, &random] {
    core::ReadingEvent event;
    event.device_uuid = device;
    event.reading = reading;
    event.by_process_known = world_.scenario.probe == Probe::kByProcess;
    for (const auto& [pid, bytes] : Shown(device)) {
      event.total_used += core::Bytes(bytes);
      if (!event.by_process_known || bytes == 0) continue;
      if (world_.scenario.hidden_foreign && pid >= kFirstForeign) {
        event.unlisted += core::Bytes(bytes);
      } else {
        event.by_process.emplace_back(world_.scenario.pids_elsewhere ? pid + kElsewhere : pid,
                                      core::Bytes(bytes));
      }
    }
    if (world_.Fault(world_.scenario.faults.reading_fails)) {
      event.status = absl::UnavailableError("the driver does not answer");
    }
    world_.time.After(random.Delay(absl::Duration(), absl::Milliseconds(20)), [=, this] {
      under_way_[device] = false;
      step_(event);
    });
  });
}

std::map<int32_t, int64_t> Observer::OnDevice(const std::string& device) const {
  std::map<int32_t, int64_t> bytes = physical_(device);
  if (const auto it = foreign_.find(device); it != foreign_.end()) {
    bytes.insert(it->second.begin(), it->second.end());
  }
  return bytes;
}

void Observer::Look() {
  if (world_.scenario.driver_lag == absl::ZeroDuration()) return;
  for (const core::DeviceSpec& device : world_.scenario.devices) {
    auto& history = history_[device.uuid];
    std::map<int32_t, int64_t> now = OnDevice(device.uuid);
    if (history.empty() || history.back().second != now) {
      history.emplace_back(world_.time.now(), std::move(now));
    }
    const absl::Time from = world_.time.now() - world_.scenario.driver_lag;
    while (history.size() > 1 && history[1].first <= from) history.pop_front();
  }
}

std::map<int32_t, int64_t> Observer::Shown(const std::string& device) {
  std::map<int32_t, int64_t> shown = OnDevice(device);
  for (const auto& [time, bytes] : history_[device]) {
    for (const auto& [pid, count] : bytes) shown[pid] = std::max(shown[pid], count);
  }
  return shown;
}

void Observer::ForeignChanges() {
  const auto& devices = world_.scenario.devices;
  const core::DeviceSpec& device =
      devices[static_cast<size_t>(world_.random.Below(static_cast<int>(devices.size())))];
  const int32_t pid = kFirstForeign + world_.random.Below(3);
  auto& bytes = foreign_[device.uuid];
  if (world_.random.Chance(0.5)) {
    bytes.erase(pid);
  } else {
    bytes[pid] = world_.random.Between(0, device.capacity.count() / 3);
  }
  world_.note(absl::StrCat("foreign process ", pid, " has ", bytes.contains(pid) ? bytes[pid] : 0,
                           " bytes on ", device.uuid));
}

}  // namespace vrambroker::simulation
