// What vram-brokerd takes while nobody asks anything of it.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_worker.h"
#include "tests/poll.h"

extern char** environ;

namespace vrambroker::bench {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// vram-brokerd with an emulated card; ended with this.
class BrokerProcess {
 public:
  explicit BrokerProcess(const std::string& program) : program_(program) {
    folder_ = absl::StrCat("/tmp/vram-rest-", getpid());
    std::filesystem::create_directories(folder_);
  }
  ~BrokerProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  absl::Status Start() {
    std::vector<std::string> words = {program_, "--listen=" + address(), "--lock-dir=" + folder_,
                                      absl::StrCat("--emulated-device=rest-", getpid(), "=24GiB")};
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

  std::string address() const { return absl::StrCat("unix:", folder_, "/broker.sock"); }

  // Processor time of all its threads so far, in seconds: of the scheduler's own account, in
  // nanoseconds, where the kernel keeps one; else user and system time in clock ticks.
  double CpuSeconds() const {
    const double exact = ScheduledSeconds();
    if (exact > 0) return exact;
    const std::string stat = ReadFile(absl::StrCat("/proc/", pid_, "/stat"));
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return 0;
    const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
    int64_t user = 0, system = 0;  // fields 14 and 15
    if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
        !absl::SimpleAtoi(fields[12], &system)) {
      return 0;
    }
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  double ResidentMiB() const {
    const std::string status = ReadFile(absl::StrCat("/proc/", pid_, "/status"));
    const size_t at = status.find("VmRSS:");
    int64_t kib = 0;
    if (at == std::string::npos) return 0;
    const std::vector<std::string> words =
        absl::StrSplit(status.substr(at + 6, 40), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
    if (words.empty() || !absl::SimpleAtoi(words[0], &kib)) return 0;
    return static_cast<double>(kib) / 1024;
  }

 private:
  double ScheduledSeconds() const {
    double sum = 0;
    std::error_code error;
    for (const auto& task :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid_, "/task"), error)) {
      int64_t nanoseconds = 0;
      const std::vector<std::string> fields =
          absl::StrSplit(ReadFile(task.path().string() + "/schedstat"), ' ');
      if (absl::SimpleAtoi(fields[0], &nanoseconds)) sum += static_cast<double>(nanoseconds) * 1e-9;
    }
    return sum;
  }

  const std::string program_;
  std::string folder_;
  pid_t pid_ = -1;
};

v1::Component OneComponent() {
  v1::Component component;
  component.set_name("c");
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(60);
  run->set_layer_bytes(64 << 20);
  return component;
}

}  // namespace

absl::StatusOr<Figures> RestBench(const BenchOptions& options) {
  BrokerProcess broker(options.bin_dir + "/vram-brokerd");
  if (absl::Status status = broker.Start(); !status.ok()) return status;
  std::vector<std::unique_ptr<BenchWorker>> workers;
  for (int i = 0; i < 3; ++i) {
    auto channel = grpc::CreateChannel(broker.address(), grpc::InsecureChannelCredentials());
    if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(20)))) {
      return absl::DeadlineExceededError("vram-brokerd does not answer within 20 s");
    }
    workers.push_back(std::make_unique<BenchWorker>(channel, absl::StrCat("idle-", i),
                                                    std::vector<v1::Component>{OneComponent()}));
    if (absl::Status status = workers.back()->Start(); !status.ok()) return status;
  }
  WaitFor([] { return false; }, absl::Seconds(1));  // what the attaches left to do is not rest
  const double before = broker.CpuSeconds();
  const absl::Time began = absl::Now();
  WaitFor([] { return false; }, options.rest);
  const double took = absl::ToDoubleSeconds(absl::Now() - began);
  const double cpu = broker.CpuSeconds() - before;
  Figures figures;
  figures.push_back({"processor time at rest, of one core", 100 * cpu / took, "%", 1.0, true});
  figures.push_back({"resident memory", broker.ResidentMiB(), "MiB", 40.0, true});
  return figures;
}

}  // namespace vrambroker::bench
