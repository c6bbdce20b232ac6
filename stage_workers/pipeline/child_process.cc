#include "stage_workers/pipeline/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "stage_workers/pipeline/cleanup.h"

namespace vrambroker::pipeline {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(2);
constexpr int kLogLines = 6;

// In the child, between fork and exec: system calls only.
[[noreturn]] void BecomeProgram(char* const* argv, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

std::string ProgramFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path().string();
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& argv, const std::string& log) {
  if (access(argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(argv[0], ": ", std::strerror(errno),
                                            "; it is built with the target 'programs'"));
  }
  const int fd = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat(log, ": ", std::strerror(errno)));
  }
  std::vector<char*> arguments;
  for (const std::string& argument : argv) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(arguments.data(), fd, parent);
  close(fd);
  if (pid < 0) {
    return absl::UnavailableError(absl::StrCat(argv[0], ": fork: ", std::strerror(errno)));
  }
  RegisterChild(pid);
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, std::filesystem::path(argv[0]).filename().string(), log));
}

ChildProcess::~ChildProcess() {
  if (Running()) (void)Join(absl::ZeroDuration());
}

bool ChildProcess::Running() {
  if (!ended_) ended_ = ReapChild(pid_, &wait_status_);
  return !ended_;
}

absl::Status ChildProcess::WaitUntil(const std::function<bool()>& ready, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!ready()) {
    if (!Running()) return absl::FailedPreconditionError(HowItEnded());
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          program_, " is not ready after ", absl::FormatDuration(timeout), "; see ", log_));
    }
    absl::SleepFor(kPollInterval);
  }
  return absl::OkStatus();
}

void ChildProcess::Terminate() {
  if (Running()) kill(pid_, SIGTERM);
}

absl::Status ChildProcess::Join(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (Running()) {
    if (!killed_ && absl::Now() >= deadline) {
      kill(pid_, SIGKILL);
      killed_ = true;
    }
    absl::SleepFor(kPollInterval);
  }
  if (!killed_ && WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(HowItEnded());
}

std::string ChildProcess::HowItEnded() const {
  const std::string how = killed_ ? "did not end in time and was killed"
                          : WIFSIGNALED(wait_status_)
                              ? absl::StrCat("was ended by signal ", WTERMSIG(wait_status_))
                              : absl::StrCat("ended with status ", WEXITSTATUS(wait_status_));
  return absl::StrCat(program_, " ", how, "; the end of ", log_, ":\n", LastLines(log_, kLogLines));
}

std::string LastLines(const std::string& path, int lines) {
  // As much as these lines can be expected to have.
  constexpr std::streamoff kTail = 8192;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(size > kTail ? size - kTail : 0);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t begin = text.size();
  for (int i = 0; i < lines && begin != std::string::npos && begin > 0; ++i) {
    begin = text.rfind('\n', begin - 1);
  }
  return begin == std::string::npos ? text : text.substr(begin == 0 ? 0 : begin + 1);
}

}  // namespace vrambroker::pipeline
