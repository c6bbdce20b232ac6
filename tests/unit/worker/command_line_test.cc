#include "stage_workers/worker/command_line.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace vrambroker::worker {
namespace {

using ::testing::HasSubstr;

TEST(CommandLine, ReadsBytesInBinaryAndDecimalUnits) {
  EXPECT_EQ(*ParseBytes("--x", "4096"), 4096);
  EXPECT_EQ(*ParseBytes("--x", "0"), 0);
  EXPECT_EQ(*ParseBytes("--x", "12B"), 12);
  EXPECT_EQ(*ParseBytes("--x", "1KiB"), 1024);
  EXPECT_EQ(*ParseBytes("--x", "1.5MiB"), 3 << 19);
  EXPECT_EQ(*ParseBytes("--x", "4GiB"), int64_t{4} << 30);
  EXPECT_EQ(*ParseBytes("--x", "2GB"), 2'000'000'000);
}

TEST(CommandLine, RefusesOtherTextAndNamesTheField) {
  for (const char* text : {"", "GiB", "-1", "4 GiB x", "nan", "inf", "1e30", "2000TiB"}) {
    const absl::Status status = ParseBytes("--retain", text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--retain")) << text;
  }
}

TEST(CommandLine, WritesBytesForPeople) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(int64_t{5} << 30), "5.00 GiB");
  EXPECT_EQ(FormatBytes(-2048), "-2.00 KiB");
}

TEST(CommandLine, TakesDashesInFlagsAndReturnsTheRest) {
  const char* arguments[] = {"program", "first", "--", "--not-a-flag"};
  EXPECT_THAT(ParseCommandLine(4, const_cast<char**>(arguments), {"program", "usage", {}}),
              testing::ElementsAre("first", "--not-a-flag"));
}

}  // namespace
}  // namespace vrambroker::worker
