// What uses measured, and what the broker makes of it.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Learning : public MachineFixture {
 protected:
  // One use from asking to its end, which measured this. Returns what it was granted.
  BeginAnswer UseOnce(Worker* w, const std::string& component, int64_t activation,
                      const Measurements& measured,
                      const std::function<void(UseSpec*)>& change = nullptr) {
    const std::string request = absl::StrCat("use-", ++last_request_);
    const auto granted = Granted(Begin(*w, request, component, activation, change), w, component);
    EXPECT_TRUE(granted.has_value()) << component;
    End(w, request, component, measured);
    return granted.value_or(BeginAnswer());
  }
};

Measurements Peak(int64_t bytes) {
  Measurements m;
  m.passes = 1;
  m.peak_activation = Bytes(bytes);
  return m;
}

Measurements Passes(double pass_seconds, int passes = 20) {
  Measurements m;
  m.passes = passes;
  m.compute_seconds = pass_seconds * passes;
  m.seconds = m.compute_seconds * 1.01;
  return m;
}

// A use that copied 4 GB at `rate` bytes a second.
Measurements Copied(double rate) {
  Measurements m;
  m.passes = 1;
  m.bytes_loaded = Bytes(4'000'000'000);
  m.copy_seconds = 4e9 / rate;
  m.stall_seconds = m.copy_seconds;
  m.seconds = m.copy_seconds + 0.01;
  return m;
}

TEST_F(Learning, AnOverDeclaredNeedIsLearnedDownAndTheModelIsThenFullyResident) {
  // 3,988 MiB of layers on 6.2 GiB, 3 GiB declared for activation and 0.6 GiB taken.
  Build(6349 * kMiB);
  Worker w = NewWorker("w", {Forward("m", 100, 3988 * kMiB / 100, 0, 64 * kMiB)});
  Attach(&w);
  const int64_t declared = 3 * kGiB, taken = 600 * kMiB;
  for (int use = 0; use < 3; ++use) {
    const BeginAnswer granted = UseOnce(&w, "m", declared, Peak(taken));
    EXPECT_EQ(granted.activation, Bytes(declared)) << use;
    EXPECT_LT(granted.resident, 85) << use;
  }
  const BeginAnswer learned = UseOnce(&w, "m", declared, Peak(taken));
  EXPECT_EQ(learned.activation, Bytes(taken * 12 / 10));
  EXPECT_EQ(learned.resident, 100);
  EXPECT_EQ(Look("w/m").activation_peak, Bytes(taken));
  EXPECT_EQ(Look("w/m").measured_uses, 4);

  const CallId insists =
      Begin(w, "exact", "m", declared, [](UseSpec* use) { use->activation_is_exact = true; });
  Report(&w);
  const auto exact = Granted(insists, &w, "m");
  ASSERT_TRUE(exact.has_value());
  EXPECT_EQ(exact->activation, Bytes(declared));
  EXPECT_LT(exact->resident, 85);
}

TEST_F(Learning, ShapesAreLearnedApart) {
  Build(20 * kGiB);
  Worker w = NewWorker("w", {Forward("m", 4, kGiB)});
  Attach(&w);
  const auto shape = [](const std::string& name) {
    return [name](UseSpec* use) { use->shape = name; };
  };
  for (int use = 0; use < 3; ++use) {
    UseOnce(&w, "m", 10 * kGiB, Peak(kGiB), shape("512x512x1"));
    UseOnce(&w, "m", 10 * kGiB, Peak(5 * kGiB), shape("1024x1024x1"));
  }
  const auto charged = [&](const std::string& name) {
    return UseOnce(&w, "m", 10 * kGiB, {}, shape(name)).activation.as_double() / kGiB;
  };
  EXPECT_NEAR(charged("512x512x1"), 1.2, 1e-6);
  EXPECT_NEAR(charged("1024x1024x1"), 6, 1e-6);
  EXPECT_EQ(charged("2048x2048x1"), 10);
}

TEST_F(Learning, AUseThatWaitsIsChargedWhatTheOneBeforeItShowed) {
  Build(20 * kGiB);
  Worker w = NewWorker("w", {Forward("m", 4, kGiB)});
  Attach(&w);
  for (int use = 0; use < 2; ++use) UseOnce(&w, "m", 4 * kGiB, Peak(kGiB));
  Granted(Begin(w, "third", "m", 4 * kGiB), &w, "m");
  const CallId waits = Begin(w, "fourth", "m", 4 * kGiB);
  End(&w, "third", "m", Peak(kGiB));
  const auto granted = Granted(waits, &w, "m");
  ASSERT_TRUE(granted.has_value());
  EXPECT_NEAR(granted->activation.as_double() / kGiB, 1.2, 1e-6);
  EXPECT_EQ(ledger().in_use, Bytes(4 * kGiB) + granted->activation);
}

TEST_F(Learning, APeakAboveTheChargeIsChargedNextButRefusesNobody) {
  Build(10 * kGiB);
  Worker w = NewWorker("w", {Forward("m", 4, kGiB)});
  Attach(&w);
  const auto whole = [](UseSpec* use) { use->min_resident = 4; };
  UseOnce(&w, "m", kGiB, Peak(2 * kGiB));
  EXPECT_NEAR(UseOnce(&w, "m", kGiB, Peak(2 * kGiB)).activation.as_double() / kGiB, 2.4, 1e-6);
  UseOnce(&w, "m", kGiB, Peak(8 * kGiB));
  EXPECT_EQ(UseOnce(&w, "m", kGiB, {}, whole).activation, Bytes(6 * kGiB))
      << "9.6 GiB do not fit beside all of its layers: what fits is set aside";
}

TEST_F(Learning, AMeasuredLinkThatIsSlowerThanDeclaredChangesWhatIsKept) {
  // Both compute 0.1 s a GiB: at the declared 10 GB/s no copy of either is exposed.
  Build(10 * kGiB);
  Worker driver = NewWorker("driver", {});
  ComponentSpec spec = Forward("m", 8, kGiB);
  spec.pass_seconds = 8 * 0.11;
  spec.link_rate = 10e9;
  Worker slow = NewWorker("slow", {spec}), fast = NewWorker("fast", {spec});
  for (Worker* w : {&driver, &slow, &fast}) Attach(w);
  EXPECT_EQ(Look("slow/m").link_rate, 10e9);
  for (int use = 0; use < 3; ++use) UseOnce(&slow, "m", 0, Copied(2e9));
  EXPECT_NEAR(Look("slow/m").link_rate, 2e9, 1e3);
  EXPECT_EQ(Look("fast/m").link_rate, 10e9);
  EXPECT_NEAR(Look("slow/m").stall_per_byte, 0.5e-9, 1e-12);

  // Whose bytes are exposed is kept, whatever was used last.
  const std::vector<RunId> runs = Declare(driver, {Stage("slow/m"), Stage("fast/m")}, 3);
  const auto stage = [&](int index) {
    return [&, index](UseSpec* use) {
      use->run = runs[0];
      use->stage = index;
    };
  };
  const auto first = Granted(Begin(slow, "1", "m", 0, stage(0)), &slow, "m");
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(End(&slow, "1", "m").layers, 8);
  const CallId second = Begin(fast, "2", "m", 0, stage(1));
  Report(&slow);
  ASSERT_TRUE(Granted(second, &fast, "m").has_value());
  EXPECT_EQ(Look("slow/m").held, 8);
}

TEST_F(Learning, ComponentsOfOneDeviceAndHostTierShareWhatIsKnownOfTheLink) {
  Build(40 * kGiB, false, 0, 2);
  const auto of = [](const std::string& name, HostTier tier) {
    ComponentSpec spec = Forward(name, 4, kGiB);
    spec.host_tier = tier;
    return spec;
  };
  Worker a = NewWorker("a", {of("pinned", HostTier::kPinned), of("pageable", HostTier::kPageable),
                             of("silent", HostTier::kUnknown)});
  Worker b = NewWorker("b", {of("pinned", HostTier::kPinned)});
  Worker other = NewWorker("other", {of("pinned", HostTier::kPinned)});
  other.device = "GPU-1";
  for (Worker* w : {&a, &b, &other}) Attach(w);
  for (int use = 0; use < 3; ++use) UseOnce(&a, "pinned", 0, Copied(25e9));
  EXPECT_NEAR(Look("a/pinned").link_rate, 25e9, 1e3);
  EXPECT_NEAR(Look("b/pinned").link_rate, 25e9, 1e3);
  EXPECT_EQ(Look("a/pageable").link_rate, 10e9) << "another tier";
  EXPECT_EQ(Look("a/silent").link_rate, 10e9) << "of an unknown tier";
  EXPECT_EQ(Look("other/pinned").link_rate, 10e9) << "another device";
  for (int use = 0; use < 3; ++use) UseOnce(&b, "pinned", 0, Copied(20e9));
  EXPECT_NEAR(Look("b/pinned").link_rate, 20e9, 1e3) << "its own uses come first";
}

TEST_F(Learning, TimesAreBackToNormalWithinOneCycleOfASwitchAndBack) {
  Build(20 * kGiB);
  Worker a = NewWorker("a", {Forward("m", 4, kGiB)}), b = NewWorker("b", {Forward("m", 4, kGiB)});
  for (Worker* w : {&a, &b}) Attach(w);
  UseOnce(&a, "m", 0, Passes(2.0));  // cold
  for (int use = 0; use < 2; ++use) UseOnce(&a, "m", 0, Passes(0.2));
  EXPECT_DOUBLE_EQ(Look("a/m").pass_seconds, 0.2);
  for (int use = 0; use < 3; ++use) UseOnce(&b, "m", 0, Passes(0.5));
  UseOnce(&a, "m", 0, Passes(2.0));  // cold again
  EXPECT_DOUBLE_EQ(Look("a/m").pass_seconds, 0.2);
  EXPECT_DOUBLE_EQ(Look("b/m").pass_seconds, 0.5);
}

TEST_F(Learning, NothingIsLearnedFromWarmUpsNorFromUsesThatSayNothing) {
  Build(20 * kGiB);
  ComponentSpec spec = Forward("m", 4, kGiB);
  spec.pass_seconds = 0.3;
  Worker w = NewWorker("w", {spec});
  Attach(&w);
  for (int use = 0; use < 5; ++use) {
    Measurements m = Passes(9);
    m.peak_activation = Bytes(kMiB);
    m.bytes_loaded = Bytes(4 * kGiB);
    m.copy_seconds = 60;
    m.warm_up = true;
    UseOnce(&w, "m", kGiB, m);
    UseOnce(&w, "m", kGiB, Measurements());
  }
  const ComponentPicture c = Look("w/m");
  EXPECT_EQ(c.pass_seconds, 0.3);
  EXPECT_EQ(c.link_rate, 10e9);
  EXPECT_EQ(c.activation_peak, Bytes());
  EXPECT_EQ(c.measured_uses, 0);
  EXPECT_EQ(UseOnce(&w, "m", kGiB, {}).activation, Bytes(kGiB));
}

TEST_F(Learning, WhatWasLearnedStaysAcrossAReattachAndGoesWithTheLayers) {
  Build(20 * kGiB);
  Worker w = NewWorker("w", {Forward("m", 4, kGiB)});
  Attach(&w);
  for (int use = 0; use < 3; ++use) UseOnce(&w, "m", 4 * kGiB, Peak(kGiB));
  Close(&w);
  Attach(&w);
  EXPECT_EQ(Look("w/m").activation_peak, Bytes(kGiB));
  EXPECT_LT(UseOnce(&w, "m", 4 * kGiB, {}).activation, Bytes(2 * kGiB));
  w.held["m"] = 0;
  Step(ReportEvent{Header(w, ""), SnapshotOf(&w)});
  w.placed = false;
  Report(&w);
  w.components[0].layers = LayerTable({{8, Bytes(kGiB)}});
  UpdateComponentsEvent update;
  update.header = Header(w, "update");
  update.upsert = w.components;
  Step(update);
  ASSERT_TRUE(Refused(update.header.call).ok()) << Refused(update.header.call);
  EXPECT_EQ(Look("w/m").activation_peak, Bytes()) << "another model";
}

TEST_F(Learning, AResumedUseOfUnknownShapeTeachesNothingOfItsActivation) {
  Build(20 * kGiB);
  Worker w = NewWorker("w", {Forward("m", 4, kGiB)});
  w.held["m"] = 4;
  w.completed["m"] = 7;
  w.running.push_back({"before", "m", 4, Bytes(), Bytes(kGiB), Generation(7), {}});
  Attach(&w);
  w.running.clear();
  EXPECT_EQ(ledger().in_use, Bytes(5 * kGiB));
  Measurements m = Passes(0.2);
  m.peak_activation = Bytes(kGiB);
  End(&w, "before", "m", m);
  EXPECT_EQ(Look("w/m").activation_peak, Bytes());
  EXPECT_DOUBLE_EQ(Look("w/m").pass_seconds, 0.2);
}

TEST_F(Learning, WhatIsReleasedAndSoonLoadedAgainIsCountedAsRegret) {
  Build(10 * kGiB);
  Worker a = NewWorker("a", {Forward("m", 6, kGiB)}), b = NewWorker("b", {Forward("m", 6, kGiB)});
  for (Worker* w : {&a, &b}) Attach(w);
  UseOnce(&a, "m", 0, {});
  const auto all = [](UseSpec* use) { use->min_resident = 6; };
  const CallId wants = Begin(b, "b1", "m", 0, all);
  Report(&a);
  EXPECT_EQ(Look("a/m").held, 4);
  ASSERT_TRUE(Granted(wants, &b, "m").has_value());
  Pass(absl::Seconds(3));
  End(&b, "b1", "m");
  const CallId again = Begin(a, "a2", "m", 0, all);
  Report(&b);
  ASSERT_TRUE(Granted(again, &a, "m").has_value());
  EXPECT_EQ(Look("a/m").regret, Bytes(2 * kGiB));
  EXPECT_EQ(Look("b/m").regret, Bytes());
  End(&a, "a2", "m");
  Pass(config_.minimum_residency);
  const CallId late = Begin(b, "b2", "m", 0, all);
  Report(&a);
  ASSERT_TRUE(Granted(late, &b, "m").has_value());
  EXPECT_EQ(Look("b/m").regret, Bytes()) << "its layers went longer ago";
}

}  // namespace
}  // namespace vrambroker::core
