// A card to allocate on, copy to and compute on: the one interface of the emulated card and of
// CUDA.
#ifndef VRAMBROKER_STAGE_WORKERS_CARD_CARD_H_
#define VRAMBROKER_STAGE_WORKERS_CARD_CARD_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace vrambroker::card {

// Memory on a card. A plain handle: copying it copies no memory, and whoever allocated it frees it.
// A copy of it with fewer bytes stands for the first of them.
struct DeviceBuffer {
  // Never 0 for a buffer that was allocated; never used twice by one Card object. 0: no buffer.
  uint64_t id = 0;
  // Size as asked for, in bytes. Above 0.
  int64_t bytes = 0;

  explicit operator bool() const { return id != 0; }
};

// Memory of a card as another process can read it.
struct Usage {
  // Size of the card in bytes.
  int64_t capacity = 0;
  // Bytes in use by everybody. At most `capacity`.
  int64_t total_used = 0;
  // Bytes in use by each process. Empty on a card that tells totals only (`pids_known` false).
  std::map<pid_t, int64_t> by_pid;
  bool pids_known = true;
  // Highest bytes in use by everybody since the card was made. 0: the card does not count them.
  int64_t peak_used = 0;
};

// A stretch of a host to device copy: `bytes` from `source` to `device_offset` of the buffer. A
// null `source` writes zeros.
struct HostPiece {
  const void* source = nullptr;
  int64_t bytes = 0;
  int64_t device_offset = 0;
};

struct CopyOptions {
  // Upper bound of the rate of this copy in bytes a second, for loading ahead beside others' work.
  // 0: the rate of the link.
  double pace_bytes_per_second = 0;
};

// A copy that was queued on the copy stream. Thread-safe.
class CopyState {
 public:
  virtual ~CopyState() = default;
  // Blocks until the copy has ended; then its outcome, the same at every call.
  virtual absl::Status Wait() = 0;
  // Whether the copy has ended, well or not. Never blocks.
  virtual bool Done() const = 0;
  // How long it had the link to itself or shared it, its place in the queue left out. Only once it
  // has ended well and was not paced; zero: not known.
  virtual absl::Duration Took() const { return absl::ZeroDuration(); }
  // Lifts the pace from what is left of the copy: somebody waits for it now.
  virtual void Hurry() {}
};
using Event = std::shared_ptr<CopyState>;

// Words of activations that a layer works on. Any multiple of kLaneBlock words; 256 is usual.
using Activations = absl::Span<uint64_t>;
inline constexpr int kLaneBlock = 8;

// Thread-safe. Buffers of one Card object are not known to another one, even in the same process.
class Card {
 public:
  virtual ~Card() = default;

  // What the device is known by everywhere: "GPU-..." or "emulated:NAME".
  virtual const std::string& Uuid() const = 0;
  virtual int64_t CapacityBytes() const = 0;

  // `bytes` must be above 0. RESOURCE_EXHAUSTED, naming asked, free and capacity, where they do not
  // fit: the card's own out of memory. Contents are undefined.
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) = 0;
  // Waits for copies to or from the buffer that are queued, then gives its memory back.
  // INVALID_ARGUMENT for a buffer that is not allocated (freed twice, another card's).
  virtual absl::Status Free(DeviceBuffer buffer) = 0;

  // Queues a copy of all pieces on the one copy stream, in which copies run in the order queued.
  // Sources stay valid and unchanged until the event has ended. INVALID_ARGUMENT where a piece lies
  // outside the buffer; RESOURCE_EXHAUSTED where the stream's queue is full.
  virtual absl::StatusOr<Event> CopyToDevice(DeviceBuffer buffer,
                                             absl::Span<const HostPiece> pieces,
                                             const CopyOptions& options) = 0;
  // Copies back after what is queued, and returns when `destination` holds the bytes.
  virtual absl::Status CopyToHost(void* destination, DeviceBuffer buffer, int64_t offset,
                                  int64_t bytes) = 0;

  // One layer: mixes the sampled lines of the buffer (see compute.h) into `activations`, then takes
  // until `duration` has passed since the call. Depends on every sampled byte, on the order of
  // layers and on nothing else: where the weights lie on the card does not matter. Does not wait
  // for copies: the caller does.
  virtual absl::Status ComputeLayer(DeviceBuffer buffer, Activations activations,
                                    absl::Duration duration) = 0;

  // Memory in use on the card, by anybody.
  virtual absl::StatusOr<Usage> ReadUsage() = 0;

  // Locks host memory for fast copies. May be refused (RESOURCE_EXHAUSTED, FAILED_PRECONDITION):
  // the memory then serves as pageable. `address` is page-aligned.
  virtual absl::Status PinHost(void* address, int64_t bytes) = 0;
  virtual absl::Status UnpinHost(void* address, int64_t bytes) = 0;
};

}  // namespace vrambroker::card

#endif  // VRAMBROKER_STAGE_WORKERS_CARD_CARD_H_
