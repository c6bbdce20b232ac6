#include "broker/ctl/render_explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrambroker::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;

// Of ten layers four stay: a use of 40 passes comes before the next one.
v1::ExplainDecisionResponse Kept() {
  v1::ExplainDecisionResponse why;
  why.mutable_decision()->set_id(42);
  why.mutable_decision()->set_kind(v1::DECISION_KIND_RETENTION);
  why.mutable_decision()->set_component_id("te-0/te");
  why.mutable_decision()->set_layers(4);
  why.mutable_decision()->set_text("kept 4 of 10 held layers");
  why.set_planned(true);
  why.set_reproduced(true);
  why.set_capacity_bytes(14 * kMiB);
  why.set_planned_layers(4);
  why.set_saved_seconds(0.413);
  v1::ExplainedComponent* component = why.add_components();
  component->set_id("te-0/te");
  component->set_layers(10);
  component->set_layer_bytes(10 * kMiB);
  component->set_held_layers(10);
  component->set_keep_layers(4);
  component->set_exposed_seconds_per_byte(1e-9);
  v1::ExplainedUse* use = why.add_uses();
  use->set_component_id("dit-0/dit");
  use->set_start_seconds(0.25);
  use->set_passes(40);
  use->set_probability(1);
  use->set_resident_layers(10);
  use->set_saved_seconds(0.409);
  use = why.add_uses();
  use->set_component_id("te-0/te");
  use->set_start_seconds(1.5);
  use->set_passes(1);
  use->set_probability(0.6);
  use->set_kept_layers(4);
  v1::Alternative* a = why.add_alternatives();
  a->set_kind(v1::ALTERNATIVE_KIND_KEEP_NOTHING);
  a->set_cost_seconds(0.0042);
  a->set_loser(1);
  a->set_loser_seconds(0.0042);
  a = why.add_alternatives();
  a->set_kind(v1::ALTERNATIVE_KIND_KEEP_ALL);
  a->set_layers(10);
  a->set_cost_seconds(0.321);
  a->set_missing_bytes(5 * kMiB);
  a->set_loser(0);
  a->set_loser_seconds(0.327);
  return why;
}

TEST(RenderExplanation, SaysWhatWasChosenAndWhatElseWouldHaveCost) {
  const std::string text = RenderExplanation(Kept());
  EXPECT_THAT(text, HasSubstr("Decision 42, "));
  EXPECT_THAT(text, HasSubstr("retention for te-0/te\n  kept 4 of 10 held layers\n"));
  EXPECT_THAT(text, HasSubstr("The plan keeps 4 layers of it until its next use.\n"));
  EXPECT_THAT(text, HasSubstr("Keeping nothing of it: 4.2 ms more lost to loading; most of all by "
                              "te-0/te (in 1.500 s, 1 pass, expected), 4.2 ms.\n"));
  EXPECT_THAT(text, HasSubstr("Keeping all 10 layers: does not fit, 5.0 MiB "
                              "would be missing; if it did: 0.321 s more lost to loading; most of "
                              "all by dit-0/dit (in 0.250 s, 40 passes), 0.327 s.\n"));
  EXPECT_THAT(text, HasSubstr("What was known: 14.0 MiB for layers, windows and needs\n"));
  EXPECT_THAT(text, HasSubstr("lost per GiB streamed"));
  EXPECT_THAT(text, HasSubstr("In all the plan saves 0.413 s against streaming everything.\n"));
  EXPECT_THAT(text, Not(HasSubstr("defect")));
}

TEST(RenderExplanation, SaysWhyADecisionDepartsFromItsPlan) {
  v1::ExplainDecisionResponse why = Kept();
  why.mutable_decision()->set_layers(10);
  EXPECT_THAT(RenderExplanation(why), HasSubstr("That use waits already"));
  why.mutable_decision()->set_kind(v1::DECISION_KIND_REVOCATION);
  EXPECT_THAT(RenderExplanation(why), HasSubstr("Only what was missing was asked back."));
  why.mutable_decision()->set_layers(0);
  EXPECT_THAT(RenderExplanation(why), HasSubstr("A use that waits could not begin otherwise"));
  why.mutable_decision()->set_kind(v1::DECISION_KIND_GRANT);
  EXPECT_THAT(RenderExplanation(why), HasSubstr("gives this use 4 layers. It was granted what"));
}

TEST(RenderExplanation, SaysThatNoUseIsKnownToCome) {
  v1::ExplainDecisionResponse why = Kept();
  why.mutable_uses()->RemoveLast();
  EXPECT_THAT(RenderExplanation(why), HasSubstr("as long as nobody needs the room: no use of it"));
  why.set_planned_layers(0);
  why.mutable_decision()->set_layers(0);
  EXPECT_THAT(RenderExplanation(why),
              HasSubstr("The plan keeps 0 layers of it: no use of it is known to come.\n"));
}

TEST(RenderExplanation, NamesWhatThePlanMissedAndWhatItChose) {
  v1::ExplainDecisionResponse why = Kept();
  why.set_reproduced(false);
  why.set_load_ahead(true);
  why.mutable_alternatives(0)->set_cost_seconds(-0.25);
  why.mutable_alternatives(1)->set_chosen(true);
  const std::string text = RenderExplanation(why);
  EXPECT_THAT(text, HasSubstr("0.250 s less lost to loading: the plan's search missed this"));
  EXPECT_THAT(text, HasSubstr("Keeping all 10 layers and loading none ahead: this is what the plan "
                              "chose.\n"));
  EXPECT_THAT(text, HasSubstr("a defect, please report it"));
}

TEST(RenderExplanation, ADecisionWithoutAPlanSaysSo) {
  v1::ExplainDecisionResponse why;
  why.mutable_decision()->set_kind(v1::DECISION_KIND_GRANT);
  why.mutable_decision()->set_text("granted 8 of 8 layers");
  const std::string text = RenderExplanation(why);
  EXPECT_THAT(text,
              HasSubstr("granted 8 of 8 layers\n  It needed no plan: all that it may have was "
                        "free"));
  EXPECT_THAT(text, Not(HasSubstr("What was known")));
}

TEST(RenderExplanation, ShowsNoOrdersOfATerminal) {
  v1::ExplainDecisionResponse why = Kept();
  why.mutable_decision()->set_text("kept\x1b[2J\n");
  why.mutable_uses(0)->set_component_id("a\x07");
  const std::string text = RenderExplanation(why);
  EXPECT_EQ(text.find_first_of("\x1b\x07"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("kept\\x1b[2J\\x0a"));
}

}  // namespace
}  // namespace vrambroker::ctl
