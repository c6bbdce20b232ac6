// A caching allocator in front of a card, as frameworks have one: what is freed stays, for reuse.
#ifndef VRAMBROKER_STAGE_WORKERS_OFFLOAD_POOL_H_
#define VRAMBROKER_STAGE_WORKERS_OFFLOAD_POOL_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stage_workers/card/card.h"

namespace vrambroker::offload {

struct PoolOptions {
  // Off: what is freed goes straight back to the card, and pooled bytes are always 0.
  bool caching = true;
};

struct PoolStats {
  // Bytes asked for and not freed.
  int64_t used_bytes = 0;
  // Bytes held on the card beyond those: cached blocks, and what reused blocks have in excess.
  int64_t pooled_bytes = 0;
  // Highest used_bytes + pooled_bytes since the start or the last ResetPeak.
  int64_t peak_bytes = 0;
};

// Thread-safe. Every DeviceBuffer that it gives has the size asked for; used_bytes + pooled_bytes
// is what the card shows for this process, if nothing else here allocates on it.
class PoolAllocator {
 public:
  // Cached blocks at most; what is freed beyond them goes straight back to the card.
  static constexpr int kMaxCachedBlocks = 4096;

  // `card` outlives the pool.
  PoolAllocator(card::Card* card, const PoolOptions& options);
  // Trims. Buffers still in use are their owners' mistake and stay on the card.
  ~PoolAllocator();
  PoolAllocator(const PoolAllocator&) = delete;
  PoolAllocator& operator=(const PoolAllocator&) = delete;

  // Takes the smallest cached block that is large enough and exceeds `bytes` by an eighth at most,
  // otherwise asks the card; where that fails, trims and asks once more. Errors are the card's.
  absl::StatusOr<card::DeviceBuffer> Allocate(int64_t bytes);
  absl::Status Free(card::DeviceBuffer buffer);
  // Gives every cached block back to the card; returns the bytes given back.
  int64_t Trim();

  PoolStats Stats() const;
  void ResetPeak();
  card::Card* card() const { return card_; }

 private:
  // A block in use: what was asked for, and its size on the card.
  struct Block {
    int64_t bytes = 0;
    int64_t block_bytes = 0;
  };

  int64_t TrimLocked();

  card::Card* const card_;
  const PoolOptions options_;
  mutable std::mutex mutex_;
  // Free blocks by their size on the card.
  std::multimap<int64_t, card::DeviceBuffer> cached_;
  // By buffer id.
  std::unordered_map<uint64_t, Block> in_use_;
  int64_t used_bytes_ = 0;
  int64_t card_bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_STAGE_WORKERS_OFFLOAD_POOL_H_
