// The copy of a component's layers on the host: pinned, pageable, or given back.
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "stage_workers/offload/component.h"

namespace vrambroker::offload {

int64_t StreamedComponent::pin_bytes() const {
  if (map_.file == nullptr) return 0;
  const int64_t page = sysconf(_SC_PAGESIZE);
  return (map_.file->mapping_bytes() + page - 1) / page * page;
}

absl::Status StreamedComponent::PinHostCopy() {
  if (absl::Status status = CheckIdle("PinHostCopy"); !status.ok()) return status;
  if (tier_ == HostTier::kPinned) return absl::OkStatus();
  if (map_.file == nullptr || !has_host_copy_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "component ", options_.name, ": PinHostCopy: its layers have no copy on the host"));
  }
  pin_status_ = card_->PinHost(map_.file->mapping(), map_.file->mapping_bytes());
  if (pin_status_.ok()) tier_ = HostTier::kPinned;
  return pin_status_;
}

void StreamedComponent::UnpinHostCopy() {
  if (tier_ != HostTier::kPinned) return;
  (void)card_->UnpinHost(map_.file->mapping(), map_.file->mapping_bytes());
  tier_ = HostTier::kPageable;
}

// Gives the pages of the layers back to the system; parts of pages that others share stay.
void StreamedComponent::DropHostCopy() {
  UnpinHostCopy();
  const uintptr_t page = sysconf(_SC_PAGESIZE);
  for (const Layer& layer : map_.layers) {
    for (const card::HostPiece& piece : layer.tensors.pieces) {
      const uintptr_t source = reinterpret_cast<uintptr_t>(piece.source);
      if (source == 0) continue;
      const uintptr_t begin = (source + page - 1) / page * page;
      const uintptr_t end = (source + piece.bytes) / page * page;
      if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
  }
  has_host_copy_ = false;
}

}  // namespace vrambroker::offload
