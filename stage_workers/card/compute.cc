#include "stage_workers/card/compute.h"

#include <time.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace vrambroker::card {
namespace {

// Odd constants with well-spread bits (fractions of the golden ratio and of square roots).
constexpr uint64_t kMixA = 0x9e3779b97f4a7c15;
constexpr uint64_t kMixB = 0xbb67ae8584caa73b;

// A sleep may end this much late; the rest is spun. Above the usual timer slack of 50 us.
constexpr int64_t kSpinNanos = 80'000;

constexpr uint64_t RotateLeft(uint64_t value, int bits) {
  return (value << bits) | (value >> (64 - bits));
}

}  // namespace

void MixLine(const void* line, int64_t index, Activations lanes) {
  uint64_t words[kLaneBlock];
  static_assert(sizeof(words) == kLineBytes);
  std::memcpy(words, line, sizeof(words));
  const size_t blocks = lanes.size() / kLaneBlock;
  uint64_t* lane = lanes.data() + (static_cast<size_t>(index) % blocks) * kLaneBlock;
  for (int i = 0; i < kLaneBlock; ++i) {
    lane[i] = RotateLeft((lane[i] ^ words[i]) * kMixA, 29) + static_cast<uint64_t>(index);
  }
}

void FinishLayer(Activations lanes) {
  uint64_t carry = lanes.back();
  for (uint64_t& lane : lanes) {
    lane = (lane + RotateLeft(carry, 17)) * kMixB;
    lane ^= lane >> 31;
    carry = lane;
  }
}

absl::Status CheckActivations(Activations lanes) {
  if (lanes.empty() || lanes.size() % kLaneBlock != 0) {
    return absl::InvalidArgumentError(absl::StrCat("activations: ", lanes.size(),
                                                   " words given; a multiple of ", kLaneBlock,
                                                   ", not 0, is needed"));
  }
  return absl::OkStatus();
}

int64_t MonotonicNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void WaitUntilNanos(int64_t deadline) {
  if (deadline - MonotonicNanos() > kSpinNanos) {
    const int64_t until = deadline - kSpinNanos;
    const timespec at = {static_cast<time_t>(until / 1'000'000'000), until % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
    }
  }
  while (MonotonicNanos() < deadline) {
  }
}

}  // namespace vrambroker::card
