// What recurs without being declared: kept by how often it comes, expected in the order in which it
// came, and given up when it stays away.
#include <random>

#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Recurrence : public MachineFixture {
 protected:
  // Uses a component of a worker of the same name once; returns the layers that it had to load.
  int Use(Worker* w, int fewest = 0) {
    const std::string request = absl::StrCat("use-", ++uses_);
    const CallId call =
        Begin(*w, request, w->name, 0, [&](UseSpec* u) { u->min_resident = fewest; });
    for (Worker* other : workers_) {
      if (other != w) Report(other);  // gives back what was asked of it
    }
    const int before = Look(absl::StrCat(w->name, "/", w->name)).held;
    const auto granted = Granted(call, w, w->name);
    EXPECT_TRUE(granted.has_value()) << w->name;
    End(w, request, w->name);
    Report(w);
    now_ += absl::Seconds(1);
    return granted.has_value() ? granted->resident - std::min(before, granted->resident) : 0;
  }
  std::vector<Worker*> workers_;
  int uses_ = 0;
};

// Three sets fit. Two models of five come once in fifty: who keeps what came last loads a popular
// one again and again for each of these.
TEST_F(Recurrence, ARareModelDoesNotPushOutThoseThatComeAllTheTime) {
  Build(13 * kGiB);
  std::vector<Worker> models;
  for (const char* name : {"a", "b", "c", "rare", "rarer"}) {
    models.push_back(NewWorker(name, {Forward(name, 4, kGiB)}));
  }
  for (Worker& w : models) {
    Attach(&w);
    workers_.push_back(&w);
  }
  std::mt19937 random(7);
  int popular_loads = 0, rare_uses = 0;
  for (int i = 0; i < 500; ++i) {
    if (i % 50 == 49) {
      Use(&models[i % 100 == 99 ? 4 : 3]);
      ++rare_uses;
      continue;
    }
    const int loaded = Use(&models[random() % 3]);
    if (i >= 50) popular_loads += loaded;
  }
  // Each rare use needs the room of one set, which comes back once.
  EXPECT_LE(popular_loads, (rare_uses + 1) * 4);
}

TEST_F(Recurrence, WhatFollowedThreeAlikeIsExpectedAgainAndNotForEver) {
  config_.expect_for = absl::Seconds(10);
  Build(20 * kGiB);
  Worker t = NewWorker("t", {Forward("t", 4, kGiB)}), d = NewWorker("d", {Forward("d", 5, kGiB)});
  Worker driver = NewWorker("driver", {});
  for (Worker* w : {&driver, &t, &d}) Attach(w);
  workers_ = {&t, &d};
  const std::vector<RunId> runs = Declare(driver, {Stage("t"), Stage("d")}, 4);
  for (size_t i = 0; i < runs.size(); ++i) {
    for (int stage : {0, 1}) {
      Worker* w = workers_[static_cast<size_t>(stage)];
      const std::string request = absl::StrCat("run-", i, "-", stage);
      const auto granted = Granted(Begin(*w, request, w->name, 0,
                                         [&](UseSpec* u) {
                                           u->run = runs[i];
                                           u->stage = stage;
                                         }),
                                   w, w->name);
      ASSERT_TRUE(granted.has_value());
      End(w, request, w->name);
      now_ += absl::Seconds(1);
    }
    Step(FinishRunEvent{Header(driver, absl::StrCat("f", i)), runs[i]});
  }
  EXPECT_EQ(Look("t/t").target, 4) << "a fifth run is to be expected";
  Pass(absl::Seconds(20));
  EXPECT_EQ(Look("t/t").target, 0);
  EXPECT_EQ(Look("d/d").target, 0);
}

// A model came once and is kept because nobody wants the room. Seconds from the end of the last use
// before a large one that is expected until all of that one is there.
class Residency : public Recurrence {
 protected:
  int SecondsUntilThere(absl::Duration minimum_residency) {
    config_.load_ahead = true;
    config_.minimum_residency = minimum_residency;
    config_.expect_for = absl::Seconds(60);
    Build(11 * kGiB);
    std::vector<Worker> models;
    for (const char* name : {"a", "b", "c"}) {
      models.push_back(NewWorker(name, {Forward(name, 1, kGiB)}));
    }
    models.push_back(NewWorker("large", {Forward("large", 5, kGiB)}));
    models.push_back(NewWorker("once", {Forward("once", 8, kGiB)}));
    workers_.clear();
    for (Worker& w : models) {
      Attach(&w);
      workers_.push_back(&w);
    }
    for (int i = 0; i < 24; ++i) Use(&models[static_cast<size_t>(i % 4)], i % 4 == 3 ? 5 : 1);
    Use(&models[4], 8);
    for (size_t i = 0; i < 3; ++i) Use(&models[i], 1);
    EXPECT_LT(Look("large/large").target, 5);
    for (int seconds = 1; seconds < 30; ++seconds) {
      Pass(absl::Seconds(1));
      for (Worker* w : workers_) Report(w);
      if (Look("large/large").held == 5) return seconds;
    }
    return 30;
  }
};

TEST_F(Residency, WhatHasJustComeDoesNotGoForWhatIsMerelyExpected) {
  const int seconds = SecondsUntilThere(absl::Seconds(10));
  EXPECT_GE(seconds, 5);
  EXPECT_LE(seconds, 11) << "what has been there for a while does";
}

TEST_F(Residency, WithoutAMinimumItGoesAtOnce) {
  EXPECT_LE(SecondsUntilThere(absl::ZeroDuration()), 2);
}

}  // namespace
}  // namespace vrambroker::core
