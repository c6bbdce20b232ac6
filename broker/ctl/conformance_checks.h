// The checks of a conformance run, by part of the protocol. Each leaves nothing attached, and
// touches sessions, components, pipelines and runs of its own only.
#pragma once

#include <string>

#include "broker/ctl/conformance_peer.h"

namespace vrambroker::ctl {

// Sessions: numbers, re-attach, stale sessions.
void CheckSessions(ConformanceBed* bed);
// Uses: order, ends before their begin, waits, deadlocks, what cannot fit.
void CheckUses(ConformanceBed* bed);
// UpdateComponents: in use, held, past the bound.
void CheckComponents(ConformanceBed* bed);
// Pipelines and runs: order, owner, bound.
void CheckRuns(ConformanceBed* bed);
// Every mutation twice: the first answer again; with another payload: refused.
void CheckRepeats(ConformanceBed* bed);
// Every field past its documented range.
void CheckRanges(ConformanceBed* bed);
// A caller that is not the session's, and one without the role. `socket_path`: of the broker's Unix
// socket; empty where it is reached another way.
void CheckAccess(ConformanceBed* bed, const std::string& socket_path);
// What a run does not provoke, for the others' sake.
void NoteWhatIsLeftOut(ConformanceBed* bed, bool drained);
// Drains the broker: nobody gets a use of it any more.
void CheckDrained(ConformanceBed* bed);

}  // namespace vrambroker::ctl
