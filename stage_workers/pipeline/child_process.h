// A program that runs as a child of this one and ends with it.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_CHILD_PROCESS_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace vrambroker::pipeline {

// The folder that this program's own executable lies in; the others lie beside it.
std::string ProgramFolder();

// Not thread-safe. A child is killed when the thread that started it or the whole process ends,
// however it ends: start children from the main thread.
class ChildProcess {
 public:
  // Starts argv[0] (a path) with stdout and stderr appended to the file `log`. NOT_FOUND where
  // there is no such program, UNAVAILABLE where the system refuses.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                             const std::string& log);
  // Kills it if it runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Waits until `ready` is true. FAILED_PRECONDITION where the child has ended first, with the end
  // of its log; DEADLINE_EXCEEDED.
  absl::Status WaitUntil(const std::function<bool()>& ready, absl::Duration timeout);
  // Asks it to end.
  void Terminate();
  // Waits for its end; kills it after `patience`. OK if it ended by itself with status 0; otherwise
  // says how it ended, with the end of its log.
  absl::Status Join(absl::Duration patience);

  bool Running();
  pid_t pid() const { return pid_; }
  const std::string& log() const { return log_; }

 private:
  ChildProcess(pid_t pid, std::string program, std::string log)
      : pid_(pid), program_(std::move(program)), log_(std::move(log)) {}
  std::string HowItEnded() const;

  const pid_t pid_;
  const std::string program_;
  const std::string log_;
  bool ended_ = false;
  bool killed_ = false;
  int wait_status_ = 0;
};

// The last lines of a text file, at most `lines`, without the last newline; empty where there are
// none.
std::string LastLines(const std::string& path, int lines);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_CHILD_PROCESS_H_
