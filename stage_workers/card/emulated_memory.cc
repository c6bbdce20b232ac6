// The allocator and the link; the segment itself is in emulated_segment.cc.
#include "stage_workers/card/emulated_memory.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "stage_workers/card/compute.h"
#include "stage_workers/card/process_alive.h"

namespace vrambroker::card {
namespace {

constexpr int64_t kCheckNanos = 10'000'000;
// How long a reader waits for the lock, which a process may hold that was stopped just then.
constexpr int kPatientSeconds = 2;
constexpr int kScribble = 0xa5;

}  // namespace

// Holds the card's lock. What a process that died with it left half done is repaired first.
class EmulatedMemory::Locked {
 public:
  explicit Locked(EmulatedMemory* memory, Patience patience = Patience::kForever)
      : memory_(memory) {
    pthread_mutex_t* mutex = &memory->header_->mutex;
    int result = 0;
    if (patience == Patience::kForever) {
      result = pthread_mutex_lock(mutex);
    } else {
      timespec until;
      clock_gettime(CLOCK_REALTIME, &until);
      until.tv_sec += kPatientSeconds;
      result = pthread_mutex_timedlock(mutex, &until);
    }
    held_ = result == 0 || result == EOWNERDEAD;
    if (result == EOWNERDEAD) {
      memory->Repair();
      pthread_mutex_consistent(mutex);
    } else if (result != 0 && result != ETIMEDOUT) {
      std::fprintf(stderr, "emulated card %s: its lock cannot be taken: %s\n",
                   memory->name_.c_str(), std::strerror(result));
      std::abort();
    }
  }
  ~Locked() {
    if (held_) pthread_mutex_unlock(&memory_->header_->mutex);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  // False only of a lock that was not waited for for ever.
  bool held() const { return held_; }

 private:
  EmulatedMemory* const memory_;
  bool held_ = false;
};

// A block's state is the last thing written when it is taken and the first when it is given back,
// so the blocks in use are whole whenever their process dies; free pages are all the others.
void EmulatedMemory::Repair() {
  const uint32_t fresh = std::min(header_->fresh_page, header_->page_count);
  std::vector<bool> used(fresh, false);
  header_->block_limit = EmulatedCard::kMaxBlocks;
  for (Block& block : header_->blocks) {
    if (block.state != BlockState::kUsed && block.state != BlockState::kDying) continue;
    uint32_t page = block.first_page;
    for (uint32_t i = 0; i < block.page_count && page < fresh; ++i) {
      used[page] = true;
      page = next_page_[page];
    }
  }
  header_->fresh_page = fresh;
  header_->free_head = kNoPage;
  for (uint32_t page = fresh; page-- > 0;) {
    if (used[page]) continue;
    next_page_[page] = header_->free_head;
    header_->free_head = page;
  }
}

void EmulatedMemory::ReleasePages(const Block& block) {
  if (block.page_count == 0) return;
  uint32_t last = block.first_page;
  for (uint32_t i = 1; i < block.page_count; ++i) last = next_page_[last];
  next_page_[last] = header_->free_head;
  header_->free_head = block.first_page;
}

void EmulatedMemory::Expire(int64_t now) {
  for (uint32_t i = 0; i < header_->block_limit; ++i) {
    Block& block = header_->blocks[i];
    if (block.until > now) continue;
    if (block.state == BlockState::kDying) {
      block.state = BlockState::kFree;
      ReleasePages(block);
    } else if (block.state == BlockState::kLingering) {
      block.state = BlockState::kFree;
    }
  }
}

void EmulatedMemory::MarkDead(const std::vector<Process>& dead, int64_t now) {
  for (uint32_t i = 0; i < header_->block_limit; ++i) {
    Block& block = header_->blocks[i];
    if (block.state != BlockState::kUsed) continue;
    const Process& owner = header_->owners[block.owner];
    if (std::find(dead.begin(), dead.end(), owner) == dead.end()) continue;
    block.until = now + header_->lag_nanos;
    block.state = BlockState::kDying;
  }
}

bool EmulatedMemory::CheckOwners(bool now_please, Patience patience) {
  const int64_t now = MonotonicNanos();
  if (!now_please && now < header_->next_check) return true;
  header_->next_check = now + kCheckNanos;
  std::vector<Process> owners;
  {
    Locked lock(this, patience);
    if (!lock.held()) return false;
    bool seen[EmulatedCard::kMaxOwners] = {};
    for (uint32_t i = 0; i < header_->block_limit; ++i) {
      const Block& block = header_->blocks[i];
      if (block.state != BlockState::kUsed || seen[block.owner]) continue;
      seen[block.owner] = true;
      owners.push_back(header_->owners[block.owner]);
    }
  }
  // The process table is read without the lock: it may take its time.
  std::erase_if(owners, [](const Process& owner) {
    return ProcessStartTicks(owner.pid) == owner.start_ticks;
  });
  if (owners.empty()) return true;
  Locked lock(this, patience);
  if (lock.held()) MarkDead(owners, MonotonicNanos());
  return lock.held();
}

int64_t EmulatedMemory::UsedBytes() const {
  int64_t used = 0;
  for (uint32_t i = 0; i < header_->block_limit; ++i) {
    const Block& block = header_->blocks[i];
    if (block.state == BlockState::kUsed || block.state == BlockState::kDying) used += block.bytes;
  }
  return used;
}

// A free block, or the lingering one that has the least time left. -1: none.
int EmulatedMemory::FindBlock() {
  int lingering = -1;
  for (uint32_t i = 0; i < header_->block_limit; ++i) {
    const Block& block = header_->blocks[i];
    if (block.state == BlockState::kFree) return i;
    if (block.state == BlockState::kLingering &&
        (lingering < 0 || block.until < header_->blocks[lingering].until)) {
      lingering = i;
    }
  }
  if (header_->block_limit < EmulatedCard::kMaxBlocks) return header_->block_limit++;
  return lingering;
}

// The owner's place in the table; its own, or one that no block refers to. -1: none.
int EmulatedMemory::FindOwner(const Process& owner) {
  bool referred[EmulatedCard::kMaxOwners] = {};
  for (uint32_t i = 0; i < header_->block_limit; ++i) {
    const Block& block = header_->blocks[i];
    if (block.state != BlockState::kFree) referred[block.owner] = true;
  }
  int unused = -1;
  for (int i = EmulatedCard::kMaxOwners - 1; i >= 0; --i) {
    if (header_->owners[i] == owner) return i;
    if (!referred[i]) unused = i;
  }
  if (unused >= 0) header_->owners[unused] = owner;
  return unused;
}

// What a process allocates anew within the lag stands in for what it freed: a reader that is late
// sees the most that the process had, not the sum.
void EmulatedMemory::ForgetLingering(uint32_t owner, int64_t bytes) {
  for (uint32_t i = 0; i < header_->block_limit && bytes > 0; ++i) {
    Block& block = header_->blocks[i];
    if (block.state != BlockState::kLingering || block.owner != owner) continue;
    const int64_t part = std::min(bytes, block.bytes);
    block.bytes -= part;
    bytes -= part;
    if (block.bytes == 0) block.state = BlockState::kFree;
  }
}

std::vector<uint32_t> EmulatedMemory::TakePages(uint32_t count) {
  std::vector<uint32_t> pages;
  pages.reserve(count);
  while (pages.size() < count && header_->free_head != kNoPage) {
    pages.push_back(header_->free_head);
    header_->free_head = next_page_[header_->free_head];
  }
  while (pages.size() < count && header_->fresh_page < header_->page_count) {
    pages.push_back(header_->fresh_page++);
  }
  for (size_t i = 0; i + 1 < pages.size(); ++i) next_page_[pages[i]] = pages[i + 1];
  return pages;
}

absl::StatusOr<EmulatedMemory::Allocation> EmulatedMemory::TryAllocate(const Process& owner,
                                                                       int64_t bytes) {
  Locked lock(this);
  Expire(MonotonicNanos());
  const int64_t free = header_->capacity - UsedBytes();
  if (bytes > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("emulated card ", name_, ": out of memory: ", bytes, " bytes asked for, ",
                     free, " of ", header_->capacity, " free"));
  }
  const int block = FindBlock();
  if (block < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("emulated card ", name_, ": all ",
                                                     EmulatedCard::kMaxBlocks,
                                                     " blocks are in use: free some first"));
  }
  header_->blocks[block].state = BlockState::kFree;
  const int place = FindOwner(owner);
  if (place < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("emulated card ", name_, ": all ",
                                                     EmulatedCard::kMaxOwners,
                                                     " places for processes are in use"));
  }
  if (header_->lag_nanos > 0) ForgetLingering(place, bytes);
  Allocation allocation;
  allocation.block = block;
  allocation.pages = TakePages(static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes));
  header_->blocks[block] = {.state = BlockState::kFree,
                            .owner = static_cast<uint32_t>(place),
                            .first_page = allocation.pages.front(),
                            .page_count = static_cast<uint32_t>(allocation.pages.size()),
                            .bytes = bytes,
                            .until = 0};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  header_->blocks[block].state = BlockState::kUsed;
  header_->peak_used = std::max(header_->peak_used, header_->capacity - free + bytes);
  return allocation;
}

