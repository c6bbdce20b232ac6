// What can happen next in a state, and its doing.
#pragma once

#include <string>
#include <vector>

#include "tests/model/state.h"

namespace vrambroker::model {

struct Action {
  // In the order in which they happen where all goes well; from kAsk on they do not happen then.
  enum class Kind {
    kCloseTold,
    kDeathNoticed,
    kBytesGo,
    kDirective,
    kReply,
    kCall,
    kAttach,
    kStreamEnds,
    kConnect,
    kPlace,
    kTrim,
    kApply,
    kCopied,
    kRun,
    kEnd,
    kClosed,
    kReadingBegins,
    kReadingSampled,
    kReadingArrives,
    kTime,
    kAsk,
    kCancelTold,
    kDuplicate,
    kFail,
    kFailPending,
    kLose,
    kGiveUp,
    kGiveUpEnd,
    kRestart,
    kKilledInCall,
    kKilledInAttach,
    kDie,
    kDrop,
    kUnpromptedReading,
    kCount,
  };
  Kind kind = Kind::kTime;
  int worker = -1;
  // Which message: place among the calls, replies or connections; the number of a pending call.
  uint64_t index = 0;
  // Of a broker that is killed in a step: of what it says, so much is still said.
  int said = 0;
};

constexpr int kActionKinds = static_cast<int>(Action::Kind::kCount);

const char* NameOf(Action::Kind kind);

// All that can happen, always in the same order. `calm`: no fault, nobody asks for anything new,
// and what may be lost is.
std::vector<Action> Enabled(const Scenario& scenario, const State& state, bool calm);

// Does one of the enabled actions. `story`, where there is one, gets what it is about.
void Do(const Scenario& scenario, const Action& action, State* state,
        std::vector<std::string>* story);

// When somebody wants to be woken next. Infinite: nobody does.
absl::Time NextWake(const State& state);

}  // namespace vrambroker::model
