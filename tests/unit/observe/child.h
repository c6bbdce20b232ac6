// Real processes for tests: children that do one thing and then stay until they are killed.
#ifndef VRAMBROKER_TESTS_UNIT_OBSERVE_CHILD_H_
#define VRAMBROKER_TESTS_UNIT_OBSERVE_CHILD_H_

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>

#include "broker/observe/unique_fd.h"

namespace vrambroker::observe {

// A forked child. It runs `work`, tells its parent by one byte whether that went well, and stays
// until it is killed, at the latest when this object goes.
class Child {
 public:
  explicit Child(const std::function<bool()>& work = [] { return true; }) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ < 0) std::abort();
    if (pid_ == 0) {
      const char answer = work() ? 'y' : 'n';
      if (write(ends[1], &answer, 1) != 1) _exit(1);
      while (true) pause();
    }
    close(ends[1]);
    UniqueFd reader(ends[0]);
    char answer = 0;
    worked_ = read(reader.get(), &answer, 1) == 1 && answer == 'y';
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    Kill();
    Reap();
  }

  int32_t pid() const { return pid_; }
  // Whether the child's work went well; it is over when the constructor returns.
  bool worked() const { return worked_; }
  // SIGKILL. The child is a zombie afterwards, as long as it is not reaped.
  void Kill() {
    if (!reaped_) kill(pid_, SIGKILL);
  }
  void Stop() { kill(pid_, SIGSTOP); }
  void Continue() { kill(pid_, SIGCONT); }
  // Waits for its end; its pid is free then.
  void Reap() {
    if (!reaped_) waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  pid_t pid_ = 0;
  bool worked_ = false;
  bool reaped_ = false;
};

// A folder of its own, removed in the end.
class TempDir {
 public:
  TempDir() {
    if (mkdtemp(name_.data()) == nullptr) std::abort();
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(name_, ignored);
  }

  const std::string& path() const { return name_; }

 private:
  std::string name_ = "/tmp/vram-observe-XXXXXX";
};

}  // namespace vrambroker::observe

#endif  // VRAMBROKER_TESTS_UNIT_OBSERVE_CHILD_H_
