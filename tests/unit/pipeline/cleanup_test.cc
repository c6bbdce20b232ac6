#include "stage_workers/pipeline/cleanup.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace vrambroker::pipeline {
namespace {

// A place of the test's own for temporary folders.
class CleanupTest : public testing::Test {
 protected:
  CleanupTest() : parent_(absl::StrCat(testing::TempDir(), "cleanup-", getpid())) {
    std::filesystem::create_directories(parent_);
    setenv("TMPDIR", parent_.c_str(), 1);
  }
  ~CleanupTest() override {
    unsetenv("TMPDIR");
    std::filesystem::remove_all(parent_);
  }

  int Folders() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(parent_)) ++count;
    return count;
  }

  const std::string parent_;
};

TEST_F(CleanupTest, AFolderGoesWithItsOwner) {
  {
    const absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(std::filesystem::is_directory(folder->path()));
    EXPECT_EQ(Folders(), 1);
  }
  EXPECT_EQ(Folders(), 0);
}

TEST_F(CleanupTest, TheNextOneSweepsWhatAKilledProcessLeft) {
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Create();
    if (folder.ok()) std::ofstream(folder->path() + "/left") << "x";
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(Folders(), 1);
  // Of others: one that lives, and one that was made by somebody else.
  const absl::StatusOr<TemporaryFolder> living = TemporaryFolder::Create();
  ASSERT_TRUE(living.ok()) << living.status();
  EXPECT_EQ(Folders(), 1);
  std::filesystem::create_directories(parent_ + "/vram-foreign");
  const absl::StatusOr<TemporaryFolder> next = TemporaryFolder::Create();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(std::filesystem::exists(living->path()));
  EXPECT_TRUE(std::filesystem::exists(parent_ + "/vram-foreign"));
  EXPECT_EQ(Folders(), 3);
}

}  // namespace
}  // namespace vrambroker::pipeline
