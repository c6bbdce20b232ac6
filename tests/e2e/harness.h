// Broker and workers as real processes on an emulated card, for one test: started, killed, stopped
// and continued by it, looked at by the broker's own picture and by the card's own usage. Nothing
// of it outlives the test; the ends of all logs are printed where it failed.
#ifndef VRAMBROKER_TESTS_E2E_HARNESS_H_
#define VRAMBROKER_TESTS_E2E_HARNESS_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stage_workers/card/emulated_card.h"
#include "stage_workers/pipeline/child_process.h"
#include "stage_workers/pipeline/cleanup.h"
#include "tests/poll.h"
#include "vrambroker/v1/admin.grpc.pb.h"
#include "vrambroker/v1/stage.grpc.pb.h"

namespace vrambroker::e2e {

inline constexpr int64_t kMiB = 1 << 20;

// A channel of its own connection.
std::shared_ptr<grpc::Channel> Connect(const std::string& address);

// A process with the signals that tests send to it.
class Process {
 public:
  explicit Process(std::unique_ptr<pipeline::ChildProcess> child) : child_(std::move(child)) {}

  pid_t pid() const { return child_->pid(); }
  bool Running() { return child_->Running(); }
  // SIGKILL, and until it has been reaped.
  void Kill();
  // SIGSTOP, until every thread of it is stopped.
  void Freeze();
  // SIGCONT.
  void Thaw();
  // SIGTERM; OK if it then ends by itself with status 0 in time.
  absl::Status Terminate(absl::Duration patience);
  // As it ends by itself.
  absl::Status Join(absl::Duration patience) { return child_->Join(patience); }
  // All of its log.
  std::string Log() const;

 private:
  std::unique_ptr<pipeline::ChildProcess> child_;
};

// RunStage under way, on a thread of its own.
class StageCall {
 public:
  StageCall(const std::shared_ptr<grpc::Channel>& channel, v1::RunStageRequest request,
            absl::Duration deadline);
  // Cancels a call that has not ended.
  ~StageCall();

  bool done() const { return done_; }
  void Cancel() { context_.TryCancel(); }
  // These wait for its end.
  const grpc::Status& status();
  const v1::RunStageResponse& response();

 private:
  std::unique_ptr<v1::StageWorker::Stub> stub_;
  const v1::RunStageRequest request_;
  grpc::ClientContext context_;
  grpc::Status status_;
  v1::RunStageResponse response_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// A stage to run: activations are always the same, so that results can be compared.
v1::RunStageRequest Stage(int64_t activation_bytes = 0, int passes = 1);

// A vram-stage-worker that serves one component named like itself.
class StageWorker : public Process {
 public:
  StageWorker(std::unique_ptr<pipeline::ChildProcess> child, std::string name, std::string address)
      : Process(std::move(child)),
        name_(std::move(name)),
        address_(std::move(address)),
        channel_(Connect(address_)) {}

  // "name/name", as pictures have it.
  std::string id() const { return name_ + "/" + name_; }
  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  // In the background.
  std::unique_ptr<StageCall> Begin(const v1::RunStageRequest& request,
                                   absl::Duration deadline = absl::Seconds(60));
  // To its end; a status other than OK fails the test and gives an empty response.
  v1::RunStageResponse Run(const v1::RunStageRequest& request);
  v1::StageWorkerStatus GetStatus();
  // Of its only component.
  v1::ComponentStatus Component();
  grpc::Status ReleaseAll(v1::ReleaseAllResponse* response);

 private:
  const std::string name_;
  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
};

struct WorkerSetup {
  // Layers of equal size, bytes outside of them. The streamed window has two layers.
  int layers = 8;
  int64_t layer_bytes = kMiB;
  int64_t fixed_bytes = 0;
  double pass_seconds = 0;
  // Empty: the test's broker.
  std::string broker = {};
  std::vector<std::string> flags = {};
};

// The path of a program that is built with this one.
std::string Program(const std::string& name);

class E2eTest : public testing::Test {
 protected:
  // What a test sets before it starts anything.
  struct CardSetup {
    int64_t capacity = 20 * kMiB;
    // Bytes a second. 0: not paced.
    double rate = 0;
    absl::Duration lag = absl::ZeroDuration();
  };

  E2eTest();
  ~E2eTest() override;

  void MakeCard(const CardSetup& setup);
  // Starts a broker on the card (made as CardSetup{} where there is none yet) with no reserve and
  // short intervals; `flags` come after the harness's own. Again after the last one has ended:
  // another.
  void StartBroker(const std::vector<std::string>& flags = {});
  // The same without waiting until it answers.
  void BeginBroker(const std::vector<std::string>& flags = {});
  // The program that is started as the broker, with flags of its own before the others.
  void BrokerProgram(const std::string& name, const std::vector<std::string>& flags = {}) {
    broker_program_ = {Program(name)};
    broker_program_.insert(broker_program_.end(), flags.begin(), flags.end());
  }
  // A command line of a broker, to be started by StartProgram.
  std::vector<std::string> BrokerCommand(const std::string& socket, const std::string& device,
                                         const std::vector<std::string>& flags);
  StageWorker& StartWorker(const std::string& name, const WorkerSetup& setup = {});
  // The same without waiting until it is ready.
  StageWorker& BeginWorker(const std::string& name, const WorkerSetup& setup = {});
  bool Ready(const std::string& name) const;
  // Starts a program beside this one; its log is NAME.log.
  std::unique_ptr<Process> StartProgram(const std::string& name,
                                        const std::vector<std::string>& command);
  // A weights file for a component.
  std::string MakeWeights(const std::string& name, const WorkerSetup& setup);

  Process& broker() { return *broker_; }
  std::string folder() const { return folder_->path(); }
  std::string broker_address() const { return "unix:" + folder_->path() + "/broker"; }
  std::string card_uuid() const { return card_->Uuid(); }

  // The picture; every one is checked: all classes add up to the capacity. Empty where no broker
  // answers.
  v1::Picture Picture();
  v1::DevicePicture Device();
  // Empty where it is not there.
  v1::ComponentPicture Component(const std::string& id);
  v1::SessionPicture Session(const std::string& worker);
  bool Waits(const std::string& component_id);
  std::vector<v1::Decision> Decisions(v1::DecisionKind kind);
  int DeclaredRuns();
  // Bytes that the card shows for a process, and for all.
  int64_t OnCard(pid_t pid);
  int64_t UsedOnCard();

  // As WaitFor; where the condition does not hold in time the picture is printed.
  testing::AssertionResult Eventually(const std::function<bool()>& condition,
                                      absl::Duration within = absl::Seconds(20));

 private:
  std::string LogPath(const std::string& name) const;
  std::unique_ptr<pipeline::ChildProcess> StartChild(const std::string& name,
                                                     const std::vector<std::string>& command);

  std::optional<pipeline::TemporaryFolder> folder_;
  std::vector<std::string> broker_program_ = {Program("vram-brokerd")};
  pipeline::TemporaryCardName card_name_;
  std::unique_ptr<card::EmulatedCard> card_;
  std::unique_ptr<Process> broker_;
  std::unique_ptr<v1::BrokerAdmin::Stub> admin_;
  std::map<std::string, std::unique_ptr<StageWorker>> workers_;
  // Names of all logs so far.
  std::vector<std::string> logs_;
};

}  // namespace vrambroker::e2e

#endif  // VRAMBROKER_TESTS_E2E_HARNESS_H_
