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
  const int64_t page = sysconf(_SC_PAGESIZE);
  for (const Layer& layer : map_.layers) {
    for (const card::HostPiece& piece : layer.tensors.pieces) {
      auto* const source = static_cast<char*>(const_cast<void*>(piece.source));
      if (source == nullptr) continue;
      const auto into_page = static_cast<int64_t>(reinterpret_cast<uintptr_t>(source) % page);
      const int64_t skipped = into_page == 0 ? 0 : page - into_page;
      const int64_t whole = (piece.bytes - skipped) / page * page;
      if (whole > 0) madvise(source + skipped, whole, MADV_DONTNEED);
    }
  }
  has_host_copy_ = false;
}

}  // namespace vrambroker::offload
