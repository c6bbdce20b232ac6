// What this process has made that would outlive it: child processes, emulated cards, folders. All
// of it goes when its owner lets go of it, and also when the process is interrupted.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_CLEANUP_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_CLEANUP_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace vrambroker::pipeline {

// From here on SIGINT, SIGTERM and SIGHUP end the process with status 128 + signal, after its
// children were killed and reaped and its cards and folders removed. Call it first in main, before
// any thread begins: the signals are blocked in all of them.
void CleanUpOnSignals();

// A pid that is killed on a signal. `Reap` waits for it and forgets it in one step, so that no
// other process of this number is ever killed.
void RegisterChild(pid_t pid);
// Whether the child has ended by now; then it is reaped and forgotten, and *wait_status is as
// waitpid gives it.
bool ReapChild(pid_t pid, int* wait_status);

// A name for an emulated card that no other process uses, whose card is removed with this object.
class TemporaryCardName {
 public:
  // Also removes cards of such names whose process has died without a chance to do so.
  TemporaryCardName();
  ~TemporaryCardName();
  TemporaryCardName(const TemporaryCardName&) = delete;
  TemporaryCardName& operator=(const TemporaryCardName&) = delete;

  const std::string& name() const { return name_; }

 private:
  const std::string name_;
};

// A new folder below $TMPDIR, with a short path fit for sockets; removed with all in it.
class TemporaryFolder {
 public:
  // UNAVAILABLE where it cannot be made. Also removes those whose process was killed: their lock,
  // the file .owner in them, is free.
  static absl::StatusOr<TemporaryFolder> Create();
  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::move(other.path_)), lock_(other.lock_) {
    other.path_.clear();
    other.lock_ = -1;
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  TemporaryFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  // Empty: moved away.
  std::string path_;
  // Holds the lock of .owner.
  int lock_;
};

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_CLEANUP_H_
