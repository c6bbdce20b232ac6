#include "broker/sim/card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace vrambroker::sim {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Components of ten layers of 10 bytes over a link of 100 bytes a second; a pass computes as many
// seconds as given.
Workload Of(const std::vector<double>& pass_seconds) {
  Workload w;
  w.name = "w";
  w.device = {1000, 0, 100};
  for (double seconds : pass_seconds) {
    w.components.push_back({"c", {{10, 10}}, 0, 2, seconds});
  }
  return w;
}

TEST(Card, APassHidesCopiesBehindItsCompute) {
  Card card(Of({0.4}));
  card.Begin(0, 0, 5, 3, 7);
  EXPECT_EQ(card.Occupied(), 50 + 20 + 7);
  // First pass: 100 bytes; each later one 50. sigma = 1/100 - 0.4/100.
  EXPECT_NEAR(card.NextChange(), 0.4 + 100 * 0.006, 1e-9);
  EXPECT_THAT(card.Advance(card.NextChange()).uses, IsEmpty());
  EXPECT_NEAR(card.NextChange(), 2 * (0.4 + 50 * 0.006), 1e-9);
  EXPECT_THAT(card.Advance(card.NextChange()).uses, ElementsAre(0));
  EXPECT_NEAR(card.now(), 3 * 0.4 + 200 * 0.006, 1e-9);
  EXPECT_NEAR(card.place(0).use->BytesLoaded(), 200, 1e-9);
  card.End(0);
  EXPECT_EQ(card.place(0).held, 5);
  // What was held counts for the first pass, and all layers need no window.
  card.Begin(0, 1, 10, 1, 0);
  EXPECT_EQ(card.Occupied(), 100);
  EXPECT_NEAR(card.NextChange(), 0.4 + 50 * 0.006, 1e-9);
}

TEST(Card, TwoThatStreamShareTheLink) {
  Card card(Of({0.1, 0.1}));
  card.Begin(0, 0, 0, 1, 0);
  EXPECT_NEAR(card.NextChange(), 1, 1e-9);
  card.Advance(0.5);
  card.Begin(1, 1, 0, 1, 0);
  // Each pass takes 2 s now; half of the first is left.
  EXPECT_NEAR(card.NextChange(), 1, 1e-9);
  EXPECT_THAT(card.Advance(1).uses, ElementsAre(0));
  card.End(0);
  // The second did half, and has the link to itself.
  EXPECT_NEAR(card.NextChange(), 0.5, 1e-9);
}

TEST(Card, LoadsAheadGetWhatAUseLeavesOfTheLink) {
  Card card(Of({2, 0}));
  card.Begin(0, 0, 0, 1, 0);  // 100 bytes in 2 s: half the link
  card.Load(1, 0);
  EXPECT_NEAR(card.NextChange(), 10 / 50.0, 1e-9);
  card.Load(1, 20);
  EXPECT_NEAR(card.NextChange(), 10 / 20.0, 1e-9);
  EXPECT_THAT(card.Advance(card.NextChange()).loaded, ElementsAre(1));
  EXPECT_EQ(card.place(1).held, 1);
  EXPECT_NEAR(card.bytes_ahead(), 10, 1e-9);
}

TEST(Card, ALoadWaitsWhereNothingOfTheLinkIsLeft) {
  Card card(Of({0.1, 0}));
  card.Begin(0, 0, 0, 1, 0);  // takes the whole link for a second
  card.Load(1, 0);
  EXPECT_NEAR(card.NextChange(), 1, 1e-9);
  // To be let go of, it finishes its layer at a fair share.
  card.FinishLoad(1);
  EXPECT_NEAR(card.NextChange(), 10 / 50.0, 1e-9);
  EXPECT_THAT(card.Advance(card.NextChange()).loaded, ElementsAre(1));
  card.Release(1, 0);
  EXPECT_EQ(card.Layers(1), 0);
}

TEST(Card, TheFirstLoadGoesFirst) {
  Card card(Of({0, 0}));
  card.Load(1, 0);
  card.Load(0, 0);
  EXPECT_THAT(card.Advance(card.NextChange()).loaded, ElementsAre(1));
  card.Load(1, 0);  // its next layer, of the same load
  EXPECT_THAT(card.Advance(card.NextChange()).loaded, ElementsAre(1));
  card.Release(1, 2);
  EXPECT_THAT(card.Advance(card.NextChange()).loaded, ElementsAre(0));
}

TEST(Card, WhatALoadHasCopiedCountsForTheFirstPass) {
  Card card(Of({0}));
  card.Load(0, 0);
  card.Advance(card.NextChange());
  card.Load(0, 0);
  card.Advance(0.05);  // half of the second layer
  EXPECT_EQ(card.Layers(0), 20);
  card.Begin(0, 0, 4, 1, 0);
  EXPECT_NEAR(card.place(0).use->BytesLoaded(), 100 - 15, 1e-9);
  EXPECT_NEAR(card.bytes_ahead(), 15, 1e-9);
}

TEST(Card, NothingGoesOnForever) {
  Card card(Of({1}));
  EXPECT_TRUE(std::isinf(card.NextChange()));
}

}  // namespace
}  // namespace vrambroker::sim
