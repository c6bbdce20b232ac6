#include "broker/core/session_life.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace vrambroker::core {
namespace {

TEST(SessionRules, SayOneThingOfEachEvent) {
  std::set<std::tuple<SessionPhase, SessionParty, SessionEvent>> seen;
  for (const SessionRule& rule : kSessionRules) {
    EXPECT_TRUE(seen.emplace(rule.phase, rule.party, rule.event).second);
    EXPECT_EQ(RuleFor(rule.phase, rule.party, rule.event), &rule);
  }
}

TEST(SessionRules, NobodyLeavesItsStreamWithSomethingOnIt) {
  for (const SessionRule& rule : kSessionRules) {
    const bool leaves = rule.phase == SessionPhase::kAttached;
    EXPECT_EQ((rule.actions & kLetGo) != 0, leaves);
    const bool by_us = leaves && rule.event != SessionEvent::kStreamEnded;
    EXPECT_EQ((rule.actions & kCloseStream) != 0, by_us) << "a stream that has ended is not closed";
  }
}

TEST(SessionRules, WhatASessionHasGoesToAnotherOrIsProvenFree) {
  for (const SessionRule& rule : kSessionRules) {
    const bool over = !rule.next.has_value();
    const bool handed = (rule.actions & kHandOver) != 0, dropped = (rule.actions & kDrop) != 0;
    EXPECT_EQ(over, handed || dropped);
    EXPECT_FALSE(handed && dropped);
    EXPECT_EQ(handed, rule.event == SessionEvent::kAttachedAgain);
    if (rule.party == SessionParty::kWorker && dropped) {
      EXPECT_EQ(rule.phase, SessionPhase::kGone) << "the dead alone are dropped";
      EXPECT_EQ(rule.event, SessionEvent::kShownFree) << "and not before that is shown";
    }
    EXPECT_EQ(rule.next == SessionPhase::kGone, (rule.actions & kAwaitProof) != 0);
  }
}

TEST(SessionRules, AClosedStreamIsNoDeath) {
  const SessionRule* ended =
      RuleFor(SessionPhase::kAttached, SessionParty::kWorker, SessionEvent::kStreamEnded);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->next, SessionPhase::kLost);
}

TEST(SessionRules, TheDeadNeitherComeBackNorDieAgain) {
  for (const SessionEvent event : {SessionEvent::kAttachedAgain, SessionEvent::kStreamEnded,
                                   SessionEvent::kProcessDied, SessionEvent::kPresumedDead}) {
    EXPECT_EQ(RuleFor(SessionPhase::kGone, SessionParty::kWorker, event), nullptr);
  }
}

}  // namespace
}  // namespace vrambroker::core
