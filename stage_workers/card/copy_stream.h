// The copy stream of an emulated card in one process: a thread, a queue, real copies at link rate.
#ifndef VRAMBROKER_STAGE_WORKERS_CARD_COPY_STREAM_H_
#define VRAMBROKER_STAGE_WORKERS_CARD_COPY_STREAM_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "stage_workers/card/card.h"
#include "stage_workers/card/emulated_memory.h"

namespace vrambroker::card {

// One copy. Ends when the copying thread has moved the bytes and the link has had time for them.
class CopyJob : public CopyState {
 public:
  CopyJob(Direction direction, std::shared_ptr<const EmulatedMemory::Allocation> allocation,
          std::vector<HostPiece> pieces, double pace)
      : direction(direction),
        allocation(std::move(allocation)),
        pieces(std::move(pieces)),
        pace(pace) {}

  absl::Status Wait() override;
  bool Done() const override;
  absl::Duration Took() const override;
  void Hurry() override;

  // Ends the copy: moved, and `ready_at` is when the link is through with it, which began with it
  // at `began_at`.
  void Finish(absl::Status status, int64_t began_at, int64_t ready_at);
  // Sleeps until `deadline` or until somebody hurries; whether still paced.
  bool SleepPaced(int64_t deadline);

  const Direction direction;
  const std::shared_ptr<const EmulatedMemory::Allocation> allocation;
  // For kToHost, `source` is where the bytes go.
  const std::vector<HostPiece> pieces;
  const double pace;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool hurried_ = false;
  bool moved_ = false;
  int64_t began_at_ = 0;
  int64_t ready_at_ = 0;
  absl::Status status_;
};

class CopyStream {
 public:
  // Copies queued at most.
  static constexpr size_t kMaxQueued = 8192;

  explicit CopyStream(EmulatedMemory* memory);
  // Waits for all copies.
  ~CopyStream();

  // A `fault` that is not OK is what the copy ends with instead of moving anything.
  absl::Status Queue(std::shared_ptr<CopyJob> job, absl::Status fault);

 private:
  struct Entry {
    std::shared_ptr<CopyJob> job;
    absl::Status fault;
  };

  void Run();
  void Copy(CopyJob& job);
  void MapStretch(const std::vector<uint32_t>& pages, int64_t begin, int64_t end);
  void Move(const CopyJob& job, const HostPiece& piece, int64_t offset, int64_t bytes);

  EmulatedMemory* const memory_;
  std::mutex mutex_;
  std::condition_variable queued_;
  std::deque<Entry> queue_;
  // When the link was through with the copies before. Only the thread's.
  int64_t last_ready_at_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace vrambroker::card

#endif  // VRAMBROKER_STAGE_WORKERS_CARD_COPY_STREAM_H_
