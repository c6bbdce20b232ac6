#include "client/cpp/defaults.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace vrambroker::client {
namespace {

TEST(PlaceFrom, TakesWhatABrokerTakes) {
  setenv("VRAM_TEST_PLACE", "pod-1.team", 1);
  EXPECT_EQ(PlaceFrom("VRAM_TEST_PLACE"), "pod-1.team");
  setenv("VRAM_TEST_PLACE", "a\xff\n b", 1);
  EXPECT_EQ(PlaceFrom("VRAM_TEST_PLACE"), "ab");
  setenv("VRAM_TEST_PLACE", std::string(300, 'p').c_str(), 1);
  EXPECT_EQ(PlaceFrom("VRAM_TEST_PLACE"), std::string(128, 'p'));
  unsetenv("VRAM_TEST_PLACE");
  EXPECT_EQ(PlaceFrom("VRAM_TEST_PLACE"), "");
}

}  // namespace
}  // namespace vrambroker::client
