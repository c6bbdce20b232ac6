// Host memory: who may pin how much, against which budget.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class HostMemoryTest : public MachineFixture {
 protected:
  // Nothing of it on the device matters: each component has one small layer.
  static ComponentSpec Wishing(const std::string& name, int64_t pin_host) {
    ComponentSpec spec = Forward(name, 1, kMiB);
    spec.pin_host = Bytes(pin_host);
    return spec;
  }
  void BuildWith(int64_t machine, double fraction = 0.5, int64_t budget = 0) {
    config_.host_memory = Bytes(machine);
    config_.host_pin_fraction = fraction;
    config_.host_pin_budget = Bytes(budget);
    Build(kGiB);
  }
  Worker NewPinner(const std::string& name, const std::vector<int64_t>& wishes,
                   const std::string& domain = "", int64_t limit = 0) {
    std::vector<ComponentSpec> specs;
    specs.reserve(wishes.size());
    for (int64_t wish : wishes) specs.push_back(Wishing(absl::StrCat("c", specs.size()), wish));
    Worker w = NewWorker(name, std::move(specs));
    w.host = {Bytes(limit), domain};
    return w;
  }
  // It has pinned so much, and says so.
  void Pin(Worker* w, int64_t bytes) {
    w->pinned_host = bytes;
    Report(w);
  }
  int64_t Allowed(const Worker& w) const { return LookAt(w.name).pin_allowance.count(); }
  HostPool Pool(const std::string& domain = "") const {
    return machine_->GetPicture(now_).host_memory.at(domain);
  }
  // What the newest directive that says an allowance says to it; -1: none has.
  int64_t Said(const Worker& w) const {
    const auto it = pin_allowances_.find(w.connection);
    return it == pin_allowances_.end() ? -1 : it->second.count();
  }
  Effects Update(Worker* w) {
    UpdateComponentsEvent e;
    e.header = Header(*w, absl::StrCat("u", ++last_request_));
    e.upsert = w->components;
    e.snapshot = SnapshotOf(w);
    updated_ = e.header.call;
    return Step(e);
  }
  CallId updated_;
};

TEST_F(HostMemoryTest, AllowancesGoInTheOrderOfAttachingAsFarAsTheBudgetReaches) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {2 * kGiB});
  Worker b = NewPinner("b", {2 * kGiB});
  Worker c = NewPinner("c", {2 * kGiB});
  AttachAll({&a, &b, &c});
  EXPECT_EQ(Said(a), 2 * kGiB);
  EXPECT_EQ(Said(b), 2 * kGiB);
  EXPECT_EQ(Said(c), 0);  // it wishes some, and is told that it may not
  EXPECT_EQ(Pool().budget, Bytes(5 * kGiB));
  EXPECT_EQ(Pool().allowed, Bytes(4 * kGiB));
  EXPECT_EQ(Pool().wished, Bytes(6 * kGiB));
  EXPECT_EQ(Pool().pinned, Bytes());
}

TEST_F(HostMemoryTest, AComponentThatDoesNotFitWholeIsPassedOver) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {4 * kGiB, 2 * kGiB, kGiB});
  Attach(&a);
  EXPECT_EQ(Said(a), 5 * kGiB);
  EXPECT_EQ(Allowed(a), 5 * kGiB);
}

TEST_F(HostMemoryTest, WhoWishesNothingIsToldNothing) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {0});
  Attach(&a);
  EXPECT_EQ(Said(a), -1);
}

TEST_F(HostMemoryTest, DeathFreesWhatWasAllowedAndWhoWaitsIsToldAtOnce) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB});
  Worker b = NewPinner("b", {3 * kGiB});
  AttachAll({&a, &b});
  Pin(&a, 3 * kGiB);
  EXPECT_EQ(Said(b), 0);
  Close(&a);  // no proof: it may have it pinned still
  EXPECT_EQ(Said(b), 0);
  EXPECT_EQ(Pool().charged, Bytes(3 * kGiB));
  Die(a);
  EXPECT_EQ(Said(b), 3 * kGiB);
  EXPECT_EQ(Pool().charged, Bytes(3 * kGiB));
  EXPECT_EQ(LookAt("a").pinned_host, Bytes());
}

TEST_F(HostMemoryTest, WhatIsAllowedStaysAllowedAcrossAReattach) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB});
  Worker b = NewPinner("b", {3 * kGiB});
  AttachAll({&a, &b});
  Close(&a);
  Attach(&a);
  EXPECT_EQ(Said(a), 3 * kGiB);
  EXPECT_EQ(Said(b), 0);
}

TEST_F(HostMemoryTest, AWishThatIsGivenUpGoesToOthersOnceItIsNoLongerPinned) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB});
  Worker b = NewPinner("b", {3 * kGiB});
  AttachAll({&a, &b});
  Pin(&a, 3 * kGiB);
  a.components[0].pin_host = Bytes();
  Update(&a);
  EXPECT_EQ(Said(a), 0);
  EXPECT_EQ(Said(b), 0);  // it is pinned still
  Pin(&a, 0);
  EXPECT_EQ(Said(b), 3 * kGiB);
}

