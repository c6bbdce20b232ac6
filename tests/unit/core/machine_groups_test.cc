// Stages that are sharded over cards: all members begin together with the same layers, or none.
#include "tests/unit/core/machine_fixture.h"

namespace vrambroker::core {
namespace {

using testing::HasSubstr;

class Groups : public MachineFixture {
 protected:
  // Ranks of 8 layers of 1 GiB, one on each card of 10 GiB.
  void BuildRanks(int cards) {
    Build(10 * kGiB, false, 0, cards);
    for (int i = 0; i < cards; ++i) {
      ranks_.push_back(NewModel(absl::StrCat("r", i), 8));
      ranks_.back().device = absl::StrCat("GPU-", i);
    }
    for (Worker& rank : ranks_) Attach(&rank);
  }
  static std::function<void(UseSpec*)> In(const std::string& group, int size, int fewest = 0) {
    return [=](UseSpec* use) {
      use->group = group;
      use->group_size = size;
      use->min_resident = fewest;
      use->passes = 10;
    };
  }
  Worker Rival(const std::string& name, int card) {
    Worker w = NewModel(name, 8);
    w.device = absl::StrCat("GPU-", card);
    return w;
  }
  CallId Ask(int rank, const std::string& request, const std::function<void(UseSpec*)>& change) {
    return Begin(ranks_[static_cast<size_t>(rank)], request, "m", 0, change);
  }
  std::string BlockedBy(const std::string& component) const {
    for (const WaitingPicture& w : machine_->GetPicture(now_).waiting) {
      if (w.component == component) return w.blocked_by;
    }
    return "does not wait";
  }

