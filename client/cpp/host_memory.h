// What of the machine's memory this process may use, as its control groups say.
#pragma once

#include <string>

#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::client {

// The least of the machine's memory and of the limits of this process's control groups along the
// path up (version 2, memory.max; version 1, memory.limit_in_bytes), read below `root` ("": the
// machine's own /proc and /sys). Its domain is the group whose limit it is: "cgroup:" and the
// number of its directory's inode, which is the same from within every container that sees it.
// Where groups allow the same, the outermost counts. Limit 0: not even the machine's memory could
// be read.
v1::HostMemory ReadHostMemory(const std::string& root);

}  // namespace vrambroker::client
