#include "stage_workers/card/cuda_card.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "stage_workers/card/compute.h"

namespace vrambroker::card {
namespace {

// What a paced copy moves at a time.
constexpr int64_t kChunkBytes = 4 << 20;

absl::Status ToStatus(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const std::string text = absl::StrCat(what, ": ", cudaGetErrorString(error), " (CUDA error ",
                                        static_cast<int>(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(text);
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      return absl::UnavailableError(text);
    case cudaErrorInvalidValue:
      return absl::InvalidArgumentError(text);
    default:
      return absl::InternalError(text);
  }
}

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += hex;
  }
  return text;
}

// Lets a paced copy go on in time; shared by the event and the stream's callbacks.
struct Pace {
  std::mutex mutex;
  std::condition_variable changed;
  bool hurried = false;

  void SleepUntil(int64_t deadline) {
    const std::chrono::steady_clock::time_point at{std::chrono::nanoseconds(deadline)};
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait_until(lock, at, [this] { return hurried; });
  }
  void Hurry() {
    std::lock_guard<std::mutex> lock(mutex);
    hurried = true;
    changed.notify_all();
  }
};

// One wait of a paced copy, run by the stream between two chunks.
struct PaceStep {
  std::shared_ptr<Pace> pace;
  int64_t deadline;
};
void CUDART_CB RunPaceStep(void* argument) {
  std::unique_ptr<PaceStep> step(static_cast<PaceStep*>(argument));
  step->pace->SleepUntil(step->deadline);
}

class CudaEvent : public CopyState {
 public:
  // `began` is recorded before the copy, `event` after it.
  CudaEvent(cudaEvent_t began, cudaEvent_t event, std::shared_ptr<Pace> pace)
      : began_(began), event_(event), pace_(std::move(pace)) {}
  ~CudaEvent() override {
    cudaEventDestroy(began_);
    cudaEventDestroy(event_);
  }

  absl::Status Wait() override { return ToStatus(cudaEventSynchronize(event_), "copy to device"); }
  bool Done() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  absl::Duration Took() const override {
    float milliseconds = 0;
    if (pace_ != nullptr || cudaEventElapsedTime(&milliseconds, began_, event_) != cudaSuccess) {
      return absl::ZeroDuration();
    }
    return absl::Milliseconds(static_cast<double>(milliseconds));
  }
  void Hurry() override {
    if (pace_ != nullptr) pace_->Hurry();
  }

 private:
  const cudaEvent_t began_;
  const cudaEvent_t event_;
  const std::shared_ptr<Pace> pace_;
};

class CudaCard : public Card {
 public:
  CudaCard(int device, std::string uuid, int64_t capacity, cudaStream_t stream)
      : device_(device), uuid_(std::move(uuid)), capacity_(capacity), stream_(stream) {}
  ~CudaCard() override {
    cudaSetDevice(device_);
    cudaStreamSynchronize(stream_);
    for (const auto& [id, buffer] : buffers_) cudaFree(buffer.address);
    cudaStreamDestroy(stream_);
  }

  const std::string& Uuid() const override { return uuid_; }
  int64_t CapacityBytes() const override { return capacity_; }
  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override;
  absl::Status Free(DeviceBuffer buffer) override;
  absl::StatusOr<Event> CopyToDevice(DeviceBuffer buffer, absl::Span<const HostPiece> pieces,
                                     const CopyOptions& options) override;
  absl::Status CopyToHost(void* destination, DeviceBuffer buffer, int64_t offset,
                          int64_t bytes) override;
  absl::Status ComputeLayer(DeviceBuffer buffer, Activations activations,
                            absl::Duration duration) override;
  absl::StatusOr<Usage> ReadUsage() override;
  absl::Status PinHost(void* address, int64_t bytes) override;
  absl::Status UnpinHost(void* address, int64_t bytes) override;

 private:
  struct Buffer {
    char* address = nullptr;
    int64_t bytes = 0;
  };

  // The device address of a stretch that lies within a buffer.
  absl::StatusOr<char*> Find(DeviceBuffer buffer, int64_t offset, int64_t bytes);
  absl::Status QueuePiece(char* device, const HostPiece& piece, double pace,
                          const std::shared_ptr<Pace>& paced, int64_t start, int64_t& done);

