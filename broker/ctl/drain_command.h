// vramctl drain: no use of the broker from now on.
#pragma once

#include <string>

#include "broker/ctl/command.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::ctl {

// Its exit status: 0 the broker drains (with --wait: and no use runs any more), 1 not confirmed, or
// uses still run after --wait-limit, or the broker was restarted while it was waited for, 2 wrong
// arguments, nobody to ask, no answer, or a refusal.
Command DrainCommand();

// What a drain has to wait for, and what it has released. Pure.
struct DrainState {
  bool draining = false;
  // Components with a use, in the picture's order.
  std::vector<std::string> running;
  // Of components without one, but for permanent sets.
  int keeping = 0;
  int64_t kept_bytes = 0;
};
DrainState DrainStateOf(const v1::Picture& picture);
// "2 uses run (dit-0/dit, te-0/te), 3.00 GiB kept by 1 component without a use".
std::string DrainProgress(const DrainState& state);

}  // namespace vrambroker::ctl
