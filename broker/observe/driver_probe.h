// What a driver says is used on a device, by whoever uses it.
#ifndef VRAMBROKER_BROKER_OBSERVE_DRIVER_PROBE_H_
#define VRAMBROKER_BROKER_OBSERVE_DRIVER_PROBE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "stage_workers/card/emulated_card.h"

namespace vrambroker::observe {

struct ProcessUsage {
  // As the driver names it: in a container usually the host's, which matches nobody's here.
  int32_t pid = 0;
  // 0 or more. Counts what the driver books for the process, its context included.
  int64_t bytes = 0;
};

// One reading. The driver was asked after `begin` and had answered before `end`: what changed in
// between may be in it or not.
struct DriverReading {
  absl::Time begin;
  absl::Time end;
  // Size of the device in bytes, what the driver keeps for itself included. Above 0.
  int64_t capacity_bytes = 0;
  // Bytes that nobody else can have, 0 to capacity: of all processes and of the driver itself.
  int64_t total_used_bytes = 0;
  // What the driver keeps for itself, part of total_used_bytes. 0: none, or not told apart.
  int64_t driver_reserved_bytes = 0;
  // Whether `processes` holds every process that computes on the device, with its bytes. False: the
  // driver tells totals only (or not everybody's), and `processes` is empty.
  bool by_process = false;
  // Ordered by pid, each pid once.
  std::vector<ProcessUsage> processes;
  // Where they are listed: of total_used_bytes, what is nobody's on the list all through the
  // reading. The driver's own part, programs that do not compute, those that it hides. 0 or more.
  int64_t unlisted_bytes = 0;
};

// A device that can be asked. Read() may be called by one thread at a time.
class DriverProbe {
 public:
  virtual ~DriverProbe() = default;
  // "GPU-...", "MIG-..." or "emulated:NAME". Does not change.
  virtual const std::string& Uuid() const = 0;
  // Asks the driver. An error is no reading: what is used is then not known, which is not 0.
  virtual absl::StatusOr<DriverReading> Read() = 0;
};

// Most bytes of an emulated card: 1 TiB.
inline constexpr int64_t kMaxEmulatedBytes = card::kMaxCapacityBytes;

// Reads an emulated card, as NvmlProbe (nvml_probe.h) reads a real one.
class EmulatedProbe : public DriverProbe {
 public:
  // Opens the card NAME, which must exist: NOT_FOUND otherwise.
  static absl::StatusOr<std::unique_ptr<EmulatedProbe>> Open(const std::string& name);
  // Reads through a card that the caller has opened. Never null.
  explicit EmulatedProbe(std::unique_ptr<card::EmulatedCard> card);

  const std::string& Uuid() const override;
  absl::StatusOr<DriverReading> Read() override;

 private:
  std::unique_ptr<card::EmulatedCard> card_;
};

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_BROKER_OBSERVE_DRIVER_PROBE_H_
