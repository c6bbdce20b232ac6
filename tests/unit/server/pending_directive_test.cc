#include "broker/server/pending_directive.h"

#include <gtest/gtest.h>

namespace vrambroker::server {
namespace {

core::Target TargetOf(const std::string& component, int layers, uint64_t generation) {
  core::Target target;
  target.component = component;
  target.layers = layers;
  target.generation = core::Generation(generation);
  return target;
}

core::SendDirective Directive(std::vector<core::Target> targets, bool trim = false) {
  core::SendDirective directive;
  directive.targets = std::move(targets);
  directive.trim_pool = trim;
  return directive;
}

TEST(PendingDirective, TheNewestGenerationOfEachComponentWins) {
  PendingDirective pending;
  pending.Add(Directive({TargetOf("a", 5, 2), TargetOf("b", 7, 1)}));
  pending.Add(Directive({TargetOf("a", 3, 4)}));
  pending.Add(Directive({TargetOf("a", 9, 3)}));
  v1::Directive out;
  pending.Take(&out);
  ASSERT_EQ(out.targets_size(), 2);
  EXPECT_EQ(out.targets(0).component(), "a");
  EXPECT_EQ(out.targets(0).layers(), 3);
  EXPECT_EQ(out.targets(0).generation(), 4u);
  EXPECT_EQ(out.targets(1).layers(), 7);
  EXPECT_FALSE(out.has_welcome());
  EXPECT_FALSE(out.trim_pool());
}

TEST(PendingDirective, WelcomeAndTrimStayUntilTaken) {
  PendingDirective pending;
  EXPECT_TRUE(pending.empty());
  core::SendDirective welcome = Directive({TargetOf("a", 1, 1)});
  welcome.welcome.emplace();
  welcome.welcome->session = core::SessionId(8);
  welcome.welcome->release_deadline = absl::Milliseconds(2500);
  welcome.welcome->resumed_uses = {{"r", core::UseId(4)}};
  welcome.welcome->refused = {{"a", "missing", core::Bytes(9)}};
  pending.Add(welcome);
  pending.Add(Directive({}, true));
  pending.Add(Directive({TargetOf("a", 2, 2)}));
  EXPECT_FALSE(pending.empty());
  v1::Directive out;
  pending.Take(&out);
  EXPECT_EQ(out.welcome().session_id(), 8u);
  EXPECT_EQ(out.welcome().release_deadline().seconds(), 2);
  EXPECT_EQ(out.welcome().release_deadline().nanos(), 500000000);
  EXPECT_EQ(out.welcome().resumed_uses(0).use_id(), 4u);
  EXPECT_EQ(out.welcome().refused_components(0).missing_bytes(), 9);
  EXPECT_TRUE(out.trim_pool());
  EXPECT_EQ(out.targets(0).layers(), 2);
  EXPECT_TRUE(pending.empty());
  pending.Add(Directive({TargetOf("a", 3, 3)}));
  pending.Take(&out);
  EXPECT_FALSE(out.has_welcome());
  EXPECT_FALSE(out.trim_pool());
}

TEST(PendingDirective, TheNewestAllowanceToPinIsSaidOnceAndZeroIsSaidToo) {
  PendingDirective pending;
  core::SendDirective said;
  said.pin_allowance = core::Bytes(7);
  pending.Add(said);
  EXPECT_FALSE(pending.empty());
  said.pin_allowance = core::Bytes();
  pending.Add(said);
  pending.Add(Directive({TargetOf("a", 1, 1)}));
  v1::Directive out;
  pending.Take(&out);
  ASSERT_TRUE(out.has_pin_allowance_bytes());
  EXPECT_EQ(out.pin_allowance_bytes(), 0);
  EXPECT_TRUE(pending.empty());
  pending.Add(Directive({TargetOf("a", 2, 2)}));
  pending.Take(&out);
  EXPECT_FALSE(out.has_pin_allowance_bytes());
}

}  // namespace
}  // namespace vrambroker::server
