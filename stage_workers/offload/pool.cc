#include "stage_workers/offload/pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace vrambroker::offload {

PoolAllocator::PoolAllocator(card::Card* card, const PoolOptions& options)
    : card_(card), options_(options) {}

PoolAllocator::~PoolAllocator() { Trim(); }

absl::StatusOr<card::DeviceBuffer> PoolAllocator::Allocate(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto cached = cached_.lower_bound(bytes);
  if (bytes > 0 && cached != cached_.end() && cached->first <= bytes + bytes / 8) {
    card::DeviceBuffer buffer = cached->second;
    buffer.bytes = bytes;
    in_use_[buffer.id] = {.bytes = bytes, .block_bytes = cached->first};
    cached_.erase(cached);
    used_bytes_ += bytes;
    return buffer;
  }
  absl::StatusOr<card::DeviceBuffer> buffer = card_->Allocate(bytes);
  if (!buffer.ok() && buffer.status().code() == absl::StatusCode::kResourceExhausted &&
      TrimLocked() > 0) {
    buffer = card_->Allocate(bytes);
  }
  if (!buffer.ok()) return buffer;
  in_use_[buffer->id] = {.bytes = bytes, .block_bytes = bytes};
  used_bytes_ += bytes;
  card_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, card_bytes_);
  return buffer;
}

absl::Status PoolAllocator::Free(card::DeviceBuffer buffer) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = in_use_.find(buffer.id);
  if (found == in_use_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pool: buffer ", buffer.id, " was not allocated here, or is free already"));
  }
  const Block block = found->second;
  in_use_.erase(found);
  used_bytes_ -= block.bytes;
  buffer.bytes = block.block_bytes;
  if (options_.caching && cached_.size() < static_cast<size_t>(kMaxCachedBlocks)) {
    cached_.emplace(block.block_bytes, buffer);
    return absl::OkStatus();
  }
  card_bytes_ -= block.block_bytes;
  return card_->Free(buffer);
}

int64_t PoolAllocator::Trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  return TrimLocked();
}

int64_t PoolAllocator::TrimLocked() {
  int64_t given_back = 0;
  for (const auto& [bytes, buffer] : cached_) {
    if (card_->Free(buffer).ok()) given_back += bytes;
  }
  cached_.clear();
  card_bytes_ -= given_back;
  return given_back;
}

PoolStats PoolAllocator::Stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {.used_bytes = used_bytes_,
          .pooled_bytes = card_bytes_ - used_bytes_,
          .peak_bytes = peak_bytes_};
}

void PoolAllocator::ResetPeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  peak_bytes_ = card_bytes_;
}

}  // namespace vrambroker::offload
