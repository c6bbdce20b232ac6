// A broker that is killed at a given point of its work: killed-brokerd POINT:N, then the flags of
// vram-brokerd. POINT is one of a step that raises or lowers a charge, N says at which of those:
//   decided    before the charge is on record
//   recorded   before anybody is answered
//   answered   before the next event
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "broker/server/options.h"
#include "broker/server/server.h"

namespace vrambroker::e2e {
namespace {

class Killer {
 public:
  Killer(std::string point, int count) : point_(std::move(point)), left_(count) {}

  void Effect(const core::Effect& effect) {
    const bool record = std::holds_alternative<core::RecordCharge>(effect);
    if (record && !recording_) At("decided");
    if (!record && recording_ && !recorded_) {
      recorded_ = true;
      At("recorded");
    }
    recording_ |= record;
  }
  // The next event has been decided: the last one is carried out.
  void Step() {
    if (recording_) At("answered");
    recording_ = recorded_ = false;
  }

 private:
  void At(const char* point) {
    if (point_ == point && --left_ == 0) kill(getpid(), SIGKILL);
  }

  const std::string point_;
  int left_;
  bool recording_ = false;
  bool recorded_ = false;
};

int Run(const std::vector<std::string>& arguments) {
  const std::vector<std::string> point = absl::StrSplit(arguments[0], ':');
  int count = 0;
  if (point.size() != 2 || !absl::SimpleAtoi(point[1], &count)) return 2;
  const auto parsed = server::ParseOptions(
      {arguments.begin() + 1, arguments.end()},
      [](const std::string&) -> std::optional<std::string> { return std::nullopt; }, {});
  if (!parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.status().ToString().c_str());
    return 2;
  }
  Killer killer(point[0], count);
  server::ServerExtras extras;
  extras.on_effect = [&](const core::Effect& effect) { killer.Effect(effect); };
  extras.on_step = [&](const core::Event&, absl::Duration) { killer.Step(); };
  signal(SIGPIPE, SIG_IGN);
  const auto server = server::Server::Start(parsed->options, extras);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 2;
  }
  pause();
  return 0;
}

}  // namespace
}  // namespace vrambroker::e2e

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return vrambroker::e2e::Run(std::vector<std::string>(argv + 1, argv + argc));
}
