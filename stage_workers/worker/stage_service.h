// The StageWorker service over a Worker.
#ifndef VRAMBROKER_STAGE_WORKERS_WORKER_STAGE_SERVICE_H_
#define VRAMBROKER_STAGE_WORKERS_WORKER_STAGE_SERVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "stage_workers/worker/worker.h"
#include "vrambroker/v1/stage.grpc.pb.h"

namespace vrambroker::worker {

// Bounds of a RunStageRequest, as stage.proto says.
inline constexpr int kMaxPasses = 1'000'000;
inline constexpr int kMaxStages = 64;
inline constexpr size_t kMaxShapeBytes = 64;
inline constexpr int64_t kMaxActivationMessage = 1 << 20;

// A request as the worker takes it, or INVALID_ARGUMENT. `now` and the call's own deadline bound
// the wait for admission.
absl::StatusOr<StageRequest> ToStageRequest(const v1::RunStageRequest& request, absl::Time now,
                                            absl::Time call_deadline);
v1::RunStageResponse ToResponse(const StageResult& result, int layers);

// Serves a worker over a Unix socket until it is destroyed. The socket's path has a lock beside it
// (PATH.lock), so that a second server is refused instead of taking the first one's place.
class StageServer {
 public:
  // `address` is unix:PATH; `worker` outlives the server. INVALID_ARGUMENT for another address or a
  // path that is too long; ALREADY_EXISTS where another process serves it, UNAVAILABLE where it
  // cannot be listened on.
  static absl::StatusOr<std::unique_ptr<StageServer>> Start(Worker* worker,
                                                            const std::string& address);
  // Refuses new calls, lets running ones end until `grace` has passed, then cancels them and waits.
  void Stop(absl::Duration grace);
  ~StageServer();
  // The socket and what lies beside it, for a process that ends without destroying this.
  std::vector<std::string> Files() const;

 private:
  class Impl;
  explicit StageServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_STAGE_WORKERS_WORKER_STAGE_SERVICE_H_
