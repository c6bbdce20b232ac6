// vramctl as a process: what it says of a command line that makes no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/run_program.h"

namespace vrambroker::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Nobody listens there: what is refused must be refused before the broker is asked.
ProgramEnd Vramctl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {VRAMCTL_PATH, "--address=unix:/nonexistent/b.sock"});
  return RunProgram(arguments);
}

TEST(VramctlTest, FlagsOutOfRangeAreNamedWithWhatIsAllowed) {
  for (const char* value : {"0", "-3", "4097"}) {
    const ProgramEnd end = Vramctl({"decisions", std::string("--limit=") + value});
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.output, HasSubstr(std::string("--limit: ") + value));
    EXPECT_THAT(end.output, HasSubstr("1 to 4096 is allowed"));
  }
  for (const char* value : {"0s", "-5s"}) {
    const ProgramEnd end = Vramctl({"status", std::string("--timeout=") + value});
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.output, AllOf(HasSubstr("--timeout: "), HasSubstr("above 0 is allowed")));
  }
  EXPECT_THAT(Vramctl({"status", "--format=xml"}).output, HasSubstr("--format: 'xml' given"));
}

TEST(VramctlTest, AnArgumentTooManyIsNamedNotTheCommand) {
  const ProgramEnd end = Vramctl({"status", "extra"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.output, AllOf(HasSubstr("'extra' is not known: no argument goes there"),
                                HasSubstr("vramctl status --help")));
  EXPECT_THAT(Vramctl({"statsu"}).output, HasSubstr("'statsu' is no command"));
}

TEST(VramctlTest, ExplainTakesOneDecision) {
  for (const char* given : {"x", "0", "-1"}) {
    const ProgramEnd end = Vramctl({"explain", "--", given});
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.output, HasSubstr(std::string("'") + given + "' given"));
  }
  EXPECT_THAT(Vramctl({"explain"}).output, HasSubstr("explain takes one decision id"));
  EXPECT_THAT(Vramctl({"explain", "1", "2"}).output, HasSubstr("'1 2' given"));
}

TEST(VramctlTest, FlagsThatItDoesNotHaveAreNamed) {
  const ProgramEnd end = Vramctl({"decisions", "--limt=3"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.output, AllOf(HasSubstr("vramctl: --limt is no flag"), HasSubstr("--limit")));
  EXPECT_THAT(Vramctl({"status", "--timeout=soon"}).output, HasSubstr("--timeout: soon given"));
  EXPECT_THAT(Vramctl({"decisions", "--limit=a"}).output, HasSubstr("--limit: a given, 1 to 4096"));
}

TEST(VramctlTest, WhatCannotBeWrittenIsAnError) {
  for (const char* command : {"--help", "simulate --random=1", "plan --random=1 --format=json"}) {
    const ProgramEnd end =
        RunProgram({"sh", "-c", std::string("exec " VRAMCTL_PATH " ") + command + " >/dev/full"});
    EXPECT_EQ(end.status, 2) << command;
    EXPECT_THAT(end.output, HasSubstr("vramctl: cannot write to standard output"));
  }
}

TEST(VramctlTest, TheAddressOfTheEnvironmentIsTheDefault) {
  const ProgramEnd end = RunProgram(
      {"VRAM_BROKER_ADDRESS=unix:/nonexistent/env.sock", VRAMCTL_PATH, "status", "--timeout=2s"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.output, HasSubstr("/nonexistent/env.sock"));
}

}  // namespace
}  // namespace vrambroker::ctl
