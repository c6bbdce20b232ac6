// Pinned host memory of real workers: within the broker's budget, whoever comes, dies or restarts.
#include <gmock/gmock.h>
#include <sys/types.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/harness.h"
#include "tests/run_program.h"

namespace vrambroker::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two of these fit the budget, three do not. Files of weights have a header beside their layers.
const WorkerSetup kPinned = {.layers = 2, .flags = {"--tier=pinned"}};
constexpr int64_t kWish = 2 * kMiB;
constexpr int64_t kBudget = 5 * kMiB;
// Of a broker that follows no other.
constexpr char kNoWindow[] = "--recovery-window=0";

// What the kernel says that a process has locked, in bytes; below 0: it says nothing.
int64_t Locked(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() >= 2 && words[0] == "VmLck:" && absl::SimpleAtoi(words[1], &kib)) {
      return kib * 1024;
    }
  }
  return -1;
}

class HostPinsTest : public E2eTest {
 protected:
  // Starts them one after the other.
  void StartPinned(const std::vector<std::string>& names, const WorkerSetup& setup = kPinned) {
    for (const std::string& name : names) workers_[name] = &StartWorker(name, setup);
  }
  StageWorker& worker(const std::string& name) { return *workers_.at(name); }
  int64_t LockedBy(const std::string& name) { return Locked(worker(name).pid()); }
  // Whether it has all that it wishes, by the kernel and by what the broker shows.
  bool IsPinned(const std::string& name) {
    const int64_t locked = LockedBy(name);
    return locked >= kWish && Session(name).pinned_host_bytes() == locked &&
           Session(name).pin_wish_bytes() == locked;
  }
  // Looks at every moment that it is called: within the budget by the kernel's own figures.
  void ExpectWithinBudget() {
    int64_t locked = 0;
    for (const auto& [name, one] : workers_) {
      if (one->Running()) locked += LockedBy(name);
    }
    EXPECT_LE(locked, kBudget);
  }
  bool Becomes(const std::function<bool()>& condition) {
    return Eventually([&] {
      ExpectWithinBudget();
      return condition();
    });
  }
  v1::HostMemoryPicture Machine() {
    const v1::Picture picture = Picture();
    return picture.host_memory().empty() ? v1::HostMemoryPicture() : picture.host_memory(0);
  }
  static std::string BudgetFlag() { return absl::StrCat("--host-pin-budget=", kBudget); }

  std::map<std::string, StageWorker*> workers_;
};

TEST_F(HostPinsTest, OfThreeWorkersTwoArePinnedAndTheDeathOfOneLetsTheThird) {
  StartBroker({BudgetFlag(), kNoWindow});
  StartPinned({"a", "b", "c"});
  ASSERT_TRUE(Becomes([&] { return IsPinned("a") && IsPinned("b"); }));
  EXPECT_EQ(LockedBy("c"), 0);
  EXPECT_EQ(Session("c").pin_allowance_bytes(), 0);
  EXPECT_GE(Session("c").pin_wish_bytes(), kWish);
  EXPECT_EQ(Machine().budget_bytes(), kBudget);
  EXPECT_LE(Machine().charged_bytes(), kBudget);
  EXPECT_EQ(Machine().pinned_bytes(), LockedBy("a") + LockedBy("b"));

  // It works all the same, and says why it is pageable.
  const std::string pageable = worker("c").Run(Stage()).activations();
  EXPECT_FALSE(pageable.empty());
  EXPECT_THAT(worker("c").Component().pageable_because(), HasSubstr("allows this worker to pin"));
  EXPECT_EQ(worker("c").Component().pinned_host_bytes(), 0);
  EXPECT_THAT(worker("c").Log(), HasSubstr("component c stays pageable: it takes "));
  EXPECT_THAT(worker("a").Log(),
              AllOf(HasSubstr("component a is pinned"), Not(HasSubstr("pageable"))));
  EXPECT_EQ(worker("a").Component().pageable_because(), "");
  EXPECT_EQ(worker("a").Component().pinned_host_bytes(), LockedBy("a"));
  const ProgramEnd status =
      RunProgram({Program("vramctl"), "--address=" + broker_address(), "status"});
  EXPECT_THAT(status.output, AllOf(HasSubstr("host memory of"), HasSubstr("the machine")));
  const ProgramEnd json =
      RunProgram({Program("vramctl"), "--address=" + broker_address(), "status", "--format=json"});
  EXPECT_THAT(json.output, AllOf(HasSubstr("host_memory"), HasSubstr("pin_allowance_bytes")));

  worker("a").Kill();
  ASSERT_TRUE(Becomes([&] { return IsPinned("c"); })) << worker("c").Log();
  EXPECT_TRUE(IsPinned("b"));
  EXPECT_EQ(worker("c").Component().pageable_because(), "");
  EXPECT_EQ(worker("c").Run(Stage()).activations(), pageable);
}

