// vram-brokerd: the broker as a process.

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "broker/observe/standard_descriptors.h"
#include "broker/server/decision_log.h"
#include "broker/server/grpc_log.h"
#include "broker/server/log.h"
#include "broker/server/options.h"
#include "broker/server/server.h"

namespace {

constexpr int kNotStarted = 2;

std::optional<std::string> GetEnv(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

__attribute__((section(".preinit_array"),
               used)) void (*g_first)() = vrambroker::observe::OpenStandardDescriptors;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "vram-brokerd: %s\n", std::string(status.message()).c_str());
  return kNotStarted;
}

std::vector<std::string> VariableNames() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string setting = *entry;
    names.push_back(setting.substr(0, setting.find('=')));
  }
  return names;
}

// What is logged before a crash, decisions as well, is written all the same, by the threads that
// write it: they are given half a second. Only what a signal handler may do.
void AwaitLog(int signal_number) {
  const auto unwritten = [] {
    return vrambroker::server::Log::Unwritten() + vrambroker::server::DecisionLog::Unwritten();
  };
  for (int i = 0; i < 50 && unwritten() > 0; ++i) poll(nullptr, 0, 10);
  raise(signal_number);  // the handler is gone by now
}

void WriteLogBeforeCrash() {
  for (const int signal_number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction present {};
    sigaction(signal_number, nullptr, &present);
    if (present.sa_handler != SIG_DFL) continue;  // a sanitizer's
    struct sigaction wanted {};
    wanted.sa_handler = AwaitLog;
    wanted.sa_flags = SA_RESETHAND;
    sigaction(signal_number, &wanted, nullptr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using vrambroker::server::Server;
  const auto parsed = vrambroker::server::ParseOptions(
      std::vector<std::string>(argv + 1, argv + argc), GetEnv, VariableNames());
  if (!parsed.ok()) return Fail(parsed.status());
  if (parsed->help_wanted) {
    std::fputs(parsed->help.c_str(), stdout);
    return 0;
  }
  for (const std::string& warning : parsed->warnings) {
    std::fprintf(stderr, "vram-brokerd: %s\n", warning.c_str());
  }

  // Blocked before any thread starts, so that all of them leave the signals to sigwait.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  WriteLogBeforeCrash();
  vrambroker::server::LogGrpcAs(parsed->options.log_format, parsed->options.log_level);
  auto server = Server::Start(parsed->options, {});
  if (!server.ok()) return Fail(server.status());
  int signal_number = 0;
  sigwait(&stop_signals, &signal_number);
  (*server)->Stop();
  return 0;
}
