// What an earlier broker's record says, charged until its owners attach again or are gone.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

class Recovery : public MachineFixture {
 protected:
  // Another machine on the same cards, which knows only what is on record. Nobody is attached.
  void Restart(std::vector<Owner> owners, bool probe = false) {
    DeviceSpec device;
    device.uuid = "GPU-0";
    device.capacity = Bytes(10 * kGiB);
    device.link_rate = 10e9;
    device.has_probe = probe;
    machine_.emplace(config_, std::vector<DeviceSpec>{device}, std::move(owners));
    Pass(absl::ZeroDuration());
  }
  static Owner OwnerOf(const Worker& w, int64_t charge, bool provable = true) {
    return {w.name, {w.pid, 1}, w.attach_number, "GPU-0", Bytes(charge), provable};
  }
  bool Recovering() { return machine_->GetPicture(now_).recovery_left > absl::ZeroDuration(); }
};

TEST_F(Recovery, AChargeIsRecordedBeforeTheAnswerThatRaisesIt) {
  Build(10 * kGiB);
  Worker w = NewModel("w", 4);
  Attach(&w);
  const CallId call = Begin(w, "1", "m", kGiB);
  EXPECT_EQ(on_record_["w"], Bytes(5 * kGiB));
  EXPECT_TRUE(std::holds_alternative<RecordCharge>(last_effects_.front()));
  Granted(call, &w, "m");
  End(&w, "1", "m");
  EXPECT_EQ(on_record_["w"], Bytes(4 * kGiB));
}

TEST_F(Recovery, NothingGrowsUntilAllOnRecordHaveAttachedAgain) {
  Worker holder = NewModel("holder", 4), other = NewModel("other", 4);
  Restart({OwnerOf(holder, 5 * kGiB)});
  EXPECT_EQ(ledger().draining, Bytes(5 * kGiB));
  Attach(&other);
  const CallId call = Begin(other, "1", "m");
  EXPECT_FALSE(Granted(call, &other, "m").has_value());
  EXPECT_THAT(machine_->GetPicture(now_).waiting[0].blocked_by,
              testing::HasSubstr("1 workers on record (holder, 5.00 GiB)"));
  holder.held["m"] = 4;
  Attach(&holder);
  EXPECT_FALSE(Recovering());
  EXPECT_TRUE(Granted(call, &other, "m").has_value());
  EXPECT_EQ(ledger().draining, Bytes());
  EXPECT_EQ(ledger().retained, Bytes(4 * kGiB));
}

TEST_F(Recovery, WhatFitsBesideTheMissingBeginsAfterTheWindow) {
  Worker holder = NewModel("holder", 4), other = NewModel("other", 8);
  Restart({OwnerOf(holder, 5 * kGiB)});
  Attach(&other);
  const CallId call = Begin(other, "1", "m");
  EXPECT_FALSE(Granted(call, &other, "m").has_value());
  Pass(config_.recovery_window);
  const std::optional<BeginAnswer> granted = Granted(call, &other, "m");
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->resident, 5) << "the rest is charged to who is missing";
  EXPECT_EQ(ledger().draining, Bytes(5 * kGiB));
}

TEST_F(Recovery, TheDeadOnRecordAreDroppedOnceTheyAreSettled) {
  Worker holder = NewModel("holder", 4), other = NewModel("other", 8);
  Restart({OwnerOf(holder, 5 * kGiB)});
  Attach(&other);
  const CallId call = Begin(other, "1", "m", 0, AtLeast(8));
  Die(holder);
  EXPECT_FALSE(Recovering()) << "nobody is missing";
  EXPECT_FALSE(Granted(call, &other, "m").has_value());
  Pass(config_.settling_time);
  EXPECT_EQ(on_record_["holder"], Bytes());
  EXPECT_EQ(on_record_["other"], Bytes(8 * kGiB));
  EXPECT_TRUE(Granted(call, &other, "m").has_value());
}

TEST_F(Recovery, WhoseDeathNobodyCanTellIsTakenForGoneAfterTheWindow) {
  Worker holder = NewModel("holder", 4);
  Restart({OwnerOf(holder, 5 * kGiB, /*provable=*/false)});
  Pass(config_.recovery_window - absl::Milliseconds(1));
  EXPECT_EQ(ledger().draining, Bytes(5 * kGiB));
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(ledger().draining, Bytes(5 * kGiB));
  Pass(config_.settling_time);
  EXPECT_EQ(ledger().draining, Bytes());
}

TEST_F(Recovery, ARunningUseGoesOnAndIsChargedAsItSays) {
  Worker holder = NewModel("holder", 4);
  Restart({OwnerOf(holder, 6 * kGiB)});
  holder.held["m"] = 4;
  holder.running.push_back({"1", "m", 4, Bytes(), Bytes(kGiB), Generation(3)});
  Attach(&holder);
  EXPECT_EQ(holder.welcome->resumed_uses.size(), 1u);
  EXPECT_EQ(ledger().in_use, Bytes(5 * kGiB));
  EXPECT_EQ(ledger().draining, Bytes());
}

// Two workers whose uses run on from an earlier broker, known to others by ids of that one.
class RecoveryOfHeldUses : public Recovery {
 protected:
  void SetUp() override {
    for (Worker* w : {&a_, &b_}) *w = NewWorker(w == &a_ ? "a" : "b", Both());
    Restart({OwnerOf(a_, 4 * kGiB), OwnerOf(b_, 4 * kGiB)});
  }
  static std::vector<ComponentSpec> Both() {
    return {Forward("m", 4, kGiB), Forward("n", 4, kGiB)};
  }
  void AttachWith(Worker* w, std::vector<UseId> former_ids) {
    w->held["m"] = 4;
    w->running = {{"1", "m", 4, Bytes(), Bytes(), Generation(3), std::move(former_ids)}};
    Attach(w);
  }
  // Of all layers, while the use of that id runs.
  CallId AskHolding(const Worker& w, uint64_t held) {
    return Begin(w, "2", "n", 0, [held](UseSpec* use) {
      use->min_resident = 4;
      use->held_uses = {UseId(held)};
    });
  }

