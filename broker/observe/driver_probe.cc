#include "broker/observe/driver_probe.h"

#include <utility>

#include "absl/time/clock.h"

namespace vrambroker::observe {

absl::StatusOr<std::unique_ptr<EmulatedProbe>> EmulatedProbe::Open(const std::string& name) {
  auto card = card::EmulatedCard::Open(name);
  if (!card.ok()) return card.status();
  return std::make_unique<EmulatedProbe>(*std::move(card));
}

EmulatedProbe::EmulatedProbe(std::unique_ptr<card::EmulatedCard> card) : card_(std::move(card)) {}

const std::string& EmulatedProbe::Uuid() const { return card_->Uuid(); }

absl::StatusOr<DriverReading> EmulatedProbe::Read() {
  DriverReading reading;
  reading.begin = absl::Now();
  auto usage = card_->ReadUsage();
  reading.end = absl::Now();
  if (!usage.ok()) return usage.status();
  reading.capacity_bytes = usage->capacity;
  reading.total_used_bytes = usage->total_used;
  reading.by_process = usage->pids_known;
  for (const auto& [pid, bytes] : usage->by_pid) {
    if (reading.by_process) reading.processes.push_back({pid, bytes});
  }
  return reading;
}

}  // namespace vrambroker::observe