  const int device_;
  const std::string uuid_;
  const int64_t capacity_;
  const cudaStream_t stream_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Buffer> buffers_;
};

std::atomic<uint64_t> next_buffer_id{1};

absl::StatusOr<DeviceBuffer> CudaCard::Allocate(int64_t bytes) {
  if (bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(uuid_, ": ", bytes, " bytes asked for; more than 0 are needed"));
  }
  cudaSetDevice(device_);
  void* address = nullptr;
  if (const cudaError_t error = cudaMalloc(&address, bytes); error != cudaSuccess) {
    (void)cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return ToStatus(error, absl::StrCat(uuid_, ": ", bytes, " bytes asked for, ", free, " of ",
                                        capacity_, " free"));
  }
  const DeviceBuffer buffer = {.id = next_buffer_id++, .bytes = bytes};
  std::lock_guard<std::mutex> lock(mutex_);
  buffers_[buffer.id] = {static_cast<char*>(address), bytes};
  return buffer;
}

absl::Status CudaCard::Free(DeviceBuffer buffer) {
  Buffer known;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = buffers_.find(buffer.id);
    if (found == buffers_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(uuid_, ": buffer ", buffer.id, " is not allocated on this card"));
    }
    known = found->second;
    buffers_.erase(found);
  }
  cudaSetDevice(device_);
  // Waits for the device by itself.
  return ToStatus(cudaFree(known.address), absl::StrCat(uuid_, ": free"));
}

absl::StatusOr<char*> CudaCard::Find(DeviceBuffer buffer, int64_t offset, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = buffers_.find(buffer.id);
  if (found == buffers_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(uuid_, ": buffer ", buffer.id, " is not allocated on this card"));
  }
  const int64_t size = found->second.bytes;
  if (bytes < 0 || offset < 0 || bytes > size || offset > size - bytes) {
    return absl::InvalidArgumentError(absl::StrCat(uuid_, ": a copy of ", bytes, " bytes at ",
                                                   offset, " lies outside a buffer of ", size));
  }
  return found->second.address + offset;
}

// Queues one piece; with a pace, chunk by chunk with a wait in the stream before each.
absl::Status CudaCard::QueuePiece(char* device, const HostPiece& piece, double pace,
                                  const std::shared_ptr<Pace>& paced, int64_t start,
                                  int64_t& done) {
  const int64_t chunk = paced == nullptr ? std::max<int64_t>(piece.bytes, 1) : kChunkBytes;
  for (int64_t at = 0; at < piece.bytes; at += chunk) {
    const int64_t bytes = std::min(chunk, piece.bytes - at);
    const cudaError_t error =
        piece.source == nullptr
            ? cudaMemsetAsync(device + at, 0, bytes, stream_)
            : cudaMemcpyAsync(device + at, static_cast<const char*>(piece.source) + at, bytes,
                              cudaMemcpyHostToDevice, stream_);
    if (error != cudaSuccess) return ToStatus(error, absl::StrCat(uuid_, ": copy to device"));
    done += bytes;
    if (paced == nullptr) continue;
    auto step = std::make_unique<PaceStep>(
        PaceStep{paced, start + static_cast<int64_t>(done / pace * 1e9)});
    if (cudaLaunchHostFunc(stream_, RunPaceStep, step.get()) == cudaSuccess) step.release();
  }
  return absl::OkStatus();
}