absl::StatusOr<EmulatedMemory::Allocation> EmulatedMemory::Allocate(const Process& owner,
                                                                    int64_t bytes) {
  CheckOwners(/*now_please=*/false, Patience::kForever);
  absl::StatusOr<Allocation> allocation = TryAllocate(owner, bytes);
  if (allocation.ok()) return allocation;
  CheckOwners(/*now_please=*/true, Patience::kForever);
  return TryAllocate(owner, bytes);
}

void EmulatedMemory::Free(const Process& owner, const Allocation& allocation) {
  for (uint32_t page : allocation.pages) {
    if (touched_[page].exchange(0, std::memory_order_relaxed) == 0) continue;
    for (int64_t at = 0; at < kPageBytes; at += kSampleStride) {
      std::memset(Page(page) + at, kScribble, kLineBytes);
    }
  }
  Locked lock(this);
  Block& block = header_->blocks[allocation.block];
  const Process& known = header_->owners[block.owner];
  if (block.state != BlockState::kUsed || !(known == owner) ||
      block.first_page != allocation.pages.front()) {
    std::fprintf(stderr, "emulated card %s: a block of process %d is gone\n", name_.c_str(),
                 static_cast<int>(owner.pid));
    std::abort();
  }
  block.state = BlockState::kFree;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  ReleasePages(block);
  if (header_->lag_nanos == 0) return;
  block.until = MonotonicNanos() + header_->lag_nanos;
  block.page_count = 0;
  block.state = BlockState::kLingering;
}

