// The command line of the programs here: flags with dashes, a help that is read on one screen.
#ifndef VRAMBROKER_STAGE_WORKERS_WORKER_COMMAND_LINE_H_
#define VRAMBROKER_STAGE_WORKERS_WORKER_COMMAND_LINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vrambroker::worker {

// What --help prints, and which flags belong to it.
struct CommandHelp {
  // Its name, before what is said on stderr.
  std::string program;
  // First lines: what the program does and how it is called.
  std::string usage;
  // Names of its flags, with dashes, in the order in which they are printed.
  std::vector<std::string> flags;
};

// Parses argv as flags: "--time-scale=8", "--time-scale 8", with underscores too; "--spawn" and
// "--nospawn" where the value is true or false; after "--" nothing is a flag. Returns what is not a
// flag, without the program's name. With --help among the arguments prints `help` to stdout and
// exits with EndOfOutput(0); with an unknown flag, a bad value, or a flag that is not in help.flags
// says so on stderr, after `program`, and exits with status 2.
std::vector<std::string> ParseCommandLine(int argc, char** argv, const CommandHelp& help);

// `status`, or 1 where not all that was written to standard output has reached it, which is then
// said on stderr. The last thing that a program calls.
int EndOfOutput(const std::string& program, int status);

// "24GiB", "1.5MiB", "512KiB", "4096" or "4096B" as bytes; also GB, MB, KB as powers of 1000.
// INVALID_ARGUMENT, naming `field`, for anything else, for negative ones and for more than 64 TiB.
absl::StatusOr<int64_t> ParseBytes(const std::string& field, const std::string& text);

// "31.40 GiB", "512 B": for people.
std::string FormatBytes(int64_t bytes);

}  // namespace vrambroker::worker

#endif  // VRAMBROKER_STAGE_WORKERS_WORKER_COMMAND_LINE_H_
