// Driver readings as events: each begins in the order of decisions before its sample is taken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/core/events.h"
#include "broker/observe/driver_probe.h"
#include "broker/observe/probe_thread.h"
#include "broker/server/alarms.h"
#include "broker/server/clock.h"

namespace vrambroker::server {

// Thread-safe. At most one reading of a device is in flight.
class Readings {
 public:
  // Readings that are wanted begin at least this long after the one before: whoever waits for
  // memory to show asks again after each reading.
  static constexpr absl::Duration kMinGap = absl::Milliseconds(10);

  // Hands an event to the core, in order. After it the core has taken, or will take, the event.
  using Post = std::function<void(core::Event)>;

  struct Source {
    std::unique_ptr<observe::DriverProbe> probe;
    // See Device::outside_share.
    int64_t outside_share = 0;
  };

  // `alarms` is not started yet, and outlives this, as does the clock.
  Readings(const Clock& clock, Alarms* alarms, Post post);
  ~Readings();

  absl::Status Start(std::vector<Source> sources, absl::Duration interval);
  // A reading of the device is wanted soon. Never blocks; wishes merge.
  void Want(const std::string& uuid);
  // The core has taken this event: the sample may be taken.
  void Began(const core::ReadingBeganEvent& event);
  // Returns when no reading is in flight and none will be.
  void Stop();

 private:
  class AnnouncedProbe;

  // Announces a reading of the device and waits until the core knows. False: stopping.
  bool Announce(const std::string& uuid);
  void Deliver(const std::string& uuid, const absl::StatusOr<observe::DriverReading>& reading);
  // Asks for the wanted readings that may begin now.
  void RequestWanted();

  const Clock& clock_;
  Alarms* const alarms_;
  const Post post_;
  size_t alarm_ = 0;
  absl::flat_hash_map<std::string, int64_t> outside_share_;
  std::unique_ptr<observe::ProbeThread> thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  uint64_t announced_ = 0;  // the number of the newest reading, of any device
  uint64_t begun_ = 0;      // the newest that the core has taken
  absl::flat_hash_map<std::string, absl::Time> last_;
  absl::flat_hash_set<std::string> wanted_;
};

}  // namespace vrambroker::server