TEST_F(HostMemoryTest, AWishThatGrowsIsAskedAnew) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB});
  Attach(&a);
  a.components[0].pin_host = Bytes(6 * kGiB);
  Update(&a);
  EXPECT_EQ(Said(a), 0);
  a.components[0].pin_host = Bytes(5 * kGiB);
  Update(&a);
  EXPECT_EQ(Said(a), 5 * kGiB);
}

TEST_F(HostMemoryTest, ADomainHasABudgetOfItsOwnBesideTheMachines) {
  BuildWith(100 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB}, "cgroup:1", 8 * kGiB);
  Worker b = NewPinner("b", {3 * kGiB}, "cgroup:1", 8 * kGiB);
  Worker c = NewPinner("c", {3 * kGiB}, "cgroup:2", 8 * kGiB);
  AttachAll({&a, &b, &c});
  EXPECT_EQ(Said(a), 3 * kGiB);
  EXPECT_EQ(Said(b), 0);
  EXPECT_EQ(Said(c), 3 * kGiB);
  EXPECT_EQ(Pool("cgroup:1").budget, Bytes(4 * kGiB));
  EXPECT_EQ(Pool("cgroup:1").allowed, Bytes(3 * kGiB));
  EXPECT_EQ(Pool().allowed, Bytes(6 * kGiB));
  EXPECT_EQ(Pool().budget, Bytes(50 * kGiB));
}

TEST_F(HostMemoryTest, TheMachinesBudgetBoundsAllDomainsTogether) {
  BuildWith(100 * kGiB, 0.5, 5 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB}, "cgroup:1", 80 * kGiB);
  Worker b = NewPinner("b", {3 * kGiB}, "cgroup:2", 80 * kGiB);
  AttachAll({&a, &b});
  EXPECT_EQ(Said(a), 3 * kGiB);
  EXPECT_EQ(Said(b), 0);
  EXPECT_EQ(Pool().budget, Bytes(5 * kGiB));
}

TEST_F(HostMemoryTest, TheLeastLimitThatIsSaidOfADomainCounts) {
  BuildWith(100 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB}, "cgroup:1", 8 * kGiB);
  Worker b = NewPinner("b", {kGiB}, "cgroup:1", 4 * kGiB);
  AttachAll({&a, &b});
  EXPECT_EQ(Pool("cgroup:1").budget, Bytes(2 * kGiB));
  EXPECT_EQ(Allowed(a), 3 * kGiB);  // nothing is taken back
  EXPECT_EQ(Said(b), 0);
}

TEST_F(HostMemoryTest, WithoutAnyKnownLimitNothingIsRefused) {
  BuildWith(0);
  Worker a = NewPinner("a", {300 * kGiB});
  Attach(&a);
  EXPECT_EQ(Said(a), 300 * kGiB);
  EXPECT_EQ(Pool().budget, std::nullopt);
}

TEST_F(HostMemoryTest, WhereTheBrokerDoesNotKnowTheMachineItsWorkersSayIt) {
  BuildWith(0);
  Worker a = NewPinner("a", {3 * kGiB}, "", 8 * kGiB);
  Worker b = NewPinner("b", {3 * kGiB}, "", 8 * kGiB);
  AttachAll({&a, &b});
  EXPECT_EQ(Said(a), 3 * kGiB);
  EXPECT_EQ(Said(b), 0);
}

TEST_F(HostMemoryTest, AFractionOfZeroLetsNobodyPin) {
  BuildWith(100 * kGiB, 0, 50 * kGiB);
  Worker a = NewPinner("a", {1});
  Attach(&a);
  EXPECT_EQ(Said(a), 0);
  EXPECT_EQ(Pool().budget, Bytes());
}

TEST_F(HostMemoryTest, WhatIsPinnedWithoutBeingAllowedIsCharged) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {7 * kGiB});
  Worker b = NewPinner("b", {kGiB});
  a.pinned_host = 7 * kGiB;
  AttachAll({&a, &b});
  EXPECT_EQ(Pool().charged, Bytes(7 * kGiB));
  EXPECT_EQ(Said(a), 0);  // over budget: not even what it has
  EXPECT_EQ(Said(b), 0);
  EXPECT_EQ(LookAt("a").pinned_host, Bytes(7 * kGiB));
  Die(a);
  EXPECT_EQ(Said(b), kGiB);
}

