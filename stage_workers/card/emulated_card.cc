#include "stage_workers/card/emulated_card.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stage_workers/card/compute.h"
#include "stage_workers/card/copy_stream.h"
#include "stage_workers/card/emulated_memory.h"
#include "stage_workers/card/process_alive.h"

namespace vrambroker::card {
namespace {

constexpr char kUuidPrefix[] = "emulated:";

// Ids are unique in the process, so that a buffer of one card is never taken for another's.
std::atomic<uint64_t> next_buffer_id{1};

// Takes one from a fault's counters; whether this call fails.
bool TakeFault(int& before, int& failing) {
  if (failing == 0) return false;
  if (before > 0) {
    --before;
    return false;
  }
  --failing;
  return true;
}

}  // namespace

class EmulatedCard::Impl {
 public:
  Impl(const std::string& name, std::unique_ptr<EmulatedMemory> memory)
      : uuid(kUuidPrefix + name),
        self({getpid(), ProcessStartTicks(getpid())}),
        memory(std::move(memory)),
        stream(std::make_unique<CopyStream>(this->memory.get())) {}

  ~Impl() {
    // In a forked child neither the thread nor the blocks are ours.
    if (getpid() != self.pid) {
      stream.release();  // NOLINT: its thread exists in the parent only and cannot be joined.
      return;
    }
    stream.reset();
    for (const auto& [id, buffer] : buffers) memory->Free(self, *buffer.allocation);
  }

  struct Buffer {
    std::shared_ptr<const EmulatedMemory::Allocation> allocation;
    int64_t bytes = 0;
    // The newest copy to or from it; the stream keeps order, so it ends last.
    std::shared_ptr<CopyJob> last_copy;
  };

  absl::StatusOr<std::shared_ptr<CopyJob>> Queue(Direction direction, DeviceBuffer buffer,
                                                 absl::Span<const HostPiece> pieces, double pace);
  absl::Status CheckPieces(const Buffer& buffer, absl::Span<const HostPiece> pieces,
                           Direction direction) const;
  absl::Status Unknown(DeviceBuffer buffer) const {
    return absl::InvalidArgumentError(
        absl::StrCat(uuid, ": buffer ", buffer.id, " is not allocated on this card"));
  }

