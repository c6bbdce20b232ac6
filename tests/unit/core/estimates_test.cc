// What uses show of a component, and how much one odd use may move it.
#include "broker/core/estimates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::core {
namespace {

constexpr int64_t kMB = 1'000'000;
constexpr Bytes kCard(24'000 * kMB);

// A use that computed `pass` seconds a pass, 10 passes.
Measurements Computed(double pass) {
  Measurements m;
  m.passes = 10;
  m.compute_seconds = 10 * pass;
  m.seconds = 11 * pass;
  return m;
}

// A use that copied 1 GB at `rate` bytes a second.
Measurements Copied(double rate) {
  Measurements m;
  m.passes = 1;
  m.bytes_loaded = Bytes(1000 * kMB);
  m.copy_seconds = 1e9 / rate;
  m.seconds = m.copy_seconds * 2;
  return m;
}

Measurements Peak(int64_t bytes) {
  Measurements m;
  m.passes = 4;
  m.peak_activation = Bytes(bytes);
  return m;
}

TEST(Samples, TheMedianIsOfTheNewestAndTwoInTheMiddleAreOrdered) {
  Samples s;
  EXPECT_EQ(s.LowerMedian(0), 0);
  EXPECT_EQ(s.UpperMedian(7), 7);
  s.Add(10);
  EXPECT_EQ(s.LowerMedian(0), 10);
  EXPECT_EQ(s.LowerMedian(7), 7) << "what was said counts as one sample";
  EXPECT_EQ(s.UpperMedian(7), 10);
  s.Add(20);
  s.Add(30);
  EXPECT_TRUE(s.settled());
  EXPECT_EQ(s.LowerMedian(7), 20) << "and no longer once enough is measured";
  for (int i = 0; i < Samples::kMost; ++i) s.Add(5);
  EXPECT_EQ(s.count(), Samples::kMost);
  EXPECT_EQ(s.Most(), 5) << "older ones are gone";
}

TEST(Estimates, DeclaredValuesOnlyStartOff) {
  Estimates e;
  EXPECT_EQ(e.PassSeconds(0.5), 0.5);
  EXPECT_EQ(e.PassSeconds(0), 0) << "not known";
  EXPECT_EQ(e.LinkRate(12e9), 12e9);
  for (int i = 0; i < Samples::kSettled; ++i) {
    e.Learn(Computed(0.2), kCard);
    e.Learn(Copied(6e9), kCard);
  }
  EXPECT_DOUBLE_EQ(e.PassSeconds(0.5), 0.2);
  EXPECT_NEAR(e.LinkRate(12e9), 6e9, 1);
  EXPECT_EQ(e.uses(), 2 * Samples::kSettled);
}

TEST(Estimates, ASlowFirstUseMovesNothing) {
  Estimates declared, silent;
  for (Estimates* e : {&declared, &silent}) e->Learn(Computed(2.0), kCard);
  EXPECT_DOUBLE_EQ(declared.PassSeconds(0.2), 0.2);
  EXPECT_DOUBLE_EQ(silent.PassSeconds(0), 2.0) << "nothing better is known";
  silent.Learn(Computed(0.2), kCard);
  EXPECT_DOUBLE_EQ(silent.PassSeconds(0), 0.2) << "the next one mends it";
}

TEST(Estimates, FewerThanHalfOfTheUsesCanBeTenTimesAsSlow) {
  Estimates e;
  for (int i = 0; i < Samples::kMost; ++i) {
    const bool odd = i % 2 == 1;  // 4 of 9
    e.Learn(Computed(odd ? 2.0 : 0.2), kCard);
    e.Learn(Copied(odd ? 1e9 : 10e9), kCard);
  }
  EXPECT_DOUBLE_EQ(e.PassSeconds(0), 0.2);
  EXPECT_NEAR(e.LinkRate(0), 10e9, 1);
}

TEST(Estimates, ALastingChangeIsLearnedWithinFiveUses) {
  Estimates e;
  for (int i = 0; i < 20; ++i) e.Learn(Computed(0.2), kCard);
  for (int i = 0; i < 5; ++i) e.Learn(Computed(0.3), kCard);
  EXPECT_DOUBLE_EQ(e.PassSeconds(0), 0.3);
}

TEST(Estimates, NothingIsLearnedFromAWarmUp) {
  Estimates e;
  Measurements m = Computed(9.0);
  m.peak_activation = Bytes(kMB);
  m.bytes_loaded = Bytes(1000 * kMB);
  m.copy_seconds = 1;
  m.stall_seconds = 1;
  m.warm_up = true;
  EXPECT_FALSE(e.Learn(m, kCard).has_value());
  e.LearnActivation({"s", Bytes(), false}, m, kCard);
  EXPECT_EQ(e.PassSeconds(0), 0);
  EXPECT_EQ(e.LinkRate(0), 0);
  EXPECT_EQ(e.StallPerByte(), 0);
  EXPECT_EQ(e.shapes(), 0);
  EXPECT_EQ(e.uses(), 0);
}

TEST(Estimates, WhatCannotBeIsNotTaken) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  Estimates e;
  for (double wrong : {nan, infinite, -infinite, -1.0, 0.0, 1e300}) {
    Measurements m = Computed(0.2);
    m.compute_seconds = wrong;
    m.bytes_loaded = Bytes(1000 * kMB);
    m.copy_seconds = wrong;
    m.stall_seconds = wrong;
    m.seconds = 0;
    e.Learn(m, kCard);
    m.seconds = wrong;
    e.Learn(m, kCard);
  }
  EXPECT_EQ(e.PassSeconds(0.5), 0.5);
  EXPECT_EQ(e.LinkRate(12e9), 12e9);
  Measurements longer = Computed(0.2);
  longer.compute_seconds = 2 * longer.seconds;  // longer than the use
  e.Learn(longer, kCard);
  EXPECT_EQ(e.PassSeconds(0.5), 0.5);
  for (double rate : {1e3, 1e15}) e.Learn(Copied(rate), kCard);
  EXPECT_EQ(e.LinkRate(12e9), 12e9);
  e.LearnActivation({}, Peak(kCard.count() + 1), kCard);
  EXPECT_EQ(e.ActivationPeak(), Bytes()) << "more than the card has";
  EXPECT_EQ(e.uses(), 0);
}

TEST(Estimates, WithoutCopyTimeOnlyUsesThatMostlyWaitSayHowFastTheLinkIs) {
  Measurements m;
  m.passes = 1;
  m.bytes_loaded = Bytes(8000 * kMB);
  m.stall_seconds = 0.9;
  m.compute_seconds = 0.1;
  m.seconds = 1.0;
  Estimates waits;
  const std::optional<double> rate = waits.Learn(m, kCard);
  ASSERT_TRUE(rate.has_value());
  // Between what it is if compute hid no copy and if it hid copies all along.
  EXPECT_LT(*rate, 8e9 / 0.9);
  EXPECT_GT(*rate, 8e9 / 1.0);
  Estimates hides;
  m.compute_seconds = 0.5;
  EXPECT_FALSE(hides.Learn(m, kCard).has_value()) << "the link may have been idle";
  m.stall_seconds = 0;
  EXPECT_FALSE(hides.Learn(m, kCard).has_value());
}

TEST(Estimates, AFewBytesSayNothingOfTheLink) {
  Estimates e;
  Measurements m = Copied(1e9);
  m.bytes_loaded = Bytes(Estimates::kLeastLoaded - 1);
  EXPECT_FALSE(e.Learn(m, kCard).has_value());
}

TEST(Estimates, StallIsToldByTheByteAsItCameOut) {
  Estimates e;
  Measurements m = Copied(10e9);
  m.stall_seconds = 0.05;
  e.Learn(m, kCard);
  EXPECT_DOUBLE_EQ(e.StallPerByte(), 0.05 / 1e9);
}

TEST(Activation, WhatIsOverDeclaredIsLearnedDownWithAMarginAfterThreeUses) {
  Estimates e;
  const ActivationAsk ask{"1024x1024x1", Bytes(3000 * kMB), false};
  for (int use = 0; use < 3; ++use) {
    EXPECT_EQ(e.ActivationNeed(ask), ask.declared) << use;
    e.LearnActivation(ask, Peak(600 * kMB), kCard);
  }
  EXPECT_EQ(e.ActivationNeed(ask), Bytes(720 * kMB));
  EXPECT_EQ(e.ActivationPeak(), Bytes(600 * kMB));
  const ActivationAsk exact{ask.shape, ask.declared, true};
  EXPECT_EQ(e.ActivationNeed(exact), ask.declared) << "the caller insists";
  const ActivationAsk larger{"2048x2048x1", Bytes(9000 * kMB), false};
  EXPECT_EQ(e.ActivationNeed(larger), larger.declared) << "nothing is known of this shape";
}

TEST(Activation, TheHighestRecentPeakCounts) {
  Estimates e;
  const ActivationAsk ask{"s", Bytes(3000 * kMB), false};
  for (int64_t peak : {600, 500, 550}) e.LearnActivation(ask, Peak(peak * kMB), kCard);
  EXPECT_EQ(e.ActivationNeed(ask), Bytes(720 * kMB));
  e.LearnActivation(ask, Peak(1000 * kMB), kCard);
  EXPECT_EQ(e.ActivationNeed(ask), Bytes(1200 * kMB)) << "at once";
  for (int i = 0; i < Samples::kMost; ++i) e.LearnActivation(ask, Peak(500 * kMB), kCard);
  EXPECT_EQ(e.ActivationNeed(ask), Bytes(600 * kMB)) << "and not for ever";
}

TEST(Activation, AnHonestCallerIsChargedWhatItDeclares) {
  Estimates e;
  const ActivationAsk ask{"", Bytes(1000 * kMB), false};
  for (int use = 0; use < 5; ++use) {
    e.LearnActivation(ask, Peak(1000 * kMB), kCard);
    EXPECT_EQ(e.ActivationNeed(ask), ask.declared);
  }
}

TEST(Activation, AnUnderDeclarationIsRaisedByTheFirstPeak) {
  Estimates e;
  const ActivationAsk ask{"", Bytes(100 * kMB), false};
  e.LearnActivation(ask, Peak(1000 * kMB), kCard);
  EXPECT_EQ(e.ActivationNeed(ask), Bytes(1200 * kMB));
  const ActivationAsk none{"", Bytes(), false};
  EXPECT_EQ(e.ActivationNeed(none), Bytes()) << "another declaration is another shape";
  e.LearnActivation(none, Peak(10 * kMB), kCard);
  EXPECT_EQ(e.ActivationNeed(none), Bytes(12 * kMB));
}

TEST(Activation, WithoutAShapeUsesThatDeclareTheSameAreAlike) {
  Estimates e;
  const ActivationAsk small{"", Bytes(1000 * kMB), false}, large{"", Bytes(4000 * kMB), false};
  for (int use = 0; use < 3; ++use) e.LearnActivation(small, Peak(100 * kMB), kCard);
  EXPECT_EQ(e.ActivationNeed(small), Bytes(120 * kMB));
  EXPECT_EQ(e.ActivationNeed(large), large.declared);
  const ActivationAsk named{"s", Bytes(1000 * kMB), false};
  EXPECT_EQ(e.ActivationNeed(named), named.declared);
}

TEST(Activation, PastTheBoundTheShapeUnusedForLongestIsForgotten) {
  Estimates e;
  const auto shape = [](int i) {
    return ActivationAsk{absl::StrCat("shape-", i), Bytes(1000 * kMB), false};
  };
  for (int i = 0; i < Estimates::kMaxShapes; ++i) {
    for (int use = 0; use < 3; ++use) e.LearnActivation(shape(i), Peak(100 * kMB), kCard);
  }
  e.LearnActivation(shape(0), Peak(100 * kMB), kCard);
  e.LearnActivation(shape(99), Peak(100 * kMB), kCard);
  EXPECT_EQ(e.shapes(), Estimates::kMaxShapes);
  EXPECT_EQ(e.ActivationNeed(shape(0)), Bytes(120 * kMB));
  EXPECT_EQ(e.ActivationNeed(shape(1)), Bytes(1000 * kMB)) << "forgotten: as declared";
  EXPECT_EQ(e.ActivationNeed(shape(2)), Bytes(120 * kMB));
}

TEST(Activation, AUseWithoutAPassSaysNothing) {
  Estimates e;
  Measurements m = Peak(100 * kMB);
  m.passes = 0;
  e.LearnActivation({"s", Bytes(), false}, m, kCard);
  EXPECT_EQ(e.shapes(), 0);
}

using Stretches = std::vector<std::pair<int, int>>;

TEST(Regret, LayersThatComeBackInTimeAreNamedOnce) {
  Regret r;
  const absl::Time t = absl::FromUnixSeconds(100);
  const absl::Duration ten = absl::Seconds(10);
  EXPECT_EQ(r.Note(8, t, ten), Stretches()) << "the first load is no regret";
  EXPECT_EQ(r.Note(5, t, ten), Stretches());
  EXPECT_EQ(r.Note(2, t + absl::Seconds(1), ten), Stretches());
  EXPECT_EQ(r.Note(6, t + absl::Seconds(2), ten), (Stretches{{2, 5}, {5, 6}}));
  EXPECT_EQ(r.Note(6, t + absl::Seconds(3), ten), Stretches());
  EXPECT_EQ(r.Note(8, t + absl::Seconds(4), ten), (Stretches{{6, 8}}));
}

TEST(Regret, LaterThanTheResidencyIsNone) {
  Regret r;
  const absl::Time t = absl::FromUnixSeconds(100);
  const absl::Duration ten = absl::Seconds(10);
  r.Note(8, t, ten);
  r.Note(4, t, ten);
  r.Note(0, t + absl::Seconds(5), ten);
  EXPECT_EQ(r.Note(8, t + ten, ten), (Stretches{{0, 4}}));
}

}  // namespace
}  // namespace vrambroker::core
