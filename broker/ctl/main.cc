// vramctl: asks a broker what it knows, and simulates what one would do.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "broker/ctl/commands.h"
#include "broker/ctl/printable.h"

namespace vrambroker::ctl {
namespace {

bool AsksForHelp(const std::string& argument) {
  return argument == "--help" || argument == "-help" || argument == "-h";
}

std::string NamesOfAll() {
  return absl::StrJoin(Commands(), ", ",
                       [](std::string* out, const Command& command) { out->append(command.name); });
}

int Run(std::vector<std::string> arguments) {
  const bool help = std::any_of(arguments.begin(), arguments.end(), AsksForHelp);
  const size_t at = CommandAt(arguments);
  const std::string name = at < arguments.size() ? arguments[at] : "";
  if (name.empty() || name == "help") {
    if (help || !name.empty()) {
      std::cout << GeneralUsage();
      return kDone;
    }
    std::cerr << "vramctl: a command is missing: " << NamesOfAll() << "; --help says more\n";
    return kFailed;
  }
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    std::cerr << "vramctl: '" << Printable(name) << "' is no command: " << NamesOfAll()
              << " are; --help says more\n";
    return kFailed;
  }
  if (help) {
    std::cout << command->usage;
    return kDone;
  }
  arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
  return command->run(arguments, std::cout, std::cerr);
}

// `status`, unless what was said did not all reach standard output.
int WrittenOut(int status) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return status;
  std::cerr << "vramctl: cannot write to standard output"
            << (errno == 0 ? "" : std::string(": ") + std::strerror(errno)) << "\n";
  return kFailed;
}

}  // namespace
}  // namespace vrambroker::ctl

int main(int argc, char** argv) {
  return vrambroker::ctl::WrittenOut(vrambroker::ctl::Run({argv + 1, argv + argc}));
}
