// What a process may use of the machine's memory, by trees of files as the kernel shows them.
#include "client/cpp/host_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace vrambroker::client {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    static std::atomic<int> serial{0};
    root_ = absl::StrCat(testing::TempDir(), "host-memory-", getpid(), "-", ++serial);
    Write("/proc/meminfo", absl::StrCat("MemFree: 5 kB\nMemTotal:       ", 16 * kGiB / 1024,
                                        " kB\nMemAvailable: 7 kB\n"));
  }
  ~HostMemoryTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  // The domain of a group's folder.
  std::string Domain(const std::string& path) const {
    struct stat status {};
    EXPECT_EQ(stat((root_ + path).c_str(), &status), 0) << path;
    return absl::StrCat("cgroup:", status.st_ino);
  }
  void Expect(int64_t limit, const std::string& domain) {
    const v1::HostMemory memory = ReadHostMemory(root_);
    EXPECT_EQ(memory.limit_bytes(), limit);
    EXPECT_EQ(memory.domain(), domain);
  }

  std::string root_;
};

TEST_F(HostMemoryTest, WithoutGroupsItIsTheMachines) { Expect(16 * kGiB, ""); }

TEST_F(HostMemoryTest, OfVersionTwoTheLeastLimitAlongThePathCounts) {
  Write("/proc/self/cgroup", "0::/pods/a/main\n");
  Write("/sys/fs/cgroup/pods/memory.max", absl::StrCat(12 * kGiB, "\n"));
  Write("/sys/fs/cgroup/pods/a/memory.max", absl::StrCat(4 * kGiB, "\n"));
  Write("/sys/fs/cgroup/pods/a/main/memory.max", "max\n");
  Expect(4 * kGiB, Domain("/sys/fs/cgroup/pods/a"));
  Write("/sys/fs/cgroup/pods/a/main/memory.max", absl::StrCat(2 * kGiB, "\n"));
  Expect(2 * kGiB, Domain("/sys/fs/cgroup/pods/a/main"));
}

TEST_F(HostMemoryTest, OfEqualLimitsTheOutermostCounts) {
  Write("/proc/self/cgroup", "0::/pods/a/main\n");
  Write("/sys/fs/cgroup/pods/a/memory.max", absl::StrCat(4 * kGiB, "\n"));
  Write("/sys/fs/cgroup/pods/a/main/memory.max", absl::StrCat(4 * kGiB, "\n"));
  Expect(4 * kGiB, Domain("/sys/fs/cgroup/pods/a"));
}

TEST_F(HostMemoryTest, InAContainerTheGroupIsWhatIsMounted) {
  Write("/sys/fs/cgroup/memory.max", absl::StrCat(3 * kGiB, "\n"));
  for (const char* path : {"0::/\n", "0::/of/the/machine\n", "0::/../other\n"}) {
    Write("/proc/self/cgroup", path);
    Expect(3 * kGiB, Domain("/sys/fs/cgroup"));
  }
}

TEST_F(HostMemoryTest, WorkersOfOneGroupSayTheSameAndOthersNot) {
  Write("/sys/fs/cgroup/a/memory.max", absl::StrCat(kGiB, "\n"));
  Write("/sys/fs/cgroup/a/x/memory.max", "max\n");
  Write("/sys/fs/cgroup/b/memory.max", absl::StrCat(kGiB, "\n"));
  Write("/proc/self/cgroup", "0::/a\n");
  const std::string a = ReadHostMemory(root_).domain();
  Write("/proc/self/cgroup", "0::/a/x\n");
  EXPECT_EQ(ReadHostMemory(root_).domain(), a);
  Write("/proc/self/cgroup", "0::/b\n");
  EXPECT_NE(ReadHostMemory(root_).domain(), a);
}

TEST_F(HostMemoryTest, VersionOneIsReadAsWell) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Expect(16 * kGiB, "");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", absl::StrCat(kGiB, "\n"));
  Expect(kGiB, Domain("/sys/fs/cgroup/memory/docker/abc"));
}

TEST_F(HostMemoryTest, ALimitAboveTheMachinesBoundsNothing) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", absl::StrCat(64 * kGiB, "\n"));
  Expect(16 * kGiB, "");
}

TEST_F(HostMemoryTest, WhatIsNoLimitIsNotTakenForOne) {
  Write("/proc/self/cgroup", "nonsense\n0::\n:::\n0::relative\n0::/a\n");
  for (const char* text : {"", "\n", "-5\n", "0\n", "many\n", "99999999999999999999\n"}) {
    Write("/sys/fs/cgroup/a/memory.max", text);
    Expect(16 * kGiB, "");
  }
}

TEST_F(HostMemoryTest, WhereNothingCanBeReadNothingIsKnown) {
  Write("/proc/meminfo", "MemTotal: much kB\n");
  Expect(0, "");
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", absl::StrCat(kGiB, "\n"));
  Expect(kGiB, Domain("/sys/fs/cgroup/a"));
}

TEST(HostMemory, ThisMachineHasSome) {
  const v1::HostMemory memory = ReadHostMemory("");
  EXPECT_GT(memory.limit_bytes(), 0);
  EXPECT_LE(memory.domain().size(), 128u);
}

}  // namespace
}  // namespace vrambroker::client
