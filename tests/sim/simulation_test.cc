// Random runs of the machine and of sessions against each other. A failure prints its seed; that
// seed alone, by VRAM_SIM_SEED, gives the same run again.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/world.h"

namespace vrambroker::simulation {
namespace {

constexpr int kStepsOfARun = 1500;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

// Runs one seed after the other until so many steps are done.
void RunSeeds(uint64_t first, int64_t steps) {
  int64_t done = 0, grants = 0;
  uint64_t seed = first;
  for (; done < steps; ++seed) {
    World world(MakeScenario(seed, kStepsOfARun));
    const std::string failure = world.Run();
    ASSERT_TRUE(failure.empty()) << failure;
    ASSERT_GT(world.steps(), 0);
    done += world.steps();
    grants += world.grants();
  }
  std::cout << done << " steps of " << seed - first << " runs, " << grants << " grants\n";
  EXPECT_GT(grants, done / 200) << "too little was granted for the run to mean anything";
}

// A sanitizer takes several times as long for each step.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kSteps = 40'000;
#else
constexpr int64_t kSteps = 600'000;
#endif

int64_t Steps() { return FromEnvironment("VRAM_SIM_STEPS", kSteps); }

TEST(Simulation, GuaranteesHoldInKnownRuns) { RunSeeds(1, Steps()); }

// Runs that once went wrong (tests/README.md).
TEST(Simulation, GuaranteesHoldInRunsThatOnceFailed) {
  for (const uint64_t seed : {uint64_t{1796035345215}}) {
    World world(MakeScenario(seed, kStepsOfARun));
    EXPECT_EQ(world.Run(), "") << "seed " << seed;
    EXPECT_GT(world.grants(), 0);
  }
}

TEST(Simulation, GuaranteesHoldInFreshRuns) {
  const int64_t now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  const int64_t base = FromEnvironment("VRAM_SIM_SEED", now * 1000);
  std::cout << "seeds from " << base << "\n";
  RunSeeds(static_cast<uint64_t>(base), Steps() * 2 / 3);
}

}  // namespace
}  // namespace vrambroker::simulation
