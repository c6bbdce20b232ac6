// What the outside tells the machine about a device: driver readings, with a begin, a sample and an
// end, and processes of others that come and go.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "broker/core/events.h"
#include "tests/sim/peer.h"

namespace vrambroker::simulation {

class Observer {
 public:
  using Step = std::function<void(const core::Event&)>;
  // Bytes on the device by process, now.
  using Physical = std::function<std::map<int32_t, int64_t>(const std::string& device)>;

  Observer(Surroundings* world, Physical physical, Step step)
      : world_(*world), physical_(std::move(physical)), step_(std::move(step)) {}

  // The machine wants a reading, or it is time for one.
  void Read(const std::string& device);
  // To be called after whatever may have changed what is on a device.
  void Look();

  void ForeignChanges();
  void ForeignGoes() { foreign_.clear(); }

 private:
  void Sample(const std::string& device, uint64_t reading);
  // What the driver shows: bytes that were freed less than its lag ago as well.
  std::map<int32_t, int64_t> Shown(const std::string& device);
  std::map<int32_t, int64_t> OnDevice(const std::string& device) const;

  Surroundings& world_;
  Physical physical_;
  Step step_;
  uint64_t last_reading_ = 0;
  std::map<std::string, bool> under_way_;
  std::map<std::string, std::deque<std::pair<absl::Time, std::map<int32_t, int64_t>>>> history_;
  std::map<std::string, std::map<int32_t, int64_t>> foreign_;  // by device
};

}  // namespace vrambroker::simulation
