#include "broker/observe/decision_log_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace vrambroker::observe {
namespace {

using testing::HasSubstr;

constexpr char kHeader[] = "{\"time\":0,\"header\":{}}\n";

class DecisionLogFileTest : public testing::Test {
 protected:
  DecisionLogFileTest() {
    char folder[] = "/tmp/decision_log_file_test.XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~DecisionLogFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& more = "") const { return folder_ + "/log" + more; }
  static std::string Contents(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string folder_;
};

TEST_F(DecisionLogFileTest, MakesTheFileForItsOwnerAndGroup) {
  auto file = DecisionLogFile::Open(path(), 100, 2);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(kHeader, true).ok());
  struct stat found {};
  ASSERT_EQ(stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07, 0u);
  EXPECT_EQ(Contents(path()), kHeader);
}

TEST_F(DecisionLogFileTest, MovesFilesOnAndKeepsSoMany) {
  auto file = DecisionLogFile::Open(path(), 60, 3);
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 5; ++i) {
    if (i > 0) {
      ASSERT_TRUE(file->Rotate().ok());
    }
    ASSERT_TRUE(file->Append(kHeader, true).ok());
    EXPECT_FALSE(file->Full(0, 1000)) << "a line must go somewhere";
    EXPECT_TRUE(file->Full(1, 1000));
    ASSERT_TRUE(file->Append("line " + std::to_string(i) + "\n", false).ok());
    EXPECT_TRUE(file->Full(0, 1000));
  }
  EXPECT_EQ(Contents(path()), std::string(kHeader) + "line 4\n");
  EXPECT_EQ(Contents(path(".1")), std::string(kHeader) + "line 3\n");
  EXPECT_EQ(Contents(path(".2")), std::string(kHeader) + "line 2\n");
  EXPECT_FALSE(std::filesystem::exists(path(".3")));
}

TEST_F(DecisionLogFileTest, ASingleFileIsBegunAgain) {
  auto file = DecisionLogFile::Open(path(), 60, 1);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append("one\n", false).ok());
  ASSERT_TRUE(file->Rotate().ok());
  ASSERT_TRUE(file->Append("two\n", false).ok());
  EXPECT_EQ(Contents(path()), "two\n");
  EXPECT_FALSE(std::filesystem::exists(path(".1")));
}

TEST_F(DecisionLogFileTest, AddsToWhatIsThereAndEndsALineThatWasCutOff) {
  std::ofstream(path()) << kHeader << "{\"time\":1,\"deci";
  auto file = DecisionLogFile::Open(path(), 1000, 2);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(kHeader, true).ok());
  ASSERT_TRUE(file->Append("next\n", false).ok());
  EXPECT_EQ(Contents(path()), std::string(kHeader) + "{\"time\":1,\"deci\n" + kHeader + "next\n");
}

TEST_F(DecisionLogFileTest, TakesWhatACrashLeftOfItsFirstLine) {
  std::ofstream(path()) << "{\"tim";
  auto file = DecisionLogFile::Open(path(), 1000, 2);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(kHeader, true).ok());
  EXPECT_EQ(Contents(path()), std::string("{\"tim\n") + kHeader);
}

TEST_F(DecisionLogFileTest, NoticesThatItIsNotFoundByItsNameAnyMore) {
  std::filesystem::create_directory(path(".d"));
  const std::string name = path(".d/log");
  auto file = DecisionLogFile::Open(name, 1000, 2);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(kHeader, true).ok());
  EXPECT_FALSE(file->Lost());
  std::filesystem::rename(name, name + ".moved");
  EXPECT_TRUE(file->Lost());
  ASSERT_TRUE(file->Reopen().ok());
  EXPECT_FALSE(file->Lost());
  std::filesystem::remove(name);
  std::ofstream(name) << "somebody else's\n";
  EXPECT_TRUE(file->Lost());
  EXPECT_THAT(file->Reopen().message(), HasSubstr("something other than a decision log"));
  std::filesystem::remove_all(path(".d"));
  EXPECT_TRUE(file->Lost());
  EXPECT_THAT(file->Reopen().message(), HasSubstr("No such file or directory"));
  std::filesystem::create_directory(path(".d"));
  ASSERT_TRUE(file->Reopen().ok());
  ASSERT_TRUE(file->Append(kHeader, true).ok());
  EXPECT_EQ(Contents(name), kHeader);
}

TEST_F(DecisionLogFileTest, LeavesOtherFilesAlone) {
  std::ofstream(path()) << "root:x:0:0\n";
  const auto file = DecisionLogFile::Open(path(), 1000, 2);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(file.status().message(), HasSubstr("something other than a decision log"));
  EXPECT_EQ(Contents(path()), "root:x:0:0\n");
}

TEST_F(DecisionLogFileTest, IsOfOneBroker) {
  const auto first = DecisionLogFile::Open(path(), 1000, 2);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(DecisionLogFile::Open(path(), 1000, 2).status().message(),
              HasSubstr("another broker writes to it"));
}

TEST_F(DecisionLogFileTest, SaysWhyItCannotBeHad) {
  EXPECT_THAT(DecisionLogFile::Open(folder_ + "/no/log", 1000, 2).status().message(),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(DecisionLogFile::Open(folder_, 1000, 2).status().message(), HasSubstr("directory"));
  ASSERT_EQ(mkfifo(path(".pipe").c_str(), 0600), 0);
  EXPECT_THAT(DecisionLogFile::Open(path(".pipe"), 1000, 2).status().message(),
              HasSubstr("is no file"));
}

TEST_F(DecisionLogFileTest, AFullDiskIsSaidAndNeverRenamed) {
  auto file = DecisionLogFile::Open("/dev/full", 10, 2);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->Append("line\n", false).message(), HasSubstr("No space left"));
  EXPECT_FALSE(file->Full(0, 1000));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

// In a process of its own, as the limit is the process's. Exit status: the check that failed.
int WriteBeyondLimit(const std::string& path) {
  signal(SIGXFSZ, SIG_IGN);
  auto file = DecisionLogFile::Open(path, 1000, 2);
  if (!file.ok() || !file->Append("{\"time\":1}\n", false).ok()) return 1;
  const rlimit little{20, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &little) != 0) return 2;
  if (file->Append("{\"time\":2,\"more\":1}\n", false).ok()) return 3;
  const rlimit more{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &more) != 0) return 4;
  return file->Append("{\"time\":3}\n", false).ok() ? 0 : 5;
}

TEST_F(DecisionLogFileTest, WhatADiskTookInPartIsCutOffAgain) {
  const pid_t child = fork();
  if (child == 0) _exit(WriteBeyondLimit(path()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(Contents(path()), "{\"time\":1}\n{\"time\":3}\n");
}

}  // namespace
}  // namespace vrambroker::observe