TEST_F(HostPinsTest, ARestartedBrokerTakesWhatIsPinnedAsItIs) {
  StartBroker({BudgetFlag(), kNoWindow});
  StartPinned({"a", "b", "c"});
  ASSERT_TRUE(Becomes([&] { return IsPinned("a") && IsPinned("b"); }));
  // The third comes back first; the others are still pinned.
  worker("a").Freeze();
  worker("b").Freeze();
  broker().Kill();
  StartBroker({BudgetFlag(), "--recovery-window=3s"});
  ASSERT_TRUE(Becomes([&] { return Session("c").state() == v1::SESSION_STATE_ATTACHED; }));
  EXPECT_EQ(Session("c").pin_allowance_bytes(), 0);
  worker("a").Thaw();
  worker("b").Thaw();
  ASSERT_TRUE(Becomes([&] {
    return IsPinned("a") && IsPinned("b") && Session("a").pin_allowance_bytes() >= kWish &&
           Session("b").pin_allowance_bytes() >= kWish;
  }));
  EXPECT_EQ(LockedBy("c"), 0);
  worker("b").Kill();
  EXPECT_TRUE(Becomes([&] { return IsPinned("c"); }));
}

TEST_F(HostPinsTest, AFractionOfZeroLetsNobodyPin) {
  StartBroker({"--host-pin-fraction=0", kNoWindow});
  StartPinned({"a"});
  ASSERT_TRUE(Eventually(
      [&] { return worker("a").Log().find("component a stays pageable: ") != std::string::npos; }));
  EXPECT_EQ(LockedBy("a"), 0);
  EXPECT_EQ(worker("a").Run(Stage()).resident_layers(), 2);
}

TEST_F(HostPinsTest, WithoutABrokerAWorkerPinsAsItIsConfigured) {
  MakeCard(CardSetup{});
  WorkerSetup alone = kPinned;
  alone.broker = "none";
  StartPinned({"a"}, alone);
  EXPECT_GE(LockedBy("a"), kWish);
  EXPECT_EQ(worker("a").Component().pinned_host_bytes(), LockedBy("a"));
  // Where a broker is looked for and none lives it pins as well; a broker that comes takes it as a
  // fact, shown and named.
  StartPinned({"b"}, kPinned);
  ASSERT_TRUE(WaitFor([&] { return LockedBy("b") >= kWish; }, absl::Seconds(20)));
  StartBroker({"--host-pin-budget=1MiB", kNoWindow});
  ASSERT_TRUE(Eventually([&] { return Session("b").pinned_host_bytes() == LockedBy("b"); }));
  EXPECT_EQ(Session("b").pin_allowance_bytes(), 0);
  EXPECT_GT(Machine().charged_bytes(), Machine().budget_bytes());
  const ProgramEnd status =
      RunProgram({Program("vramctl"), "--address=" + broker_address(), "status"});
  EXPECT_THAT(status.output, AllOf(HasSubstr("of host memory pinned beyond its allowance"),
                                   HasSubstr("over budget: nobody is allowed more")));
  EXPECT_TRUE(worker("b").Run(Stage()).brokered());
}

}  // namespace
}  // namespace vrambroker::e2e
