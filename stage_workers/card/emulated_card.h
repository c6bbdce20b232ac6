// A card made of shared memory: real allocation across processes, real copies over one shared link.
//
// A card NAME is the file /dev/shm/vram-card-NAME: a header and memory of the card's size, of which
// only what is copied to takes room. All processes that open it share its memory and its link, must
// run in one pid namespace, and see of each other what the processes of a GPU see: allocations fail
// when the card is full, and a process's memory comes back when it dies, however it dies.
#ifndef VRAMBROKER_STAGE_WORKERS_CARD_EMULATED_CARD_H_
#define VRAMBROKER_STAGE_WORKERS_CARD_EMULATED_CARD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "stage_workers/card/card.h"

namespace vrambroker::card {

// Most bytes of a card: 1 TiB.
inline constexpr int64_t kMaxCapacityBytes = int64_t{1} << 40;

struct EmulatedCardOptions {
  // Size in bytes, 1 to kMaxCapacityBytes. All processes must agree on it.
  int64_t capacity_bytes = 0;
  // Rate of the link, in bytes a second, for each direction and all processes together. 0 on a new
  // card: copies are not paced; on one that exists: its rate stays as it is.
  double h2d_bytes_per_second = 0;
  // How much later than it happens readers see memory go, and memory of a dead process really comes
  // back (counted from when the death was noticed). Absent on a new card: 0; on one that exists:
  // stays as it is. 0 to 1 hour.
  std::optional<absl::Duration> usage_lag = std::nullopt;
};

// Faults of this process's card object, for tests. All counts are of coming calls.
struct EmulatedFaults {
  // Allocations that fail with RESOURCE_EXHAUSTED, after `allocations_before_failing` that do not.
  int failing_allocations = 0;
  int allocations_before_failing = 0;
  // Copies (either direction) that end with INTERNAL, after `copies_before_failing` that do not.
  int failing_copies = 0;
  int copies_before_failing = 0;
  // Every PinHost is refused while set.
  bool refuse_pin = false;
};

class EmulatedCard : public Card {
 public:
  // Bounds of one card, for all processes together: allocations past kMaxBlocks, and processes past
  // kMaxOwners, are answered RESOURCE_EXHAUSTED.
  static constexpr int kMaxBlocks = 8192;
  static constexpr int kMaxOwners = 256;

  // Opens the card NAME and makes it first where there is none. An existing one of another size is
  // FAILED_PRECONDITION, naming both sizes. Names have 1 to 100 letters, digits, '.', '-' and '_'.
  static absl::StatusOr<std::unique_ptr<EmulatedCard>> Create(const std::string& name,
                                                              const EmulatedCardOptions& options);
  // Opens an existing card; NOT_FOUND where there is none.
  static absl::StatusOr<std::unique_ptr<EmulatedCard>> Open(const std::string& name);
  // Removes the card's name and, once nobody has it open, its memory. OK where there is none.
  static absl::Status Remove(const std::string& name);
  // Removes a card that no living process has open: what one left that was killed. Whether it did;
  // false where there is none, it is in use, or the file is no card or not ours to remove.
  static bool RemoveUnused(const std::string& name);
  // The NAME of "emulated:NAME"; empty for any other uuid.
  static std::string NameOfUuid(const std::string& uuid);

  // Gives back all that this object allocated. A forked child opens the card for itself.
  ~EmulatedCard() override;

  const std::string& Uuid() const override;
  int64_t CapacityBytes() const override;
  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override;
  absl::Status Free(DeviceBuffer buffer) override;
  absl::StatusOr<Event> CopyToDevice(DeviceBuffer buffer, absl::Span<const HostPiece> pieces,
                                     const CopyOptions& options) override;
  absl::Status CopyToHost(void* destination, DeviceBuffer buffer, int64_t offset,
                          int64_t bytes) override;
  absl::Status ComputeLayer(DeviceBuffer buffer, Activations activations,
                            absl::Duration duration) override;
  absl::StatusOr<Usage> ReadUsage() override;
  // Locks the pages as they are touched (mlock2), within the process's RLIMIT_MEMLOCK. The rate of
  // copies is the same for pinned and pageable memory here.
  absl::Status PinHost(void* address, int64_t bytes) override;
  absl::Status UnpinHost(void* address, int64_t bytes) override;

  // Backs the whole card with memory and maps it in this process, so that first copies run at the
  // link's rate too. Takes as much memory as the card is large, and about a second for 1 GiB.
  void Prefault();
  // Rate of the link in bytes a second; 0: not paced.
  double LinkBytesPerSecond() const;
  void SetFaults(const EmulatedFaults& faults);

 private:
  class Impl;
  explicit EmulatedCard(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace vrambroker::card

#endif  // VRAMBROKER_STAGE_WORKERS_CARD_EMULATED_CARD_H_
