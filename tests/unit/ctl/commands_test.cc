#include "broker/ctl/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "broker/ctl/connection.h"

namespace vrambroker::ctl {
namespace {

using testing::HasSubstr;

TEST(CommandsTest, HelpNamesEveryCommandAndEveryFlag) {
  std::set<std::string> names;
  for (const Command& command : Commands()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name << " is there twice";
    EXPECT_EQ(FindCommand(command.name), &command);
    EXPECT_THAT(GeneralUsage(), HasSubstr("\n  " + command.name));
    EXPECT_THAT(command.usage, HasSubstr("vramctl " + command.name));
    EXPECT_THAT(command.usage, HasSubstr("Exit status: 0 ")) << command.name;
    for (const FlagSpec& flag : command.flags) {
      EXPECT_THAT(command.usage, HasSubstr("--" + flag.name)) << command.name;
    }
  }
  EXPECT_EQ(FindCommand("statsu"), nullptr);
}

TEST(CommandsTest, HelpFitsATerminal) {
  for (const Command& command : Commands()) {
    size_t begin = 0;
    for (size_t end; (end = command.usage.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      EXPECT_LE(end - begin, 100u) << command.usage.substr(begin, end - begin);
    }
  }
}

TEST(CommandsTest, FlagsMayStandBeforeTheCommand) {
  EXPECT_EQ(CommandAt({"status"}), 0u);
  EXPECT_EQ(CommandAt({"--address=unix:x", "status"}), 1u);
  EXPECT_EQ(CommandAt({"--address", "status", "runs"}), 2u) << "the value of a flag is none";
  EXPECT_EQ(CommandAt({"--yes", "drain"}), 1u) << "this flag has no value";
  EXPECT_EQ(CommandAt({"--format"}), 1u);
  EXPECT_EQ(CommandAt({}), 0u);
}

TEST(ConnectionTest, TimesOutOfRangeAreRefusedWithTheRange) {
  for (const char* given : {"0s", "-1s", "61m", "inf", "soon", ""}) {
    const auto parsed =
        Arguments::Parse({std::string("--timeout=") + given}, WithConnectionFlags({}));
    ASSERT_TRUE(parsed.ok());
    const auto taken = TakeConnection(*parsed, absl::ZeroDuration());
    ASSERT_FALSE(taken.ok()) << given;
    EXPECT_THAT(std::string(taken.status().message()),
                HasSubstr("a duration above 0 is allowed, 1h at most, such as 5s"));
  }
  const auto parsed = Arguments::Parse({"--timeout=1h", "--format=json"}, WithConnectionFlags({}));
  ASSERT_TRUE(parsed.ok());
  const auto taken = TakeConnection(*parsed, absl::Seconds(1));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->timeout, absl::Hours(1));
  EXPECT_TRUE(taken->json);
}

}  // namespace
}  // namespace vrambroker::ctl
