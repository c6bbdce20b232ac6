#include "stage_workers/pipeline/child_process.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/pipeline/cleanup.h"

namespace vrambroker::pipeline {
namespace {

using ::testing::HasSubstr;

std::string LogPath(const std::string& name) {
  const std::string path = absl::StrCat(testing::TempDir(), "child-", getpid(), "-", name);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return path;
}

std::unique_ptr<ChildProcess> Shell(const std::string& script, const std::string& log) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Start({"/bin/sh", "-c", script}, log);
  EXPECT_TRUE(child.ok()) << child.status();
  return *std::move(child);
}

TEST(ChildProcess, EndsWellWithItsOutputInTheLog) {
  const std::string log = LogPath("well");
  EXPECT_TRUE(Shell("echo out; echo err >&2", log)->Join(absl::Seconds(60)).ok());
  EXPECT_EQ(LastLines(log, 5), "out\nerr");
  EXPECT_EQ(LastLines(log, 1), "err");
  EXPECT_EQ(LastLines(log + "-none", 1), "");
}

TEST(ChildProcess, AFailureNamesStatusAndLog) {
  const std::string log = LogPath("fails");
  const absl::Status status = Shell("echo what went wrong; exit 3", log)->Join(absl::Seconds(60));
  EXPECT_THAT(std::string(status.message()), HasSubstr("status 3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(log));
  EXPECT_THAT(std::string(status.message()), HasSubstr("what went wrong"));
}

TEST(ChildProcess, WhatIsNotThereCannotStart) {
  EXPECT_TRUE(
      absl::IsNotFound(ChildProcess::Start({"/nowhere/program"}, LogPath("none")).status()));
}

TEST(ChildProcess, OneThatEndsBeforeItIsReadyIsSaid) {
  const auto child = Shell("exit 0", LogPath("early"));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(child->WaitUntil([] { return false; }, absl::Seconds(60))));
}

TEST(ChildProcess, OneThatIsNeverReadyIsGivenUp) {
  const auto waiting = Shell("while :; do :; done", LogPath("busy"));
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(waiting->WaitUntil([] { return false; }, absl::Milliseconds(20))));
  EXPECT_TRUE(waiting->Running());
}

TEST(ChildProcess, OneThatDoesNotListenIsKilled) {
  const std::string log = LogPath("stubborn");
  const auto child = Shell("trap '' TERM; echo deaf; while :; do :; done", log);
  ASSERT_TRUE(
      child->WaitUntil([&log] { return LastLines(log, 1) == "deaf"; }, absl::Seconds(60)).ok());
  child->Terminate();
  const absl::Status status = child->Join(absl::Milliseconds(50));
  EXPECT_THAT(std::string(status.message()), HasSubstr("killed"));
  EXPECT_FALSE(child->Running());
}

TEST(ChildProcess, GoesWithItsOwner) {
  pid_t pid = 0;
  {
    const auto child = Shell("while :; do :; done", LogPath("owned"));
    pid = child->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(Cleanup, CardsAndFoldersGoWithTheirOwners) {
  std::string card;
  std::string folder;
  {
    const TemporaryCardName name;
    const TemporaryCardName other;
    EXPECT_NE(name.name(), other.name());
    card = name.name();
    ASSERT_TRUE(card::EmulatedCard::Create(card, {.capacity_bytes = 1 << 20}).ok());
    absl::StatusOr<TemporaryFolder> made = TemporaryFolder::Create();
    ASSERT_TRUE(made.ok()) << made.status();
    const TemporaryFolder moved = *std::move(made);
    folder = moved.path();
    std::ofstream(folder + "/file") << "text";
    EXPECT_TRUE(std::filesystem::exists(folder + "/file"));
  }
  EXPECT_TRUE(absl::IsNotFound(card::EmulatedCard::Open(card).status()));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Cleanup, CardsOfProcessesThatHaveDiedAreRemovedByTheNextOne) {
  const auto child = Shell("exit 0", LogPath("dead"));
  ASSERT_TRUE(child->Join(absl::Seconds(60)).ok());
  const std::string abandoned = absl::StrCat("pipeline-", child->pid(), "-1");
  ASSERT_TRUE(card::EmulatedCard::Create(abandoned, {.capacity_bytes = 1 << 20}).ok());
  const TemporaryCardName living;
  ASSERT_TRUE(card::EmulatedCard::Create(living.name(), {.capacity_bytes = 1 << 20}).ok());
  const TemporaryCardName next;
  EXPECT_TRUE(absl::IsNotFound(card::EmulatedCard::Open(abandoned).status()));
  EXPECT_TRUE(card::EmulatedCard::Open(living.name()).ok());
}

}  // namespace
}  // namespace vrambroker::pipeline
