#include "broker/core/planner.h"

#include <gtest/gtest.h>

namespace vrambroker::core {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(ExposedSecondsPerByte, IsWhatComputeDoesNotHide) {
  EXPECT_DOUBLE_EQ(ExposedSecondsPerByte(0, Bytes(1000), 10), 0.1);
  EXPECT_DOUBLE_EQ(ExposedSecondsPerByte(50, Bytes(1000), 10), 0.05);
  EXPECT_DOUBLE_EQ(ExposedSecondsPerByte(200, Bytes(1000), 10), 0);
  EXPECT_DOUBLE_EQ(ExposedSecondsPerByte(1, Bytes(), 10), 0);
}

// Two components of ten layers of 1 MiB; nothing hides their copies.
class PlannerTest : public testing::Test {
 protected:
  PlannerTest() : layers_({{10, Bytes(kMiB)}}) {
    PlanComponent c;
    c.layers = &layers_;
    c.sigma = 1e-9;
    problem_.components = {c, c};
  }
  void Use(int component, int passes, int64_t need) {
    PlanUse u;
    u.component = component;
    u.first_slot = u.last_slot = problem_.slots++;
    u.passes = passes;
    u.need = Bytes(need);
    u.window = Bytes(2 * kMiB);
    u.max_resident = 10;
    problem_.uses.push_back(u);
  }
  LayerTable layers_;
  PlanProblem problem_;
};

TEST_F(PlannerTest, KeepsWhatIsHeldForAKnownUse) {
  problem_.capacity = Bytes(30 * kMiB);
  problem_.components[0].held = 10;
  Use(1, 1, 0);
  Use(0, 1, 0);
  EXPECT_EQ(MakePlan(problem_).keep[0], 10);
}

TEST_F(PlannerTest, KeepsAPartWhereTheNextUseNeedsTheRest) {
  problem_.capacity = Bytes(12 * kMiB);
  problem_.components[0].held = 10;
  Use(1, 1, 3 * kMiB);  // 3 MiB and a window of 2: leaves 7
  Use(0, 1, 0);
  EXPECT_EQ(MakePlan(problem_).keep[0], 7);
}

TEST_F(PlannerTest, ManyPassesAreWorthMoreThanKeeping) {
  problem_.capacity = Bytes(14 * kMiB);
  problem_.components[0].held = 10;
  Use(1, 40, 0);
  Use(0, 1, 0);
  const Plan plan = MakePlan(problem_);
  EXPECT_EQ(plan.resident[0], 10);  // whole, without a window
  EXPECT_EQ(plan.keep[0], 4);
}

TEST_F(PlannerTest, ReleasesWhatHasNoNextUseUnlessItIsKeptByRecency) {
  problem_.capacity = Bytes(30 * kMiB);
  problem_.components[0].held = 10;
  Use(1, 1, 0);
  EXPECT_EQ(MakePlan(problem_).keep[0], 0);
  problem_.components[0].keep_by_recency = true;
  EXPECT_EQ(MakePlan(problem_).keep[0], 10);
}

TEST_F(PlannerTest, ARunningUseKeepsItsGrant) {
  problem_.capacity = Bytes(12 * kMiB);
  Use(0, 1, 0);
  problem_.uses[0].granted = 10;
  problem_.components[1].held = 10;
  Use(1, 1, 0);
  const Plan plan = MakePlan(problem_);
  EXPECT_EQ(plan.resident[0], 10);
  EXPECT_EQ(plan.keep[1], 2);
}

TEST_F(PlannerTest, WholeLayersOnly) {
  problem_.capacity = Bytes(5 * kMiB + kMiB / 2);
  Use(0, 40, 0);
  EXPECT_EQ(MakePlan(problem_).resident[0], 3);  // beside the window
}

TEST_F(PlannerTest, LoadsAheadOnlyIntoRoomThatNothingWants) {
  problem_.capacity = Bytes(16 * kMiB);
  Use(0, 40, 0);
  Use(1, 1, 0);
  problem_.link = {100.0 * kMiB, 0};
  const Plan plan = MakePlan(problem_);
  EXPECT_EQ(plan.resident[0], 10);
  EXPECT_EQ(plan.keep[1], 0);
  EXPECT_EQ(plan.ahead[1], 6);
}

TEST_F(PlannerTest, ALinkSlowBeyondAllMeasureOverflowsNothing) {
  problem_.capacity = Bytes(14 * kMiB);
  for (PlanComponent& c : problem_.components) {
    c.sigma = 1;
    c.link_share = 1e-15;
  }
  for (int i = 0; i < 6; ++i) Use(i % 2, 1 + i, kMiB);
  problem_.link.assign(6, 1.0);
  const Plan plan = MakePlan(problem_);
  EXPECT_EQ(plan.loaded, std::vector<int>(6, 0));
}

TEST_F(PlannerTest, NeedsThatDoNotFitLeaveNothingToOthers) {
  problem_.capacity = Bytes(4 * kMiB);
  problem_.components[0].held = 3;
  Use(1, 1, 8 * kMiB);
  Use(0, 1, 0);
  EXPECT_EQ(MakePlan(problem_).keep[0], 0);
}

TEST_F(PlannerTest, TheSameKnowledgeGivesTheSamePlan) {
  problem_.capacity = Bytes(17 * kMiB);
  for (int i = 0; i < 20; ++i) Use(i % 2, 1 + i % 3, (i % 5) * kMiB);
  const Plan a = MakePlan(problem_), b = MakePlan(problem_);
  EXPECT_EQ(a.resident, b.resident);
  EXPECT_EQ(a.kept, b.kept);
  EXPECT_EQ(a.keep, b.keep);
}

}  // namespace
}  // namespace vrambroker::core