  Worker a_, b_;
};

TEST_F(RecoveryOfHeldUses, TheyKeepTheIdsByWhichOthersKnowThem) {
  AttachWith(&a_, {UseId(40), UseId(57)});
  AttachWith(&b_, {UseId(58)});
  EXPECT_EQ(a_.welcome->resumed_uses[0].second, UseId(57));
  EXPECT_EQ(b_.welcome->resumed_uses[0].second, UseId(58));
  End(&b_, "1", "m");
  const auto next = Granted(Begin(b_, "3", "m"), &b_, "m");
  ASSERT_TRUE(next.has_value());
  EXPECT_GT(next->use, UseId(58));
}

TEST_F(RecoveryOfHeldUses, ACircleIsSeenByTheWaitThatClosesIt) {
  AttachWith(&a_, {UseId(40), UseId(57)});
  AttachWith(&b_, {UseId(58)});
  const CallId first = AskHolding(a_, 40), second = AskHolding(b_, 58);
  EXPECT_FALSE(Answered(first));
  EXPECT_TRUE(absl::IsAborted(Refused(second))) << Refused(second);
  EXPECT_THAT(std::string(Refused(second).message()), testing::HasSubstr("deadlock"));
}

TEST_F(RecoveryOfHeldUses, ACircleThatAnAttachClosesIsSeenThen) {
  AttachWith(&a_, {UseId(57)});
  const CallId first = AskHolding(a_, 57);
  // Its wait is for a use of another, which has not attached again yet, beside its own.
  const CallId second = Begin(a_, "3", "n", 0, [](UseSpec* use) {
    use->min_resident = 4;
    use->held_uses = {UseId(58)};
  });
  EXPECT_FALSE(Answered(first) || Answered(second));
  AttachWith(&b_, {UseId(58)});
  EXPECT_FALSE(Answered(first));
  EXPECT_TRUE(absl::IsAborted(Refused(second))) << Refused(second);
}

TEST_F(RecoveryOfHeldUses, AnIdThatIsTakenIsGivenToNobodyElse) {
  AttachWith(&a_, {UseId(57)});
  AttachWith(&b_, {UseId(57)});  // it cannot be so
  EXPECT_EQ(a_.welcome->resumed_uses[0].second, UseId(57));
  EXPECT_EQ(b_.welcome->resumed_uses[0].second, UseId(58));
}

TEST_F(Recovery, AnAttachOlderThanTheOneOnRecordIsRefused) {
  Worker holder = NewModel("holder", 4);
  holder.attach_number = 7;
  Restart({OwnerOf(holder, 5 * kGiB)});
  holder.attach_number = 6;  // the next is 7
  Step(AttachOf(&holder));
  EXPECT_EQ(ledger().draining, Bytes(5 * kGiB));
  Attach(&holder);
  EXPECT_EQ(ledger().draining, Bytes());
}

TEST_F(Recovery, ABrokerThatBeginsKnowsNothingOfOthersUntilTheFirstReading) {
  Worker w = NewModel("w", 8);
  Restart({}, /*probe=*/true);
  EXPECT_TRUE(Recovering());
  Attach(&w);
  const CallId call = Begin(w, "1", "m");
  EXPECT_FALSE(Granted(call, &w, "m").has_value());
  EXPECT_THAT(machine_->GetPicture(now_).waiting[0].blocked_by,
              testing::HasSubstr("the driver's first reading is not there"));
  Read({{4711, Bytes(5 * kGiB)}});
  const std::optional<BeginAnswer> granted = Granted(call, &w, "m");
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->resident, 5);
}

TEST_F(Recovery, ADriverThatCannotBeReadIsNotWaitedForPastTheWindow) {
  Worker w = NewModel("w", 8);
  Restart({}, /*probe=*/true);
  Attach(&w);
  const CallId call = Begin(w, "1", "m");
  EXPECT_FALSE(Granted(call, &w, "m").has_value());
  Pass(config_.recovery_window);
  EXPECT_TRUE(Granted(call, &w, "m").has_value());
}

TEST_F(Recovery, WhatComesLateOfASessionWithAnEarlierBrokerIsOfNoSessionHere) {
  Build(10 * kGiB);
  Worker w = NewModel("w", 4);
  Attach(&w);
  const Worker late = w;
  config_.epoch = Epoch(1000);
  Restart({});
  Attach(&w);
  EXPECT_GT(w.session, late.session);
  EXPECT_TRUE(absl::IsAborted(Refused(Begin(late, "1", "m"))));
  EXPECT_EQ(ledger().in_use, Bytes());
}

TEST_F(Recovery, RecordsOfOtherDevicesAndOfNothingAreNoRecovery) {
  Worker holder = NewModel("holder", 4);
  Owner elsewhere = OwnerOf(holder, kGiB);
  elsewhere.device = "GPU-7";
  Restart({elsewhere, OwnerOf(holder, 0)});
  EXPECT_FALSE(Recovering());
  EXPECT_TRUE(machine_->GetPicture(now_).sessions.empty());
}

}  // namespace
}  // namespace vrambroker::core
