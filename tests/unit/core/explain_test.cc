// Decisions made again: from a plan's problem, and through the machine.
#include "broker/core/explain.h"

#include <algorithm>

#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

// Components "a" and "b" of ten layers of 1 MiB; nothing hides their copies.
class ExplainTest : public testing::Test {
 protected:
  ExplainTest() : layers_({{10, Bytes(kMiB)}}) {
    PlanComponent c;
    c.layers = &layers_;
    c.sigma = 1e-9;
    problem_.plan.components = {c, c};
    problem_.components = {ComponentId(1), ComponentId(2)};
  }
  PlanUse& Use(int component, int passes, int64_t need) {
    PlanUse u;
    u.component = component;
    u.first_slot = u.last_slot = problem_.plan.slots++;
    problem_.slot_starts.push_back(u.first_slot);
    u.passes = passes;
    u.need = Bytes(need);
    u.window = Bytes(2 * kMiB);
    u.max_resident = 10;
    problem_.plan.uses.push_back(u);
    return problem_.plan.uses.back();
  }
  static std::string Name(ComponentId id) { return id.value() == 1 ? "w/a" : "w/b"; }
  // Of a decision on `component` by the plan of the problem.
  Explanation ExplainNow(DecisionKind kind, int component) {
    Decision decision;
    decision.id = DecisionId(1);
    decision.kind = kind;
    const auto known = memory_.Copy("GPU-0", problem_, MakePlan(problem_.plan), Name);
    return Explain(decision, *known, component);
  }
  static const Alternative* Find(const Explanation& e, AlternativeKind kind) {
    for (const Alternative& a : e.alternatives) {
      if (a.kind == kind) return &a;
    }
    return nullptr;
  }

  LayerTable layers_;
  Problem problem_;
  PlanMemory memory_;
};

constexpr double kLayer = kMiB * 1e-9;  // seconds lost to a layer that is streamed

TEST_F(ExplainTest, KeepingLessCostsTheNextUseAndKeepingAllTheOneBetween) {
  problem_.plan.capacity = Bytes(14 * kMiB);
  problem_.plan.components[0].held = 10;
  Use(1, 40, 0);
  Use(0, 1, 0);
  const Explanation e = ExplainNow(DecisionKind::kRetention, 0);
  EXPECT_TRUE(e.reproduced);
  EXPECT_EQ(e.planned_layers, 4);
  ASSERT_EQ(e.alternatives.size(), 2u);
  const Alternative& nothing = *Find(e, AlternativeKind::kKeepNothing);
  EXPECT_FALSE(nothing.chosen);
  EXPECT_NEAR(nothing.cost_seconds, 4 * kLayer, 1e-9);
  EXPECT_EQ(nothing.loser, 1);
  EXPECT_NEAR(nothing.loser_seconds, 4 * kLayer, 1e-9);
  const Alternative& all = *Find(e, AlternativeKind::kKeepAll);
  EXPECT_EQ(all.layers, 10);
  EXPECT_EQ(all.missing, Bytes());
  // Beside ten kept layers the use of 40 passes has a window and 2 layers, rather than all 10.
  EXPECT_NEAR(all.cost_seconds, (39 * 8 - 6) * kLayer, 1e-9);
  EXPECT_EQ(all.loser, 0);
  EXPECT_NEAR(all.loser_seconds, 39 * 8 * kLayer, 1e-9);
}

TEST_F(ExplainTest, WhatDoesNotFitSaysByHowMuch) {
  problem_.plan.capacity = Bytes(14 * kMiB);
  problem_.plan.components[0].held = 10;
  Use(1, 1, 7 * kMiB);
  Use(0, 1, 0);
  const Explanation e = ExplainNow(DecisionKind::kRetention, 0);
  const Alternative& all = *Find(e, AlternativeKind::kKeepAll);
  EXPECT_FALSE(all.chosen);
  EXPECT_EQ(all.missing, Bytes((10 + 7 + 2 - 14) * kMiB));
}