  std::vector<Worker> ranks_;
};

TEST_F(Groups, OfFourRanksThreeThatCouldBeAdmittedWaitForTheFourth) {
  BuildRanks(4);
  Worker rival = Rival("rival", 3);
  Attach(&rival);
  ASSERT_TRUE(Granted(Begin(rival, "1", "m", 0, AtLeast(8)), &rival, "m").has_value());
  std::vector<CallId> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(Ask(i, "1", In("g", 4, 4)));
  EXPECT_EQ(BlockedBy("r0/m"), "members of its shard group that have not asked: 3 of 4 have");
  calls.push_back(Ask(3, "1", In("g", 4, 4)));
  for (CallId call : calls) EXPECT_FALSE(Answered(call));
  EXPECT_THAT(BlockedBy("r0/m"), HasSubstr("r3/m of its shard group, which waits for: uses that"));
  End(&rival, "1", "m");
  Report(&rival);
  for (int i = 0; i < 4; ++i) {
    const auto grant = Granted(calls[static_cast<size_t>(i)], &ranks_[static_cast<size_t>(i)], "m");
    ASSERT_TRUE(grant.has_value()) << i;
    EXPECT_EQ(grant->resident, 8) << i;
  }
}

TEST_F(Groups, AllHaveAsManyLayersAsTheOneWithTheLeastRoom) {
  BuildRanks(3);
  Worker rival = Rival("rival", 1);
  Attach(&rival);
  const auto five = [](UseSpec* use) { use->max_resident = use->min_resident = 5; };
  ASSERT_TRUE(Granted(Begin(rival, "1", "m", 0, five), &rival, "m").has_value());
  std::vector<CallId> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(Ask(i, "1", In("g", 3)));
  Pass(absl::Seconds(2));  // past grow_wait, if it waits for the rival's
  for (int i = 0; i < 3; ++i) {
    const auto grant = Granted(calls[static_cast<size_t>(i)], &ranks_[static_cast<size_t>(i)], "m");
    ASSERT_TRUE(grant.has_value()) << i << BlockedBy("r0/m");
    EXPECT_EQ(grant->resident, 5) << i;
  }
}

TEST_F(Groups, AMemberThatWaitsNoMoreFailsTheOthersAndTheyMayAskAgain) {
  BuildRanks(3);
  const CallId first = Ask(0, "1", In("g", 3)), second = Ask(1, "1", In("g", 3));
  Step(CallCancelledEvent{first});
  EXPECT_TRUE(absl::IsCancelled(Refused(first)));
  EXPECT_TRUE(absl::IsAborted(Refused(second))) << Refused(second);
  EXPECT_THAT(std::string(Refused(second).message()),
              HasSubstr("shard group \"g\" has failed, as r0/m waits no more"));
  const CallId lost = Ask(0, "2", In("g", 3)), other = Ask(1, "2", In("g", 3));
  Close(&ranks_[0]);
  EXPECT_TRUE(absl::IsAborted(Refused(lost)));
  EXPECT_TRUE(absl::IsAborted(Refused(other)));
  Attach(&ranks_[0]);
  std::vector<CallId> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(Ask(i, "3", In("g", 3)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Granted(calls[static_cast<size_t>(i)], &ranks_[static_cast<size_t>(i)], "m"));
  }
}

TEST_F(Groups, WhatOneCannotKeepTheOthersDoNot) {
  BuildRanks(3);
  Worker rival = Rival("rival", 2);
  Attach(&rival);
  for (int i = 0; i < 3; ++i) Ask(i, "1", In("g", 3));
  for (int i = 0; i < 3; ++i) {
    Worker& rank = ranks_[static_cast<size_t>(i)];
    rank.held["m"] = 8;
    rank.completed["m"] = Look(absl::StrCat(rank.name, "/m")).generation.value();
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(End(&ranks_[static_cast<size_t>(i)], "1", "m").layers, 8) << i;
  }
  const CallId call =
      Begin(rival, "1", "m", 0, [](UseSpec* use) { use->min_resident = use->max_resident = 6; });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Look(absl::StrCat("r", i, "/m")).target, 4) << i;
  for (Worker& rank : ranks_) Report(&rank);
  EXPECT_TRUE(Granted(call, &rival, "m").has_value());
  // Used alone, it is nobody's peer any more.
  End(&rival, "1", "m");
  UseOnce(&ranks_[0], "2", "m");
  EXPECT_EQ(Look("r0/m").target, 8);
  EXPECT_EQ(Look("r1/m").target, 4);
}

TEST_F(Groups, AMemberThatEndsLaterKeepsNoMoreThanThoseBefore) {
  BuildRanks(2);
  for (int i = 0; i < 2; ++i) Ask(i, "1", In("g", 2));
  for (Worker& rank : ranks_) {
    rank.held["m"] = 8;
    rank.completed["m"] = Look(absl::StrCat(rank.name, "/m")).generation.value();
  }
  ranks_[0].held["m"] = 3;  // it ran out of memory and dropped some
  EXPECT_EQ(End(&ranks_[0], "1", "m").layers, 3);
  EXPECT_EQ(Look("r1/m").granted, 8) << "a running use is never disturbed";
  EXPECT_EQ(End(&ranks_[1], "1", "m").layers, 3);
}

TEST_F(Groups, MembersThatDoNotAgreeAreToldApart) {
  BuildRanks(3);
  Ask(0, "1", In("g", 3));
  const absl::Status size = Refused(Ask(1, "1", In("g", 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(size)) << size;
  EXPECT_THAT(std::string(size.message()), HasSubstr("size 2, and by r0/m with 3"));
  const absl::Status fewest = Refused(Ask(1, "2", In("g", 3, 2)));
  EXPECT_THAT(std::string(fewest.message()), HasSubstr("fewest layers 2, and by r0/m with 0"));
  Worker other = NewModel("other", 7);
  other.device = "GPU-2";
  Worker same = Rival("same", 0);
  AttachAll({&other, &same});
  const absl::Status layers = Refused(Begin(other, "1", "m", 0, In("g", 3)));
  EXPECT_THAT(std::string(layers.message()), HasSubstr("layers 7, and by r0/m with 8"));
  const absl::Status device = Refused(Begin(same, "1", "m", 0, In("g", 3)));
  EXPECT_THAT(std::string(device.message()), HasSubstr("on GPU-0 already"));
  EXPECT_EQ(BlockedBy("r0/m"), "members of its shard group that have not asked: 1 of 3 have");
}

TEST_F(Groups, OneThatCanNeverFitFailsAllOfThemAtOnce) {
  BuildRanks(2);
  Worker tall = Rival("tall", 1);
  tall.components = {Permanent(Forward("m", 8, kGiB))};
  Attach(&tall);
  const CallId first = Ask(0, "1", In("g", 2, 4)), second = Ask(1, "1", In("g", 2, 4));
  EXPECT_TRUE(absl::IsResourceExhausted(Refused(second))) << Refused(second);
  EXPECT_TRUE(absl::IsAborted(Refused(first))) << Refused(first);
  EXPECT_EQ(Decided(DecisionKind::kRevocation), 0);
}

TEST_F(Groups, TwoGroupsThatWantTheSameCardsGoOneAfterTheOther) {
  BuildRanks(2);
  std::vector<Worker> others = {Rival("o0", 0), Rival("o1", 1)};
  for (Worker& w : others) Attach(&w);
  const CallId a0 = Ask(0, "1", In("a", 2, 8));
  const CallId b1 = Begin(others[1], "1", "m", 0, In("b", 2, 8));
  const CallId b0 = Begin(others[0], "1", "m", 0, In("b", 2, 8));
  const CallId a1 = Ask(1, "1", In("a", 2, 8));
  ASSERT_TRUE(Granted(b0, &others[0], "m") && Granted(b1, &others[1], "m")) << "complete first";
  EXPECT_FALSE(Answered(a0) || Answered(a1));
  End(&others[0], "1", "m");
  EXPECT_FALSE(Answered(a0)) << "one card is not enough";
  End(&others[1], "1", "m");
  for (Worker& w : others) Report(&w);
  EXPECT_TRUE(Granted(a0, &ranks_[0], "m") && Granted(a1, &ranks_[1], "m"));
}

TEST_F(Groups, NothingYoungerPassesAGroupThatWouldNotFitBesideIt) {
  BuildRanks(2);
  Worker busy = Rival("busy", 0), younger = Rival("younger", 1);
  AttachAll({&busy, &younger});
  ASSERT_TRUE(Granted(Begin(busy, "1", "m", 0, AtLeast(8)), &busy, "m").has_value());
  const CallId a = Ask(0, "1", In("g", 2, 6)), b = Ask(1, "1", In("g", 2, 6));
  const CallId big = Begin(younger, "1", "m", 0, AtLeast(8));
  EXPECT_FALSE(Answered(big)) << "the group's card, though it is free";
  End(&busy, "1", "m");
  Report(&busy);
  EXPECT_TRUE(Granted(a, &ranks_[0], "m") && Granted(b, &ranks_[1], "m"));
  EXPECT_FALSE(Answered(big));
}

}  // namespace
}  // namespace vrambroker::core
