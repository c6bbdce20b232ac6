// Another process on an emulated card, driven by the tests over its standard input and output:
//   card_test_child NAME hold BYTES...    allocates, prints "ready", gives back when input ends
//   card_test_child NAME churn            prints "ready", allocates and frees until it is killed
//   card_test_child NAME copy BYTES       prints "ready", waits for a line, copies BYTES to the
//   card
//                                         in buffers of 4 MiB, prints begin and end in nanoseconds
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "stage_workers/card/compute.h"
#include "stage_workers/card/emulated_card.h"

namespace vrambroker::card {
namespace {

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void Say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

void AwaitInput() { (void)std::getchar(); }

void Hold(EmulatedCard& card, char** sizes, int count) {
  for (int i = 0; i < count; ++i) {
    absl::StatusOr<DeviceBuffer> buffer = card.Allocate(std::atoll(sizes[i]));
    if (!buffer.ok()) Fail(buffer.status());
  }
  Say("ready");
  AwaitInput();
}

[[noreturn]] void Churn(EmulatedCard& card) {
  Say("ready");
  std::deque<DeviceBuffer> held;
  for (int64_t i = 0;; ++i) {
    absl::StatusOr<DeviceBuffer> buffer = card.Allocate(1 + i * 7919 % 1'000'000);
    if (buffer.ok()) held.push_back(*buffer);
    if (!buffer.ok() || held.size() > 20) {
      (void)card.Free(held.front());
      held.pop_front();
    }
  }
}

void Copy(EmulatedCard& card, int64_t bytes) {
  constexpr int64_t kBufferBytes = 4 << 20;
  const std::vector<char> source(kBufferBytes, 7);
  absl::StatusOr<DeviceBuffer> buffer = card.Allocate(kBufferBytes);
  if (!buffer.ok()) Fail(buffer.status());
  Say("ready");
  AwaitInput();
  const int64_t begin = MonotonicNanos();
  Event last;
  for (int64_t done = 0; done < bytes; done += kBufferBytes) {
    const HostPiece piece = {.source = source.data(), .bytes = kBufferBytes};
    absl::StatusOr<Event> event = card.CopyToDevice(*buffer, {&piece, 1}, {});
    if (!event.ok()) Fail(event.status());
    last = *event;
  }
  if (absl::Status status = last->Wait(); !status.ok()) Fail(status);
  std::printf("%lld %lld\n", static_cast<long long>(begin),
              static_cast<long long>(MonotonicNanos()));
}

int Main(int argc, char** argv) {
  if (argc < 3) return 2;
  absl::StatusOr<std::unique_ptr<EmulatedCard>> card = EmulatedCard::Open(argv[1]);
  if (!card.ok()) Fail(card.status());
  if (std::strcmp(argv[2], "hold") == 0) Hold(**card, argv + 3, argc - 3);
  if (std::strcmp(argv[2], "churn") == 0) Churn(**card);
  if (std::strcmp(argv[2], "copy") == 0 && argc == 4) Copy(**card, std::atoll(argv[3]));
  return 0;
}

}  // namespace
}  // namespace vrambroker::card

int main(int argc, char** argv) { return vrambroker::card::Main(argc, argv); }
