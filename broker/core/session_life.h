// The life of a session as one table: what can happen to it in which phase, and what is then done.
#pragma once

#include <optional>

#include "broker/core/picture.h"

namespace vrambroker::core {

enum class SessionEvent {
  // Its process opens a newer session.
  kAttachedAgain,
  // By either side: a client that breaks a bound is cut off.
  kStreamEnded,
  // Proven.
  kProcessDied,
  // It is on record from an earlier broker, nobody can prove its death, and the recovery window is
  // over without it.
  kPresumedDead,
  // Of a driver that is lost: it has not come back within the grace of its runs.
  kGraceOver,
  // A reading begun after its death shows what is left of it; or nothing can be read and the
  // settling time is over.
  kShownFree,
};

// What is done, in this order.
enum SessionAction : unsigned {
  // Its stream is told why.
  kCloseStream = 1,
  // Of what hangs on a stream: waiting uses and request ids; its runs get their grace.
  kLetGo = 2,
  // The newer session takes over components, charges and runs, or what is said in their place.
  kHandOver = 4,
  // Its charge stays until a reading begun from now on shows it free.
  kAwaitProof = 8,
  // Its components are forgotten, and its record.
  kDrop = 16,
};

enum class SessionParty { kWorker, kDriver };

struct SessionRule {
  SessionPhase phase;
  SessionParty party;
  SessionEvent event;
  // The phase after it. Unset: the session is over.
  std::optional<SessionPhase> next;
  unsigned actions;
};

inline constexpr SessionRule kSessionRules[] = {
    {SessionPhase::kAttached, SessionParty::kWorker, SessionEvent::kAttachedAgain, std::nullopt,
     kCloseStream | kLetGo | kHandOver},
    {SessionPhase::kAttached, SessionParty::kWorker, SessionEvent::kStreamEnded,
     SessionPhase::kLost, kLetGo},
    {SessionPhase::kAttached, SessionParty::kWorker, SessionEvent::kProcessDied,
     SessionPhase::kGone, kCloseStream | kLetGo | kAwaitProof},
    {SessionPhase::kLost, SessionParty::kWorker, SessionEvent::kAttachedAgain, std::nullopt,
     kHandOver},
    {SessionPhase::kLost, SessionParty::kWorker, SessionEvent::kProcessDied, SessionPhase::kGone,
     kAwaitProof},
    {SessionPhase::kLost, SessionParty::kWorker, SessionEvent::kPresumedDead, SessionPhase::kGone,
     kAwaitProof},
    {SessionPhase::kGone, SessionParty::kWorker, SessionEvent::kShownFree, std::nullopt, kDrop},
    {SessionPhase::kAttached, SessionParty::kDriver, SessionEvent::kAttachedAgain, std::nullopt,
     kCloseStream | kLetGo | kHandOver},
    {SessionPhase::kAttached, SessionParty::kDriver, SessionEvent::kStreamEnded,
     SessionPhase::kLost, kLetGo},
    {SessionPhase::kAttached, SessionParty::kDriver, SessionEvent::kProcessDied, std::nullopt,
     kCloseStream | kLetGo | kDrop},
    {SessionPhase::kLost, SessionParty::kDriver, SessionEvent::kAttachedAgain, std::nullopt,
     kHandOver},
    {SessionPhase::kLost, SessionParty::kDriver, SessionEvent::kProcessDied, std::nullopt, kDrop},
    {SessionPhase::kLost, SessionParty::kDriver, SessionEvent::kGraceOver, std::nullopt, kDrop},
};

// Null: what happens changes nothing. So it is of a session that is gone, whose process can
// neither come back nor die again.
constexpr const SessionRule* RuleFor(SessionPhase phase, SessionParty party, SessionEvent event) {
  for (const SessionRule& rule : kSessionRules) {
    if (rule.phase == phase && rule.party == party && rule.event == event) return &rule;
  }
  return nullptr;
}

}  // namespace vrambroker::core