absl::StatusOr<Event> CudaCard::CopyToDevice(DeviceBuffer buffer,
                                             absl::Span<const HostPiece> pieces,
                                             const CopyOptions& options) {
  const double pace = options.pace_bytes_per_second;
  if (!(pace >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pace_bytes_per_second: ", pace, " given; 0 or more is allowed"));
  }
  cudaSetDevice(device_);
  for (const HostPiece& piece : pieces) {
    absl::StatusOr<char*> device = Find(buffer, piece.device_offset, piece.bytes);
    if (!device.ok()) return device.status();
  }
  cudaEvent_t began, event;
  cudaError_t error = cudaEventCreate(&began);
  if (error != cudaSuccess) return ToStatus(error, absl::StrCat(uuid_, ": event"));
  error = cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
  if (error != cudaSuccess) {
    cudaEventDestroy(began);
    return ToStatus(error, absl::StrCat(uuid_, ": event"));
  }
  auto paced = pace > 0 ? std::make_shared<Pace>() : nullptr;
  auto state = std::make_shared<CudaEvent>(began, event, paced);
  error = cudaEventRecord(began, stream_);
  if (error != cudaSuccess) return ToStatus(error, absl::StrCat(uuid_, ": event"));
  const int64_t start = MonotonicNanos();
  int64_t done = 0;
  for (const HostPiece& piece : pieces) {
    absl::StatusOr<char*> device = Find(buffer, piece.device_offset, piece.bytes);
    if (!device.ok()) return device.status();
    absl::Status status = QueuePiece(*device, piece, pace, paced, start, done);
    if (!status.ok()) return status;
  }
  absl::Status status = ToStatus(cudaEventRecord(event, stream_), absl::StrCat(uuid_, ": event"));
  if (!status.ok()) return status;
  return Event(std::move(state));
}

absl::Status CudaCard::CopyToHost(void* destination, DeviceBuffer buffer, int64_t offset,
                                  int64_t bytes) {
  absl::StatusOr<char*> device = Find(buffer, offset, bytes);
  if (!device.ok()) return device.status();
  cudaSetDevice(device_);
  cudaError_t error = cudaMemcpyAsync(destination, *device, bytes, cudaMemcpyDeviceToHost, stream_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  return ToStatus(error, absl::StrCat(uuid_, ": copy to host"));
}

// The sampled lines are fetched from the device and mixed on the host, so that results equal those
// of an emulated card bit by bit without a kernel.
absl::Status CudaCard::ComputeLayer(DeviceBuffer buffer, Activations activations,
                                    absl::Duration duration) {
  const int64_t start = MonotonicNanos();
  if (absl::Status status = CheckActivations(activations); !status.ok()) return status;
  absl::StatusOr<char*> device = Find(buffer, 0, buffer.bytes);
  if (!device.ok()) return device.status();
  if (buffer.bytes < 1) return absl::InvalidArgumentError(absl::StrCat(uuid_, ": an empty layer"));
  cudaSetDevice(device_);
  const int64_t lines = SampledLines(buffer.bytes);
  std::vector<char> sample(lines * kLineBytes, 0);
  const int64_t last = (lines - 1) * kSampleStride;
  cudaError_t error = cudaSuccess;
  if (lines > 1) {
    error = cudaMemcpy2DAsync(sample.data(), kLineBytes, *device, kSampleStride, kLineBytes,
                              lines - 1, cudaMemcpyDeviceToHost, cudaStreamPerThread);
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(sample.data() + (lines - 1) * kLineBytes, *device + last,
                            std::min(kLineBytes, buffer.bytes - last), cudaMemcpyDeviceToHost,
                            cudaStreamPerThread);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
  if (error != cudaSuccess) return ToStatus(error, absl::StrCat(uuid_, ": compute"));
  for (int64_t i = 0; i < lines; ++i) MixLine(sample.data() + i * kLineBytes, i, activations);
  FinishLayer(activations);
  WaitUntilNanos(start + absl::ToInt64Nanoseconds(duration));
  return absl::OkStatus();
}

absl::StatusOr<Usage> CudaCard::ReadUsage() {
  cudaSetDevice(device_);
  size_t free = 0;
  size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) return ToStatus(error, absl::StrCat(uuid_, ": memory in use"));
  Usage usage;
  usage.capacity = static_cast<int64_t>(total);
  usage.total_used = static_cast<int64_t>(total - free);
  usage.pids_known = false;
  return usage;
}

absl::Status CudaCard::PinHost(void* address, int64_t bytes) {
  cudaSetDevice(device_);
  return ToStatus(cudaHostRegister(address, bytes, cudaHostRegisterDefault),
                  absl::StrCat(uuid_, ": pinning ", bytes, " bytes"));
}

absl::Status CudaCard::UnpinHost(void* address, int64_t bytes) {
  cudaSetDevice(device_);
  return ToStatus(cudaHostUnregister(address),
                  absl::StrCat(uuid_, ": unpinning ", bytes, " bytes"));
}

}  // namespace

bool BuiltWithCuda() { return true; }

absl::StatusOr<std::vector<std::string>> ListCudaCards() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return ToStatus(error, "no CUDA card can be used");
  std::vector<std::string> uuids;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) {
      uuids.push_back(UuidText(properties.uuid));
    }
  }
  return uuids;
}

absl::StatusOr<std::unique_ptr<Card>> OpenCudaCard(const std::string& uuid) {
  absl::StatusOr<std::vector<std::string>> uuids = ListCudaCards();
  if (!uuids.ok()) return uuids.status();
  for (int i = 0; i < static_cast<int>(uuids->size()); ++i) {
    if ((*uuids)[i] != uuid) continue;
    cudaDeviceProp properties;
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaSetDevice(i);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, i);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return ToStatus(error, uuid);
    return std::unique_ptr<Card>(std::make_unique<CudaCard>(
        i, uuid, static_cast<int64_t>(properties.totalGlobalMem), stream));
  }
  return absl::NotFoundError(
      absl::StrCat("no card ", uuid, " here; there are: ", absl::StrJoin(*uuids, ", ")));
}

}  // namespace vrambroker::card
