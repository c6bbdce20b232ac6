// The commands of vram-pipeline. Each takes argv without the program's name: argv[0] is the
// command.
#ifndef VRAMBROKER_STAGE_WORKERS_PIPELINE_COMMANDS_H_
#define VRAMBROKER_STAGE_WORKERS_PIPELINE_COMMANDS_H_

#include <string>

#include "absl/status/statusor.h"

namespace vrambroker::pipeline {

// Both return the program's status: 0 when all went well, 1 when something failed, 2 for options
// that make no sense.
int RunCommand(int argc, char** argv);
int DemoCommand(int argc, char** argv);

// Says an error on stderr and returns the status for it.
int Fail(const absl::Status& status);
// The folder given, else ~/.cache/vram-broker/NAME ($XDG_CACHE_HOME goes before ~/.cache),
// or $TMPDIR/vram-broker-NAME where there is no home.
std::string WorkFolder(const std::string& given, const std::string& name);
// Whether a file can be written there, or UNAVAILABLE naming flag, path and why. Changes nothing.
absl::Status CheckWritable(const std::string& flag, const std::string& path);
// Writes a file whole, or UNAVAILABLE naming it.
absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace vrambroker::pipeline

#endif  // VRAMBROKER_STAGE_WORKERS_PIPELINE_COMMANDS_H_
