// Reads devices now and then, and when asked, on a thread of its own.
#ifndef VRAMBROKER_BROKER_OBSERVE_PROBE_THREAD_H_
#define VRAMBROKER_BROKER_OBSERVE_PROBE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/observe/driver_probe.h"

namespace vrambroker::observe {

// One thread for all probes, one reading at a time: a driver that hangs delays the readings of all
// devices, never the caller of RequestReading. Thread-safe.
class ProbeThread {
 public:
  // More probes than this are refused.
  static constexpr size_t kMaxProbes = 64;

  struct Options {
    // From the begin of a device's reading to the begin of its next one without a request. Above 0;
    // a reading that takes longer is followed by the next at once.
    absl::Duration interval = absl::Seconds(1);
  };
  // Called on the thread, for each reading or failure to read, without a lock held: it may call
  // RequestReading. A new reading of any device waits until it returns.
  using Callback =
      std::function<void(const std::string& uuid, const absl::StatusOr<DriverReading>& reading)>;

  // Begins to read all devices at once. INVALID_ARGUMENT for an interval that is not above 0, two
  // probes of one uuid, a null probe or callback; RESOURCE_EXHAUSTED past kMaxProbes.
  static absl::StatusOr<std::unique_ptr<ProbeThread>> Start(
      std::vector<std::unique_ptr<DriverProbe>> probes, Callback callback, const Options& options);

  // As Stop().
  ~ProbeThread();

  // A reading of the device that begins after this call will be handed to the callback, without
  // waiting for its interval. Requests that are not yet served are one. Devices that wait are read
  // in turn: asking for one again and again keeps no other from being read. NOT_FOUND for a device
  // that has no probe; CANCELLED after Stop().
  absl::Status RequestReading(const std::string& uuid);

  // No callback begins after it returned. Waits for the one that runs, and for the driver's answer
  // to a reading that has begun. Not to be called from the callback.
  void Stop();

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Slot {
    std::unique_ptr<DriverProbe> probe;
    SteadyTime due;  // When to read it next; a request makes that now.
  };

  ProbeThread(std::vector<std::unique_ptr<DriverProbe>> probes, Callback callback,
              const Options& options);
  void Run();
  const Callback callback_;
  const std::chrono::nanoseconds interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::vector<Slot> slots_;  // Never more or fewer; `due` is under mutex_.
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_PROBE_THREAD_H_
