// Every order of events of small scenarios, for the real machine and real sessions. What is wrong
// is told by a shortest way to it, which VRAM_MODEL_REPLAY plays again.
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/model/explore.h"
#include "tests/model/scenarios.h"

namespace vrambroker::model {
namespace {

bool IsDeep() { return std::getenv("VRAM_MODEL_DEEP") != nullptr; }

// A sanitizer takes several times as long for each state: a part of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kMostStates = 3000;
#else
constexpr int64_t kMostStates = 1'000'000;  // some GiB
#endif

int64_t MostStates() {
  const char* text = std::getenv("VRAM_MODEL_STATES");
  return text == nullptr ? kMostStates : std::strtoll(text, nullptr, 10);
}

class SmallModel : public testing::TestWithParam<std::string> {
 protected:
  static Scenario Named(const std::string& name) {
    for (const Scenario& s : Scenarios(IsDeep())) {
      if (s.name == name) return s;
    }
    ADD_FAILURE() << "no scenario is called " << name;
    return {};
  }
};

TEST_P(SmallModel, NothingGoesWrongInAnyOrder) {
  const Scenario scenario = Named(GetParam());
  const Exploration found = Explore(scenario, MostStates());
  std::cout << scenario.name << ": " << found.states << " states by " << found.steps
            << " steps, the farthest " << found.longest << " steps away"
            << (found.complete ? "" : "; there are more") << "\n";
  ASSERT_TRUE(found.failure.empty()) << found.failure;
  ASSERT_GT(found.states, 100);
  EXPECT_EQ(found.settled, found.states);
  if (!found.complete) {
    EXPECT_GE(found.states, MostStates());
    return;
  }
  // A few of the ways that lead to a state by which another did are compared: chance, where those
  // are few.
  constexpr int64_t kEnough = 10'000;
  if (found.steps - found.states > kEnough) {
    EXPECT_GT(found.compared, 0) << "no two ways to one state were compared";
  }
  for (Action::Kind kind : Expected(scenario)) {
    EXPECT_GT(found.taken[static_cast<size_t>(kind)], 0) << NameOf(kind) << ": never happened";
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Scenario& s : Scenarios(IsDeep())) names.push_back(s.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Scenarios, SmallModel, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

// What no scenario makes happen would go unnoticed.
TEST(SmallModelTest, EveryKindOfActionIsExpectedOfSomeScenario) {
  std::set<Action::Kind> expected;
  for (const Scenario& s : Scenarios(false)) {
    for (Action::Kind kind : Expected(s)) expected.insert(kind);
  }
  for (int i = 0; i < kActionKinds; ++i) {
    const auto kind = static_cast<Action::Kind>(i);
    EXPECT_TRUE(expected.contains(kind)) << NameOf(kind);
  }
}

// SCENARIO:NUMBERS, as a failure prints it; without it, the beginning of one.
TEST(SmallModelTest, AWayIsPlayedAgain) {
  const char* given = std::getenv("VRAM_MODEL_REPLAY");
  const std::vector<std::string> parts =
      absl::StrSplit(given == nullptr ? "one_lost:0,0,0" : given, ':');
  ASSERT_EQ(parts.size(), 2u) << "VRAM_MODEL_REPLAY is SCENARIO:NUMBER,NUMBER,...";
  std::vector<int> way;
  for (const auto& text : absl::StrSplit(parts[1], ',', absl::SkipEmpty())) {
    int number = -1;
    ASSERT_TRUE(absl::SimpleAtoi(text, &number)) << text;
    way.push_back(number);
  }
  for (const Scenario& s : Scenarios(IsDeep())) {
    if (s.name != parts[0]) continue;
    const std::string story = Replay(s, way);
    if (given != nullptr) std::cout << story << "\n";
    EXPECT_NE(story.find("w0: a worker attaches"), std::string::npos);
    EXPECT_EQ(story.find("is not one of"), std::string::npos);
    return;
  }
  FAIL() << "no scenario is called " << parts[0];
}

}  // namespace
}  // namespace vrambroker::model