  const std::string uuid;
  const Process self;
  const std::unique_ptr<EmulatedMemory> memory;
  std::unique_ptr<CopyStream> stream;
  std::mutex mutex;
  std::unordered_map<uint64_t, Buffer> buffers;
  EmulatedFaults faults;
};

absl::Status EmulatedCard::Impl::CheckPieces(const Buffer& buffer,
                                             absl::Span<const HostPiece> pieces,
                                             Direction direction) const {
  for (const HostPiece& piece : pieces) {
    if (piece.bytes < 0 || piece.device_offset < 0 || piece.bytes > buffer.bytes ||
        piece.device_offset > buffer.bytes - piece.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(uuid, ": a copy of ", piece.bytes,
                                                     " bytes at ", piece.device_offset,
                                                     " lies outside a buffer of ", buffer.bytes));
    }
    if (direction == Direction::kToHost && piece.source == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(uuid, ": a copy back has no destination"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CopyJob>> EmulatedCard::Impl::Queue(
    Direction direction, DeviceBuffer buffer, absl::Span<const HostPiece> pieces, double pace) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = buffers.find(buffer.id);
  if (found == buffers.end()) return Unknown(buffer);
  if (absl::Status status = CheckPieces(found->second, pieces, direction); !status.ok()) {
    return status;
  }
  absl::Status fault;
  if (TakeFault(faults.copies_before_failing, faults.failing_copies)) {
    fault = absl::InternalError(absl::StrCat(uuid, ": a copy failed (fault injected)"));
  }
  auto job = std::make_shared<CopyJob>(direction, found->second.allocation,
                                       std::vector<HostPiece>(pieces.begin(), pieces.end()), pace);
  if (absl::Status status = stream->Queue(job, std::move(fault)); !status.ok()) return status;
  found->second.last_copy = job;
  return job;
}

EmulatedCard::EmulatedCard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EmulatedCard::~EmulatedCard() = default;

absl::StatusOr<std::unique_ptr<EmulatedCard>> EmulatedCard::Create(
    const std::string& name, const EmulatedCardOptions& options) {
  absl::StatusOr<std::unique_ptr<EmulatedMemory>> memory = EmulatedMemory::Create(name, options);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<EmulatedCard>(
      new EmulatedCard(std::make_unique<Impl>(name, std::move(*memory))));
}

absl::StatusOr<std::unique_ptr<EmulatedCard>> EmulatedCard::Open(const std::string& name) {
  absl::StatusOr<std::unique_ptr<EmulatedMemory>> memory = EmulatedMemory::Open(name);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<EmulatedCard>(
      new EmulatedCard(std::make_unique<Impl>(name, std::move(*memory))));
}

absl::Status EmulatedCard::Remove(const std::string& name) { return EmulatedMemory::Remove(name); }

std::string EmulatedCard::NameOfUuid(const std::string& uuid) {
  const std::string prefix = kUuidPrefix;
  return uuid.compare(0, prefix.size(), prefix) == 0 ? uuid.substr(prefix.size()) : "";
}

bool EmulatedCard::RemoveUnused(const std::string& name) {
  return EmulatedMemory::RemoveUnused(name);
}

const std::string& EmulatedCard::Uuid() const { return impl_->uuid; }
int64_t EmulatedCard::CapacityBytes() const { return impl_->memory->capacity(); }
double EmulatedCard::LinkBytesPerSecond() const { return impl_->memory->rate(); }

void EmulatedCard::Prefault() { impl_->memory->MapAll(); }

void EmulatedCard::SetFaults(const EmulatedFaults& faults) {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->faults = faults;
}

absl::StatusOr<DeviceBuffer> EmulatedCard::Allocate(int64_t bytes) {
  if (bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Uuid(), ": ", bytes, " bytes asked for; more than 0 are needed"));
  }
  {
    std::lock_guard<std::mutex> lock(impl_->mutex);
    if (TakeFault(impl_->faults.allocations_before_failing, impl_->faults.failing_allocations)) {
      return absl::ResourceExhaustedError(
          absl::StrCat(Uuid(), ": out of memory: ", bytes, " bytes asked for (fault injected)"));
    }
  }
  absl::StatusOr<EmulatedMemory::Allocation> allocation =
      impl_->memory->Allocate(impl_->self, bytes);
  if (!allocation.ok()) return allocation.status();
  DeviceBuffer buffer = {.id = next_buffer_id++, .bytes = bytes};
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->buffers[buffer.id] = {
      std::make_shared<const EmulatedMemory::Allocation>(*std::move(allocation)), bytes, nullptr};
  return buffer;
}

absl::Status EmulatedCard::Free(DeviceBuffer buffer) {
  Impl::Buffer known;
  {
    std::lock_guard<std::mutex> lock(impl_->mutex);
    const auto found = impl_->buffers.find(buffer.id);
    if (found == impl_->buffers.end()) return impl_->Unknown(buffer);
    known = std::move(found->second);
    impl_->buffers.erase(found);
  }
  if (known.last_copy != nullptr) {
    known.last_copy->Hurry();
    (void)known.last_copy->Wait();
  }
  impl_->memory->Free(impl_->self, *known.allocation);
  return absl::OkStatus();
}

absl::StatusOr<Event> EmulatedCard::CopyToDevice(DeviceBuffer buffer,
                                                 absl::Span<const HostPiece> pieces,
                                                 const CopyOptions& options) {
  if (!(options.pace_bytes_per_second >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pace_bytes_per_second: ", options.pace_bytes_per_second, " given; 0 or more is allowed"));
  }
  absl::StatusOr<std::shared_ptr<CopyJob>> job =
      impl_->Queue(Direction::kToDevice, buffer, pieces, options.pace_bytes_per_second);
  if (!job.ok()) return job.status();
  return Event(*std::move(job));
}

absl::Status EmulatedCard::CopyToHost(void* destination, DeviceBuffer buffer, int64_t offset,
                                      int64_t bytes) {
  const HostPiece piece = {.source = destination, .bytes = bytes, .device_offset = offset};
  absl::StatusOr<std::shared_ptr<CopyJob>> job =
      impl_->Queue(Direction::kToHost, buffer, {&piece, 1}, 0);
  if (!job.ok()) return job.status();
  return (*job)->Wait();
}

absl::Status EmulatedCard::ComputeLayer(DeviceBuffer buffer, Activations activations,
                                        absl::Duration duration) {
  const int64_t start = MonotonicNanos();
  if (absl::Status status = CheckActivations(activations); !status.ok()) return status;
  std::shared_ptr<const EmulatedMemory::Allocation> allocation;
  {
    std::lock_guard<std::mutex> lock(impl_->mutex);
    const auto found = impl_->buffers.find(buffer.id);
    if (found == impl_->buffers.end()) return impl_->Unknown(buffer);
    if (buffer.bytes < 1 || buffer.bytes > found->second.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          Uuid(), ": a layer of ", buffer.bytes, " bytes in a buffer of ", found->second.bytes));
    }
    allocation = found->second.allocation;
  }
  const int64_t lines = SampledLines(buffer.bytes);
  for (int64_t i = 0; i < lines; ++i) {
    const int64_t at = i * kSampleStride;
    const char* device = impl_->memory->Page(allocation->pages[at / kPageBytes]) + at % kPageBytes;
    char line[kLineBytes] = {};
    std::copy_n(device, std::min(kLineBytes, buffer.bytes - at), line);
    MixLine(line, i, activations);
  }
  FinishLayer(activations);
  WaitUntilNanos(start + absl::ToInt64Nanoseconds(duration));
  return absl::OkStatus();
}

absl::StatusOr<Usage> EmulatedCard::ReadUsage() { return impl_->memory->ReadUsage(); }

absl::Status EmulatedCard::PinHost(void* address, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(impl_->mutex);
    if (impl_->faults.refuse_pin) {
      return absl::ResourceExhaustedError(
          absl::StrCat(Uuid(), ": pinning ", bytes, " bytes was refused (fault injected)"));
    }
  }
  if (mlock2(address, bytes, MLOCK_ONFAULT) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(Uuid(), ": pinning ", bytes,
                                                     " bytes was refused (errno ", errno,
                                                     "): raise the limit of locked memory"));
  }
  return absl::OkStatus();
}

absl::Status EmulatedCard::UnpinHost(void* address, int64_t bytes) {
  if (munlock(address, bytes) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Uuid(), ": ", bytes, " bytes are not pinned (errno ", errno, ")"));
  }
  return absl::OkStatus();
}

}  // namespace vrambroker::card