TEST_F(ExplainTest, WhatThePlanChoseCostsNothing) {
  problem_.plan.capacity = Bytes(40 * kMiB);
  problem_.plan.components[0].held = 10;
  Use(1, 1, 0);
  Use(0, 1, 0);
  const Explanation e = ExplainNow(DecisionKind::kRetention, 0);
  EXPECT_EQ(e.planned_layers, 10);
  const Alternative& all = *Find(e, AlternativeKind::kKeepAll);
  EXPECT_TRUE(all.chosen);
  EXPECT_EQ(all.cost_seconds, 0);
  EXPECT_NEAR(Find(e, AlternativeKind::kKeepNothing)->cost_seconds, 10 * kLayer, 1e-9);
}

TEST_F(ExplainTest, AGrantIsComparedWithTheFewestAndTheMostLayers) {
  problem_.plan.capacity = Bytes(14 * kMiB);
  problem_.plan.components[0].held = 10;
  Use(1, 3, 0).min_resident = 2;
  Use(0, 1, 0);
  problem_.deciding = 0;
  const Explanation e = ExplainNow(DecisionKind::kGrant, 1);
  EXPECT_TRUE(e.reproduced);
  EXPECT_TRUE(e.uses[0].deciding);
  EXPECT_EQ(e.planned_layers, e.uses[0].resident);
  const Alternative& fewest = *Find(e, AlternativeKind::kGrantFewest);
  EXPECT_EQ(fewest.layers, 2);
  EXPECT_GT(fewest.cost_seconds, 0);
  EXPECT_EQ(fewest.loser, 0);
  const Alternative& most = *Find(e, AlternativeKind::kGrantMost);
  EXPECT_EQ(most.layers, 10);
  EXPECT_EQ(most.chosen, e.planned_layers == 10);
}

TEST_F(ExplainTest, LoadingAheadIsComparedWithLoadingNothing) {
  problem_.plan.capacity = Bytes(40 * kMiB);
  problem_.plan.slots = 1;  // nothing runs in it
  problem_.slot_starts = {-1e-6};
  Use(0, 1, 0);
  problem_.plan.link = {1e15, 1e6};
  const Explanation e = ExplainNow(DecisionKind::kLoadAhead, 0);
  EXPECT_TRUE(e.load_ahead);
  EXPECT_EQ(e.planned_layers, 10);
  EXPECT_EQ(e.uses[0].loaded, 10);
  EXPECT_EQ(e.uses[0].start_seconds, 1);
  ASSERT_EQ(e.alternatives.size(), 1u);
  EXPECT_EQ(e.alternatives[0].kind, AlternativeKind::kKeepAll);
  EXPECT_EQ(e.alternatives[0].layers, 0);
  EXPECT_NEAR(e.alternatives[0].cost_seconds, 10 * kLayer, 1e-9);
}

TEST_F(ExplainTest, SavedSecondsOfTheUsesAddUpToThePlans) {
  problem_.plan.capacity = Bytes(17 * kMiB);
  problem_.plan.components[0].held = 10;
  Use(1, 5, kMiB);
  Use(0, 2, kMiB).probability = 0.7;
  Use(1, 1, 0);
  Use(0, 1, 0).probability = 0.3;
  const Explanation e = ExplainNow(DecisionKind::kRetention, 0);
  double sum = 0;
  for (const ExplainedUse& use : e.uses) sum += use.saved_seconds;
  EXPECT_GT(sum, 0);
  EXPECT_NEAR(sum, e.saved_seconds, 1e-12);
}