absl::StatusOr<Usage> EmulatedMemory::ReadUsage() {
  const auto stuck = [this] {
    return absl::UnavailableError(
        absl::StrCat("emulated card ", name_, ": a process has held its lock for ", kPatientSeconds,
                     " s (it may be stopped): memory in use is not known"));
  };
  if (!CheckOwners(/*now_please=*/true, Patience::kSeconds)) return stuck();
  Usage usage;
  Locked lock(this, Patience::kSeconds);
  if (!lock.held()) return stuck();
  Expire(MonotonicNanos());
  usage.capacity = header_->capacity;
  usage.peak_used = header_->peak_used;
  for (uint32_t i = 0; i < header_->block_limit; ++i) {
    const Block& block = header_->blocks[i];
    if (block.state == BlockState::kFree) continue;
    usage.total_used += block.bytes;
    usage.by_pid[header_->owners[block.owner].pid] += block.bytes;
  }
  usage.total_used = std::min(usage.total_used, usage.capacity);
  return usage;
}

void EmulatedMemory::MapPages(uint32_t first, uint32_t count) {
  const uint32_t end = first + count;
  while (first < end) {
    // The next stretch of pages that are not mapped.
    if (mapped_[first].load(std::memory_order_relaxed) != 0) {
      ++first;
      continue;
    }
    uint32_t last = first;
    while (last < end && mapped_[last].exchange(1, std::memory_order_relaxed) == 0) ++last;
    (void)madvise(Page(first), (last - first) * kPageBytes, MADV_POPULATE_WRITE);
    first = last;
  }
}

int64_t EmulatedMemory::ReserveLink(Direction direction, int64_t bytes) {
  const int64_t now = MonotonicNanos();
  const double rate = header_->rate.load(std::memory_order_relaxed);
  if (rate <= 0) return now;
  const int64_t takes = static_cast<int64_t>(bytes / rate * 1e9);
  std::atomic<int64_t>& free_at = header_->link_free_at[static_cast<int>(direction)];
  int64_t seen = free_at.load(std::memory_order_relaxed);
  int64_t end = 0;
  do {
    end = std::max(seen, now) + takes;
  } while (!free_at.compare_exchange_weak(seen, end, std::memory_order_relaxed));
  return end;
}

}  // namespace vrambroker::card
