// Scripts that let shells complete vramctl's commands, flags and their values. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/ctl/command.h"

namespace vrambroker::ctl {

// `shell`: bash, zsh or fish; INVALID_ARGUMENT for another. Names, flags and values have letters,
// digits, '-' and '_' only.
absl::StatusOr<std::string> CompletionScript(const std::string& shell,
                                             const std::vector<Command>& commands);

// vramctl completion. Its exit status: 0 done, 2 wrong arguments.
Command CompletionCommand();

}  // namespace vrambroker::ctl
