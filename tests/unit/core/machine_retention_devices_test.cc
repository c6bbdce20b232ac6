// Several cards under one broker, and sizes beside worth.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class RetentionDevices : public MachineFixture {
 protected:
  void UseOnce(Worker* w, const std::string& request, const std::string& component, RunId run,
               int stage) {
    const auto in_run = [&](UseSpec* use) {
      use->run = run;
      use->stage = stage;
    };
    const CallId call = Begin(*w, request, component, 0, in_run);
    for (const auto& [connection, worker] : by_connection_) {
      if (worker != w && !worker->components.empty()) Report(worker);
    }
    ASSERT_TRUE(Granted(call, w, component).has_value()) << component;
    End(w, request, component);
  }
};

TEST_F(RetentionDevices, PressureOnOneCardNeverReleasesOnAnother) {
  Build(10 * kGiB, true, 0, 2);
  Worker here = NewWorker("here", {Forward("m", 6, kGiB)}),
         rival = NewWorker("rival", {Forward("m", 8, kGiB)}),
         there = NewWorker("there", {Forward("m", 6, kGiB)});
  there.device = "GPU-1";
  for (Worker* w : {&here, &rival, &there}) Attach(w);
  for (Worker* w : {&here, &there}) {
    ASSERT_TRUE(Granted(Begin(*w, "1", "m"), w, "m").has_value());
    End(w, "1", "m");
  }
  const Target before = *Told(there, "m");
  // A use that needs nearly all of the first card, then others' bytes on it.
  const CallId call = Begin(rival, "1", "m", 0, [](UseSpec* use) { use->min_resident = 8; });
  EXPECT_EQ(Look("here/m").target, 2);
  Report(&here);
  ASSERT_TRUE(Granted(call, &rival, "m").has_value());
  End(&rival, "1", "m");
  Read({{here.pid, Bytes(2 * kGiB)}, {rival.pid, Bytes(8 * kGiB)}, {9999, Bytes(9 * kGiB)}});
  EXPECT_LT(Look("here/m").target + Look("rival/m").target, 10);
  Pass(absl::Seconds(60));
  EXPECT_EQ(Look("there/m").held, 6);
  EXPECT_EQ(Look("there/m").target, 6);
  EXPECT_EQ(Told(there, "m")->generation, before.generation) << "it was told nothing";
  EXPECT_EQ(trims_[there.connection], 0);
}

TEST_F(RetentionDevices, TwoExpertsOnTwoCardsBothStay) {
  Build(16 * kGiB, false, 0, 2);
  Worker driver = NewWorker("driver", {});
  Worker high = NewWorker("high", {Forward("m", 14, kGiB)}),
         low = NewWorker("low", {Forward("m", 14, kGiB)});
  low.device = "GPU-1";
  for (Worker* w : {&driver, &high, &low}) Attach(w);
  const std::vector<RunId> runs = Declare(driver, {Stage("high/m", 20), Stage("low/m", 20)}, 3);
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string request = absl::StrCat("run-", i);
    UseOnce(&high, request, "m", runs[i], 0);
    UseOnce(&low, request, "m", runs[i], 1);
    if (i + 1 < runs.size()) {
      EXPECT_EQ(Look("high/m").held, 14) << i;
      EXPECT_EQ(Look("low/m").held, 14) << i;
    }
    Step(FinishRunEvent{Header(driver, absl::StrCat("f", i)), runs[i]});
  }
  EXPECT_EQ(Decided(DecisionKind::kRevocation), 0);
}

TEST_F(RetentionDevices, ASmallVaeIsNotDroppedBeforeAModelThatIsCheapToReload) {
  // 160 MB whose every byte is waited for, and 13 GB that load behind their own compute.
  Build(14 * kGiB);
  Worker driver = NewWorker("driver", {});
  ComponentSpec cheap = Forward("dit", 52, 250'000'000, 0, 500'000'000);
  cheap.pass_seconds = 1.29;
  Worker vae = NewWorker("vae", {Forward("vae", 8, 20'000'000)}), dit = NewWorker("dit", {cheap}),
         text = NewWorker("text", {Forward("text", 8, kGiB)});
  for (Worker* w : {&driver, &vae, &dit, &text}) Attach(w);
  const std::vector<RunId> runs =
      Declare(driver, {Stage("text"), Stage("dit", 20), Stage("vae")}, 3);
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string request = absl::StrCat("run-", i);
    UseOnce(&text, request, "text", runs[i], 0);
    const int kept = i == 0 ? 0 : 8;
    EXPECT_EQ(Look("vae/vae").held, kept) << "while the text encoder takes its room";
    UseOnce(&dit, request, "dit", runs[i], 1);
    EXPECT_EQ(Look("vae/vae").held, kept) << "while the model takes its room";
    UseOnce(&vae, request, "vae", runs[i], 2);
    Step(FinishRunEvent{Header(driver, absl::StrCat("f", i)), runs[i]});
    Report(&vae);
    if (i + 1 < runs.size()) {
      EXPECT_EQ(Look("vae/vae").held, 8) << i;
    }
  }
  EXPECT_EQ(Look("vae/vae").regret, Bytes());
}

}  // namespace
}  // namespace vrambroker::core
