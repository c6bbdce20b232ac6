// What a driver tells the broker of its runs, and what it does where the broker does not take it.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_DECLARATIONS_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_DECLARATIONS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/broker_client.h"
#include "stage_workers/pipeline/driver.h"

namespace vrambroker::pipeline {

// The driver's session. Thread-safe. A thread of its own speaks with the broker, so that a run
// waits for it a quarter of a second at most and, where nothing is answered, once: runs then go on
// undeclared, and what has not ended is declared when the broker is back, also to a new one.
class Declarations {
 public:
  // Attaches and declares the workload's pipelines; without a broker, or with Declared::kNone, does
  // nothing then and later. Errors: the broker's, or DEADLINE_EXCEEDED where none answers.
  static absl::StatusOr<std::unique_ptr<Declarations>> Create(const DriverOptions& options);
  // Lets what is to be told go out as long as the broker answers.
  ~Declarations();
  Declarations(const Declarations&) = delete;
  Declarations& operator=(const Declarations&) = delete;

  void Arrived(int run, const std::string& pipeline);
  // Waits until the broker has all that arrived. A run that is not declared by then, because the
  // broker did not take it or is gone, runs undeclared.
  void Started(int run, const std::string& pipeline);
  // The id to run under now: another one after the broker has restarted. 0: not declared.
  uint64_t IdOf(int run) const;
  // Waits until the broker has it.
  void Finished(int run);

  // Runs that started undeclared though they were to be declared, and the broker's last reason.
  int undeclared_runs() const;
  absl::Status undeclared_reason() const;

 private:
  struct Entry {
    std::string pipeline;
    // 0: not declared.
    uint64_t id = 0;
    // The broker did not take it; asked again when the run starts and in a new session.
    bool refused = false;
  };
  // One call for the thread.
  struct Job {
    bool finish = false;
    int run = 0;
    uint64_t id = 0;
    std::string pipeline;
  };

  Declarations(std::unique_ptr<client::BrokerClient> client, Declared declared);
  void Work();
  // All of these require the lock.
  void FollowSession();
  std::optional<Job> NextJob() const;
  bool InHand() const { return calling_ || NextJob().has_value(); }
  void Take(const Job& job, const absl::StatusOr<uint64_t>& answer);
  void WaitWhileAnswered(std::unique_lock<std::mutex>& lock);

  // Null: nothing is declared.
  const std::unique_ptr<client::BrokerClient> client_;
  const Declared declared_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Entry> runs_;
  // Ids of runs that are over and of which the broker has not been told.
  std::deque<uint64_t> over_;
  client::SessionInfo session_;
  bool calling_ = false;
  // Nothing was answered while somebody waited: nobody waits until something is.
  bool stalled_ = false;
  absl::Time answered_at_ = absl::InfinitePast();
  int undeclared_runs_ = 0;
  absl::Status undeclared_reason_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_DECLARATIONS_H_