TEST_F(HostMemoryTest, InTheWindowAfterAStartNobodyIsAllowedMore) {
  config_.host_memory = Bytes(10 * kGiB);
  config_.recovery_window = absl::Seconds(10);
  DeviceSpec device;
  device.uuid = "GPU-0";
  device.capacity = Bytes(kGiB);
  machine_.emplace(config_, std::vector<DeviceSpec>{device});
  Worker a = NewPinner("a", {3 * kGiB});
  Worker b = NewPinner("b", {3 * kGiB});
  Attach(&b);
  EXPECT_EQ(Said(b), 0);
  // It holds nothing on the device, so that it is on no record: only now is known what it has.
  a.pinned_host = 3 * kGiB;
  Pass(absl::Seconds(9));
  Attach(&a);
  EXPECT_EQ(Said(a), 0);
  EXPECT_EQ(Pool().charged, Bytes(3 * kGiB));
  EXPECT_EQ(last_wake_, absl::FromUnixSeconds(1010));
  Pass(absl::Seconds(1));
  EXPECT_EQ(Said(b), 0);
  EXPECT_EQ(Said(a), 3 * kGiB);  // what it has, and no more is there
  Die(a);
  EXPECT_EQ(Said(b), 3 * kGiB);
}

TEST_F(HostMemoryTest, ARecoveryThatGoesOnIsWaitedFor) {
  config_.host_memory = Bytes(10 * kGiB);
  config_.recovery_window = absl::Seconds(10);
  DeviceSpec device;
  device.uuid = "GPU-0";
  device.capacity = Bytes(kGiB);
  Worker a = NewPinner("a", {3 * kGiB});
  Owner owner{"b", {77, 1}, 1, "GPU-0", Bytes(kMiB), true};
  machine_.emplace(config_, std::vector<DeviceSpec>{device}, std::vector<Owner>{owner});
  Attach(&a);
  Pass(absl::Seconds(9));
  EXPECT_EQ(Said(a), 0);
  Pass(absl::Seconds(1));
  EXPECT_EQ(Said(a), 3 * kGiB);
}

TEST_F(HostMemoryTest, PinnedMemoryNeverBearsOnTheDevice) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {40 * kGiB});
  a.pinned_host = 40 * kGiB;
  Attach(&a);
  EXPECT_EQ(ledger().Charged(), Bytes());
  const auto granted = Granted(Begin(a, "1", "c0"), &a, "c0");
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->resident, 1);
}

TEST_F(HostMemoryTest, WhatTellsOfTheHostOnlyIsTakenDuringAUse) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB});
  a.components[0].host_tier = HostTier::kPageable;
  Attach(&a);
  ASSERT_TRUE(Granted(Begin(a, "1", "c0"), &a, "c0").has_value());
  const ComponentPicture before = Look("a/c0");
  a.components[0].host_tier = HostTier::kPinned;
  Update(&a);
  EXPECT_TRUE(Refused(updated_).ok()) << Refused(updated_);
  const auto* answer = std::get_if<UpdateAnswer>(&answers_.at(updated_).result);
  ASSERT_NE(answer, nullptr);
  EXPECT_TRUE(answer->targets.empty());
  EXPECT_EQ(Look("a/c0").generation, before.generation);
  EXPECT_EQ(Look("a/c0").use, before.use);
  EXPECT_EQ(Look("a/c0").charge, before.charge);
  // So does an attach that comes with the new tier while it holds layers.
  End(&a, "1", "c0");
  EXPECT_EQ(Look("a/c0").held, 1);
  Close(&a);
  a.components[0].host_tier = HostTier::kPageable;
  Attach(&a);
  EXPECT_TRUE(a.closed.ok()) << a.closed;
  EXPECT_EQ(Look("a/c0").held, 1);
}

TEST_F(HostMemoryTest, ATierOfItsOwnIsLearnedAnew) {
  BuildWith(10 * kGiB);
  Worker a = NewPinner("a", {3 * kGiB});
  a.components[0] = Forward("c0", 4, 8 * kMiB);
  a.components[0].pin_host = Bytes(3 * kGiB);
  a.components[0].host_tier = HostTier::kPageable;
  Attach(&a);
  Measurements slow;
  slow.bytes_loaded = Bytes(32 * kMiB);
  slow.copy_seconds = 32.0 * kMiB / 1e9;
  slow.compute_seconds = 1;
  slow.passes = 1;
  for (int i = 0; i < 3; ++i) {
    const std::string request = absl::StrCat("r", i);
    ASSERT_TRUE(Granted(Begin(a, request, "c0"), &a, "c0").has_value());
    End(&a, request, "c0", slow);
  }
  EXPECT_NEAR(Look("a/c0").link_rate, 1e9, 1e6);
  EXPECT_EQ(Look("a/c0").measured_uses, 3);
  a.components[0].host_tier = HostTier::kPinned;
  Update(&a);
  EXPECT_NEAR(Look("a/c0").link_rate, 10e9, 1e6);  // the device's again
  EXPECT_EQ(Look("a/c0").measured_uses, 3);
  EXPECT_GT(Look("a/c0").pass_seconds, 0);
}

}  // namespace
}  // namespace vrambroker::core
