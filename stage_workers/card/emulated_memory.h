// The shared memory of an emulated card: its layout, its allocator and its link.
#ifndef VRAMBROKER_STAGE_WORKERS_CARD_EMULATED_MEMORY_H_
#define VRAMBROKER_STAGE_WORKERS_CARD_EMULATED_MEMORY_H_

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stage_workers/card/card.h"
#include "stage_workers/card/emulated_card.h"

namespace vrambroker::card {

// Memory is given out in pages that need not follow each other, so that whether an allocation fits
// depends on bytes alone, as with a GPU's virtual addresses. Bytes are accounted exactly as asked
// for; what blocks waste of their last page is provided for in pages beyond the capacity.
inline constexpr int64_t kPageBytes = 64 << 10;

struct Process {
  pid_t pid = 0;
  uint64_t start_ticks = 0;

  friend bool operator==(const Process&, const Process&) = default;
};

// Direction of a copy. Each has the link's full rate.
enum class Direction { kToDevice, kToHost };

class EmulatedMemory {
 public:
  struct Allocation {
    int block = -1;
    std::vector<uint32_t> pages;
  };

  static absl::StatusOr<std::unique_ptr<EmulatedMemory>> Create(const std::string& name,
                                                                const EmulatedCardOptions& options);
  static absl::StatusOr<std::unique_ptr<EmulatedMemory>> Open(const std::string& name);
  static absl::Status Remove(const std::string& name);
  static bool RemoveUnused(const std::string& name);
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  int64_t capacity() const { return header_->capacity; }
  double rate() const { return header_->rate.load(std::memory_order_relaxed); }

  absl::StatusOr<Allocation> Allocate(const Process& owner, int64_t bytes);
  // `allocation` was made by `owner` and not freed. Scribbles over the lines that compute samples.
  void Free(const Process& owner, const Allocation& allocation);
  // UNAVAILABLE where the lock cannot be had: a process was stopped while it held it.
  absl::StatusOr<Usage> ReadUsage();

  char* Page(uint32_t page) const { return data_ + page * kPageBytes; }
  // Says that a page was written to, and so is worth scribbling over when it is freed.
  void Touch(uint32_t page) { touched_[page].store(1, std::memory_order_relaxed); }

  // Backs `count` pages from `first` on with memory and maps them in this process, in one go: a
  // fault for each 4 KiB would cost as much as the copy. Does nothing for pages that were mapped
  // here before. What cannot be had shows as a fault later.
  void MapPages(uint32_t first, uint32_t count);
  // The same for as many pages as the capacity has.
  void MapAll() { MapPages(0, static_cast<uint32_t>((capacity() + kPageBytes - 1) / kPageBytes)); }

  // Takes the link for `bytes`, after all that was reserved before; returns when they have passed,
  // in nanoseconds of the monotonic clock.
  int64_t ReserveLink(Direction direction, int64_t bytes);

 private:
  enum class BlockState : uint32_t {
    kFree = 0,
    kUsed,
    // The owner is dead; memory comes back at `until`.
    kDying,
    // Freed already; readers see the bytes until `until`. Has no pages.
    kLingering,
  };
  struct Block {
    BlockState state;
    uint32_t owner;
    uint32_t first_page;
    uint32_t page_count;
    int64_t bytes;
    int64_t until;
  };
  struct Header {
    char magic[8];
    uint32_t layout;
    uint32_t page_count;
    int64_t capacity;
    int64_t segment_bytes;
    std::atomic<double> rate;
    std::atomic<int64_t> lag_nanos;
    // When the link is free again, for each direction.
    std::atomic<int64_t> link_free_at[2];
    std::atomic<int64_t> next_check;
    pthread_mutex_t mutex;
    // Pages from `fresh_page` on were never used. `free_head` begins the chain of free ones below.
    uint32_t fresh_page;
    uint32_t free_head;
    // Blocks from here on were never used.
    uint32_t block_limit;
    // Highest bytes in use at once.
    int64_t peak_used;
    Process owners[EmulatedCard::kMaxOwners];
    Block blocks[EmulatedCard::kMaxBlocks];
  };
  static constexpr uint32_t kNoPage = 0xffffffff;
  enum class Patience { kForever, kSeconds };
  class Locked;

  EmulatedMemory(std::string name, char* map, int64_t map_bytes, int file);

  static int64_t SegmentBytes(int64_t capacity);
  static uint32_t PageCount(int64_t capacity);
  static absl::StatusOr<std::unique_ptr<EmulatedMemory>> Map(const std::string& name, int fd);
  static absl::Status MakeSegment(const std::string& name, const EmulatedCardOptions& options);
  void Initialize(const EmulatedCardOptions& options);

  // The following require the lock.
  void Repair();
  void Expire(int64_t now);
  void MarkDead(const std::vector<Process>& dead, int64_t now);
  void ReleasePages(const Block& block);
  int64_t UsedBytes() const;
  int FindBlock();
  int FindOwner(const Process& owner);
  void ForgetLingering(uint32_t owner, int64_t bytes);
  std::vector<uint32_t> TakePages(uint32_t count);

  // These take the lock.
  absl::StatusOr<Allocation> TryAllocate(const Process& owner, int64_t bytes);
  // Looks for owners that died. Unless `now_please`, at most every kCheckNanos. False if the lock
  // could not be had.
  bool CheckOwners(bool now_please, Patience patience);

  const std::string name_;
  // Open, and locked for sharing, as long as this object: whoever can lock it alone knows that
  // nobody uses the card, however its users ended. Below 0: a card that is being made.
  const int file_;
  char* const map_;
  const int64_t map_bytes_;
  Header* const header_;
  uint32_t* const next_page_;
  std::atomic<uint8_t>* const touched_;
  char* const data_;
  // Pages that MapPages has mapped in this process.
  std::vector<std::atomic<uint8_t>> mapped_;
};

}  // namespace vrambroker::card

#endif  // VRAMBROKER_STAGE_WORKERS_CARD_EMULATED_MEMORY_H_
