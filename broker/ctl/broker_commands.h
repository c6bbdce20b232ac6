// The commands that ask a broker what it knows: status, decisions, health.
#pragma once

namespace vrambroker::ctl {

// `argv`: the whole command line. Exit status: 0 done (health: serving), 1 health: not serving, 2
// the broker did not answer, or what was asked for is not known.
int AskBroker(int argc, char** argv, const char* usage);

}  // namespace vrambroker::ctl
