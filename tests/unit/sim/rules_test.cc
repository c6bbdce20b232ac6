#include "broker/sim/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrambroker::sim {
namespace {

using testing::ElementsAre;

core::LayerTable Layers(int count, int64_t bytes) {
  return core::LayerTable({{count, core::Bytes(bytes)}});
}

TEST(Rules, GiveUpAsTheyAreNamed) {
  const core::LayerTable small = Layers(4, 10), middle = Layers(6, 10), large = Layers(10, 10);
  // The middle one was used longest ago.
  const std::vector<Retained> retained = {{&small, 4, 2}, {&middle, 6, 1}, {&large, 10, 3}};
  EXPECT_THAT(KeptBy(Rule::kReleaseAll, retained, 200), ElementsAre(0, 0, 0));
  EXPECT_THAT(KeptBy(Rule::kLruWhole, retained, 155), ElementsAre(4, 0, 10));
  EXPECT_THAT(KeptBy(Rule::kLruPartial, retained, 155), ElementsAre(4, 1, 10));
  EXPECT_THAT(KeptBy(Rule::kLruPartial, retained, 135), ElementsAre(3, 0, 10));
  EXPECT_THAT(KeptBy(Rule::kSmallestCombination, retained, 160), ElementsAre(0, 6, 10));
  EXPECT_THAT(KeptBy(Rule::kSmallestCombination, retained, 145), ElementsAre(4, 0, 10));
  EXPECT_THAT(KeptBy(Rule::kSmallestFirstPartial, retained, 155), ElementsAre(0, 5, 10));
}

TEST(Rules, KeepAllWhereThereIsRoomAndNothingWhereThereIsNone) {
  const core::LayerTable layers = Layers(4, 10);
  const std::vector<Retained> retained = {{&layers, 4, 1}, {&layers, 2, 2}};
  for (const Rule rule : OtherRules()) {
    EXPECT_THAT(KeptBy(rule, retained, 0), ElementsAre(0, 0)) << RuleName(rule);
    if (rule == Rule::kReleaseAll) continue;
    EXPECT_THAT(KeptBy(rule, retained, 60), ElementsAre(4, 2)) << RuleName(rule);
  }
}

TEST(Rules, OfEqualCombinationsTheFewestSetsGoThenTheFirst) {
  const core::LayerTable one = Layers(1, 10), two = Layers(2, 10);
  const std::vector<Retained> retained = {{&one, 1, 1}, {&one, 1, 2}, {&two, 2, 3}, {&two, 2, 4}};
  EXPECT_THAT(KeptBy(Rule::kSmallestCombination, retained, 40), ElementsAre(1, 1, 0, 2));
}

TEST(Rules, ACombinationOfManySetsIsBounded) {
  const core::LayerTable small = Layers(1, 1), large = Layers(1, 1000);
  std::vector<Retained> retained(40, {&small, 1, 1});
  retained[7].layers = &large;
  const std::vector<int> kept = KeptBy(Rule::kSmallestCombination, retained, 30);
  EXPECT_EQ(kept[7], 0);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 1), 30);
}

TEST(Rules, AreNamed) {
  for (const Rule rule : OtherRules()) {
    const auto parsed = ParseRule(RuleName(rule));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, rule);
  }
  EXPECT_EQ(*ParseRule("broker"), Rule::kBroker);
  EXPECT_THAT(std::string(ParseRule("lru").status().message()),
              testing::HasSubstr("'lru' is no rule: broker, release_all, lru_whole"));
}

}  // namespace
}  // namespace vrambroker::sim
