// The devices that a broker owns: found, locked, and ready to be read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/core/specs.h"
#include "broker/observe/charge_record.h"
#include "broker/observe/device_lock.h"
#include "broker/observe/driver_probe.h"
#include "broker/server/options.h"

namespace vrambroker::server {

// When it goes, removes an emulated card that we made; one that was there only if nobody else has
// it open.
class CardRemover {
 public:
  CardRemover() = default;
  CardRemover(std::string name, bool made) : name_(std::move(name)), made_(made) {}
  CardRemover(CardRemover&& other) noexcept
      : name_(std::exchange(other.name_, "")), made_(other.made_) {}
  CardRemover& operator=(CardRemover&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(made_, other.made_);
    return *this;
  }
  ~CardRemover();

 private:
  std::string name_;
  bool made_ = false;
};

struct Device {
  observe::FileLock lock;
  // Never null.
  std::unique_ptr<observe::ChargeRecord> record;
  core::DeviceSpec spec;
  CardRemover remover;
  std::unique_ptr<observe::DriverProbe> probe;
  // Bytes of the card that are not ours to give: 0 but for a share. Readings of a share are totals
  // beyond them.
  int64_t outside_share = 0;
};

// Opens and locks what the options name. `address` is written into the locks, for those who find
// them taken. INVALID_ARGUMENT, naming what to change, where there is no device, one is not there
// or given twice, or the reserve is as large as a device; ALREADY_EXISTS where another broker owns
// one, naming it.
absl::StatusOr<std::vector<Device>> OpenDevices(const Options& options, const std::string& address);

}  // namespace vrambroker::server
