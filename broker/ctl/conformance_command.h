// vramctl conformance: whether a running broker speaks the protocol as it is written.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace vrambroker::ctl {

// What --help prints.
extern const char kConformanceUsage[];

// `arguments`: those after the command. Exit status: 0 everything that was checked is as the
// protocol says, 1 something is not, 2 wrong arguments or a broker that does not answer.
int Conformance(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

}  // namespace vrambroker::ctl
