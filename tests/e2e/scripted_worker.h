// A worker that speaks the protocol by hand and holds real bytes on the card, for what no honest
// worker does: lying, losing its stream, dying between a grant and its first report.
#ifndef VRAMBROKER_TESTS_E2E_SCRIPTED_WORKER_H_
#define VRAMBROKER_TESTS_E2E_SCRIPTED_WORKER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "stage_workers/card/emulated_card.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::e2e {

// One component, "c", of equal layers and without a window. Not thread-safe but for Target().
class ScriptedWorker {
 public:
  struct Setup {
    std::string broker;
    std::string name;
    std::string card_uuid;
    int layers = 1;
    int64_t layer_bytes = 1 << 20;
  };

  explicit ScriptedWorker(const Setup& setup);
  // Cancels its stream.
  ~ScriptedWorker();

  // Opens a session that says it holds what is held, and waits for its welcome.
  grpc::Status Attach();
  // Cancels the stream, and until it has ended. Nothing is released.
  void CloseStream();

  struct Begun {
    grpc::Status status;
    v1::BeginUseResponse response;
  };
  // Waits for admission in the background. The future never blocks at its end: the call is
  // cancelled with this object.
  std::shared_future<Begun> BeginUse(const std::string& request_id, int64_t activation_bytes,
                                     int min_layers = 0);
  // Cancels the calls of BeginUse that wait, and sends no EndUse for them.
  void CancelBegins();
  // `held` is what the snapshot says, whatever the card has. Where that is the target of the
  // answer, the target is reported as completed.
  grpc::Status EndUse(const Begun& begun, int held, v1::EndUseResponse* response);
  // Says that `held` layers are held, and that `generation` is completed.
  grpc::Status Report(int held, uint64_t generation);

  // Newest target of the component.
  v1::Target Target() const;

  // Really on the card. Said to nobody. RESOURCE_EXHAUSTED where it is full.
  absl::Status Allocate(int64_t bytes);
  void FreeAll();

 private:
  v1::Snapshot Snapshot(int held, uint64_t generation);
  void Take(const v1::Target& target);

  const Setup setup_;
  const std::unique_ptr<v1::VramBroker::Stub> stub_;
  std::unique_ptr<card::EmulatedCard> card_;
  std::vector<card::DeviceBuffer> buffers_;
  std::unique_ptr<grpc::ClientContext> stream_;
  std::thread reader_;
  // Contexts of BeginUse calls, cancelled at the end.
  std::vector<std::shared_ptr<grpc::ClientContext>> begins_;
  std::vector<std::shared_future<Begun>> futures_;
  uint64_t session_ = 0;
  uint64_t sequence_ = 0;
  uint64_t attach_number_ = 0;
  int ended_ = 0;
  int said_held_ = 0;
  uint64_t said_generation_ = 0;
  mutable std::mutex mutex_;
  v1::Target target_;
};

}  // namespace vrambroker::e2e

#endif  // VRAMBROKER_TESTS_E2E_SCRIPTED_WORKER_H_
