#include "broker/ctl/commands.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "broker/ctl/broker_commands.h"
#include "broker/ctl/completion.h"
#include "broker/ctl/conformance_command.h"
#include "broker/ctl/drain_command.h"
#include "broker/ctl/plan_command.h"
#include "broker/ctl/replay_command.h"
#include "broker/ctl/simulate_command.h"
#include "broker/ctl/watch_command.h"

namespace vrambroker::ctl {
namespace {

std::vector<Command> All() {
  std::vector<Command> all = BrokerCommands();
  all.insert(all.begin() + 1, WatchCommand());
  for (Command& command :
       std::vector<Command>{DrainCommand(), ConformanceCommand(), SimulateCommand(), PlanCommand(),
                            ReplayCommand(), CompletionCommand()}) {
    all.push_back(std::move(command));
  }
  return all;
}

bool TakesValue(const std::string& flag) {
  for (const Command& command : Commands()) {
    for (const FlagSpec& spec : command.flags) {
      if (spec.name == flag) return spec.takes_value;
    }
  }
  return false;
}

}  // namespace

const std::vector<Command>& Commands() {
  static const auto& all = *new std::vector<Command>(All());
  return all;
}

const Command* FindCommand(const std::string& name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::string GeneralUsage() {
  std::string out =
      "Asks a broker what it knows, and simulates what one would do.\n\n"
      "  vramctl COMMAND [flags]\n\n";
  for (const Command& command : Commands()) {
    absl::StrAppendFormat(
        &out, "  %-27s  %s\n",
        absl::StrCat(command.name, command.words.empty() ? "" : " ", command.words),
        command.summary);
  }
  return out +
         "\nvramctl COMMAND --help says what it does, its flags, and what its exit status means: "
         "0\n"
         "done, 1 the answer is no, 2 wrong arguments, no answer, a refusal, or standard output\n"
         "could not be written to.\n";
}

size_t CommandAt(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!absl::StartsWith(arguments[i], "-")) return i;
    const bool value_follows = absl::StartsWith(arguments[i], "--") &&
                               !absl::StrContains(arguments[i], "=") &&
                               TakesValue(arguments[i].substr(2));
    if (value_follows) ++i;
  }
  return arguments.size();
}

}  // namespace vrambroker::ctl