TEST_F(ExplainTest, MemoryIsBoundedByDecisionsAndByBytes) {
  problem_.plan.capacity = Bytes(14 * kMiB);
  for (int i = 0; i < 128; ++i) Use(i % 2, 1, 0);
  const Plan plan = MakePlan(problem_.plan);
  for (uint64_t i = 1; i <= 300; ++i) {
    memory_.Add({DecisionId(i), 0, memory_.Copy("GPU-0", problem_, plan, Name)});
  }
  EXPECT_LE(memory_.entries().size(), PlanMemory::kMostDecisions);
  EXPECT_LE(memory_.bytes(), PlanMemory::kMostBytes);
  EXPECT_GE(memory_.entries().size(), 200u) << "of the usual size nearly all are kept";
  EXPECT_EQ(memory_.Find(DecisionId(1)), nullptr);
  ASSERT_NE(memory_.Find(DecisionId(300)), nullptr);
  EXPECT_EQ(memory_.Find(DecisionId(300))->decision, DecisionId(300));
  EXPECT_EQ(memory_.Find(DecisionId(301)), nullptr);
  // Layer tables are shared as long as they stay the same.
  const auto& entries = memory_.entries();
  EXPECT_EQ(entries[0].knowledge->components[1], entries.back().knowledge->components[1]);
  layers_ = LayerTable({{10, Bytes(kMiB)}, {100000, Bytes(1)}});
  for (uint64_t i = 301; i <= 320; ++i) {
    layers_ = LayerTable({{100000 + static_cast<int>(i), Bytes(1)}});
    memory_.Add({DecisionId(i), 0, memory_.Copy("GPU-0", problem_, plan, Name)});
  }
  EXPECT_LE(memory_.bytes(), PlanMemory::kMostBytes);
  EXPECT_LT(memory_.entries().size(), 4u);
  ASSERT_NE(memory_.Find(DecisionId(320)), nullptr);
}

TEST_F(ExplainTest, DecisionsOfOnePlanShareWhatItKnew) {
  problem_.plan.capacity = Bytes(14 * kMiB);
  Use(0, 1, 0);
  const auto known = memory_.Copy("GPU-0", problem_, MakePlan(problem_.plan), Name);
  memory_.Add({DecisionId(1), 0, known});
  memory_.Add({DecisionId(2), 1, known});
  EXPECT_EQ(memory_.bytes(), known->bytes);
}

class ExplainMachineTest : public MachineFixture {
 protected:
  // Two components that do not fit together, and declared runs of both.
  void Start(int runs) {
    Build(10 * kGiB);
    driver_ = NewWorker("driver", {});
    text_ = NewWorker("text", {Forward("t", 8, kGiB)});
    dit_ = NewWorker("dit", {Forward("d", 8, kGiB, 0, kGiB)});
    for (Worker* w : {&driver_, &text_, &dit_}) Attach(w);
    runs_ = Declare(driver_, {Stage("text/t"), Stage("dit/d", 20)}, runs);
  }
  void Run(size_t run) {
    for (int stage = 0; stage < 2; ++stage) {
      Worker* w = stage == 0 ? &text_ : &dit_;
      const std::string name = stage == 0 ? "t" : "d";
      const std::string request = absl::StrCat("run-", run);
      const CallId call = Begin(*w, request, name, 0, [&](UseSpec* u) {
        u->run = runs_[run];
        u->stage = stage;
        u->passes = stage == 0 ? 1 : 20;
      });
      for (Worker* other : {&text_, &dit_}) Report(other);
      Pass(absl::Seconds(1));
      ASSERT_TRUE(Granted(call, w, name).has_value());
      Pass(absl::Seconds(1));
      End(w, request, name);
    }
    Step(FinishRunEvent{Header(driver_, absl::StrCat("f", run)), runs_[run]});
  }

  Worker driver_, text_, dit_;
  std::vector<RunId> runs_;
};

TEST_F(ExplainMachineTest, EveryDecisionMadeAgainIsTheSame) {
  config_.load_ahead = true;
  Start(4);
  for (size_t i = 0; i < runs_.size(); ++i) ASSERT_NO_FATAL_FAILURE(Run(i));
  int planned = 0, compared = 0;
  const std::deque<Decision> before = machine_->decisions();
  for (const Decision& d : before) {
    const absl::StatusOr<Explanation> e = machine_->Explain(d.id);
    ASSERT_TRUE(e.ok()) << d.text << ": " << e.status();
    EXPECT_EQ(e->decision.text, d.text);
    if (!e->planned) continue;
    ++planned;
    EXPECT_TRUE(e->reproduced) << d.text;
    EXPECT_EQ(e->components[static_cast<size_t>(e->component)].name, d.component);
    compared += d.kind == DecisionKind::kRetention && d.layers == e->planned_layers ? 1 : 0;
  }
  EXPECT_GE(planned, 8);
  EXPECT_GE(compared, 4);
  // Looking changes nothing and is no decision.
  EXPECT_EQ(machine_->decisions().size(), before.size());
  EXPECT_TRUE(Pass(absl::ZeroDuration()).empty());
}

