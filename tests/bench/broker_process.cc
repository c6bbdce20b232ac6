#include "tests/bench/broker_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace vrambroker::bench {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

BrokerProcess::BrokerProcess(const std::string& program)
    : program_(program), folder_(absl::StrCat("/tmp/vram-bench-", getpid())) {
  std::filesystem::create_directories(folder_);
}

BrokerProcess::~BrokerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove_all(folder_);
}

absl::Status BrokerProcess::Start(const std::vector<std::string>& flags) {
  std::vector<std::string> words = {program_, "--listen=" + address(), "--lock-dir=" + folder_,
                                    absl::StrCat("--emulated-device=bench-", getpid(), "=24GiB")};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, (folder_ + "/log").c_str(), 01 | 0100, 0600);
  const int error =
      posix_spawn(&pid_, program_.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    return absl::NotFoundError(absl::StrCat("cannot start ", program_, "; build it first"));
  }
  return absl::OkStatus();
}

std::string BrokerProcess::address() const {
  return absl::StrCat("unix:", folder_, "/broker.sock");
}

std::string BrokerProcess::log() const { return ReadFile(folder_ + "/log"); }

double BrokerProcess::CpuSeconds() const {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double BrokerProcess::ResidentMiB() const {
  const std::string status = ReadFile(absl::StrCat("/proc/", pid_, "/status"));
  const size_t at = status.find("VmRSS:");
  int64_t kib = 0;
  if (at == std::string::npos) return 0;
  const std::vector<std::string> words =
      absl::StrSplit(status.substr(at + 6, 40), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  if (words.empty() || !absl::SimpleAtoi(words[0], &kib)) return 0;
  return static_cast<double>(kib) / 1024;
}

}  // namespace vrambroker::bench