TEST_F(ExplainMachineTest, KnowledgeOutlivesTheComponentsThatItIsOf) {
  Start(2);
  ASSERT_NO_FATAL_FAILURE(Run(0));
  const DecisionId last = machine_->decisions().back().id;
  Close(&text_);
  Close(&dit_);
  Die(text_);
  Die(dit_);
  Pass(absl::Minutes(1));
  const absl::StatusOr<Explanation> e = machine_->Explain(last);
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_TRUE(e->reproduced);
  EXPECT_EQ(e->components.size(), 2u);
}

TEST_F(ExplainMachineTest, PassesOfNextToNoTimeArePlannedAsOftenAsTheyWereAskedFor) {
  Build(10 * kGiB);
  ComponentSpec quick = Forward("quick", 4, kGiB);
  quick.pass_seconds = 1e-75;
  Worker w = NewWorker("w", {quick});
  Worker v = NewWorker("v", {Forward("m", 8, kGiB)});
  AttachAll({&w, &v});
  const auto thrice = [](UseSpec* use) { use->passes = 3; };
  ASSERT_TRUE(Granted(Begin(w, "q", "quick", 0, thrice), &w, "quick").has_value());
  ASSERT_TRUE(Granted(Begin(v, "m", "m"), &v, "m").has_value());
  const absl::StatusOr<Explanation> e = machine_->Explain(machine_->decisions().back().id);
  ASSERT_TRUE(e.ok()) << e.status();
  const auto running = std::find_if(e->uses.begin(), e->uses.end(),
                                    [](const ExplainedUse& use) { return use.running; });
  ASSERT_NE(running, e->uses.end());
  EXPECT_EQ(running->passes, 3);
}

TEST_F(ExplainMachineTest, UnknownIdsNameTheRangeThatIsKnown) {
  Build(10 * kGiB);
  EXPECT_THAT(std::string(machine_->Explain(DecisionId(1)).status().message()),
              testing::HasSubstr("nothing has been decided yet"));
  config_.max_decisions = 8;
  Start(5);
  for (size_t i = 0; i < runs_.size(); ++i) ASSERT_NO_FATAL_FAILURE(Run(i));
  const auto& decisions = machine_->decisions();
  const std::string range =
      absl::StrCat(decisions.front().id.value(), " to ", decisions.back().id.value(), " are known");
  for (DecisionId id : {DecisionId(1), decisions.back().id.Next()}) {
    const absl::Status status = machine_->Explain(id).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(range));
  }
}

TEST_F(ExplainMachineTest, ForgottenPlansNameTheRangeThatIsKept) {
  Build(10 * kGiB);
  Worker w = NewWorker("w", {Forward("m", 4, kGiB)});
  Attach(&w);
  DecisionId first;
  for (int i = 0; i < 300; ++i) {
    const std::string request = absl::StrCat("u", i);
    ASSERT_TRUE(Granted(Begin(w, request, "m"), &w, "m").has_value());
    End(&w, request, "m");
    if (i == 0) first = machine_->decisions().back().id;
  }
  const absl::Status status = machine_->Explain(first).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("last 256 decisions"));
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(absl::StrCat(" to ", machine_->decisions().back().id.value())));
}

TEST_F(ExplainMachineTest, AGrantOfAllThatIsFreeNeedsNoPlan) {
  Build(10 * kGiB);
  Worker w = NewWorker("w", {Forward("m", 4, kGiB)});
  Attach(&w);
  ASSERT_TRUE(Granted(Begin(w, "1", "m"), &w, "m").has_value());
  const absl::StatusOr<Explanation> e = machine_->Explain(machine_->decisions().back().id);
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_FALSE(e->planned);
  EXPECT_EQ(e->decision.kind, DecisionKind::kGrant);
  EXPECT_TRUE(e->alternatives.empty());
}

}  // namespace
}  // namespace vrambroker::core
