#include "broker/observe/device_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/observe/child.h"

namespace vrambroker::observe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kUuid[] = "GPU-11111111-2222";

TEST(DeviceLock, PathsOfUuidsAreSafeAndDiffer) {
  EXPECT_EQ(DeviceLockPath("/run/x", "GPU-1a_2.b"), "/run/x/device-GPU-1a_2.b.lock");
  EXPECT_EQ(DeviceLockPath("/run/x", "emulated:a"), "/run/x/device-emulated%3Aa.lock");
  EXPECT_EQ(DeviceLockPath("/run/x", "../a\n%"), "/run/x/device-..%2Fa%0A%25.lock");
  EXPECT_EQ(SocketLockPath("/run/x/broker.sock"), "/run/x/broker.sock.lock");
}

TEST(DeviceLock, ASecondProcessIsRefusedAndToldOfTheFirst) {
  TempDir dir;
  const std::string folder = absl::StrCat(dir.path(), "/made/by/need");
  std::optional<FileLock> held;
  Child first([&] {
    auto lock = LockDevice(folder, kUuid, "unix:/run/a.sock");
    if (lock.ok()) held.emplace(*std::move(lock));
    return held.has_value();
  });
  ASSERT_TRUE(first.worked());
  EXPECT_TRUE(IsHeld(folder, kUuid).value());
  const auto second = LockDevice(folder, kUuid, "unix:/run/b.sock");
  ASSERT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(kUuid), HasSubstr(absl::StrCat("process ", first.pid())),
                    HasSubstr("unix:/run/a.sock")));
  // A refused one has changed nothing.
  const auto holder = ReadHolder(DeviceLockPath(folder, kUuid));
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(holder->pid, first.pid());
  EXPECT_EQ(holder->address, "unix:/run/a.sock");
}

TEST(DeviceLock, EndsWithItsHolderHoweverItDies) {
  TempDir dir;
  std::optional<FileLock> held;
  Child first([&] {
    auto lock = LockDevice(dir.path(), kUuid, "a rather long address of the first holder");
    if (lock.ok()) held.emplace(*std::move(lock));
    return held.has_value();
  });
  ASSERT_TRUE(IsHeld(dir.path(), kUuid).value());
  first.Kill();
  first.Reap();
  EXPECT_FALSE(IsHeld(dir.path(), kUuid).value());
  const auto second = LockDevice(dir.path(), kUuid, "b");
  ASSERT_TRUE(second.ok()) << second.status();
  const auto holder = ReadHolder(second->path());
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(holder->pid, getpid());
  EXPECT_EQ(holder->address, "b");
}

TEST(DeviceLock, OneProcessDoesNotLockTwice) {
  TempDir dir;
  std::optional<FileLock> moved;
  {
    auto lock = LockDevice(dir.path(), kUuid, "a");
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_TRUE(absl::IsAlreadyExists(LockDevice(dir.path(), kUuid, "a").status()));
    moved.emplace(*std::move(lock));
  }
  EXPECT_TRUE(IsHeld(dir.path(), kUuid).value());
  EXPECT_TRUE(LockDevice(dir.path(), "GPU-other", "a").ok());
}

TEST(DeviceLock, AskingTakesNothing) {
  TempDir dir;
  EXPECT_FALSE(IsHeld(dir.path(), kUuid).value());
  EXPECT_FALSE(IsHeld(absl::StrCat(dir.path(), "/none"), kUuid).value());
  EXPECT_TRUE(absl::IsNotFound(ReadHolder(DeviceLockPath(dir.path(), kUuid)).status()));
  { ASSERT_TRUE(LockDevice(dir.path(), kUuid, "a").ok()); }
  // Without the lock there is no holder, and no file.
  EXPECT_FALSE(IsHeld(dir.path(), kUuid).value());
  EXPECT_TRUE(absl::IsNotFound(ReadHolder(DeviceLockPath(dir.path(), kUuid)).status()));
  // The descriptor that asks holds nothing either: while one asks without end, another may lock.
  Child asking([&] {
    for (int i = 0; i < 1000; ++i) {
      if (IsHeld(dir.path(), kUuid).value_or(true)) return false;
    }
    return true;
  });
  EXPECT_TRUE(asking.worked());
  EXPECT_TRUE(LockDevice(dir.path(), kUuid, "a").ok());
}

TEST(DeviceLock, LeavesNoFileAndNoDirectoryThatItMade) {
  TempDir dir;
  const std::string made = absl::StrCat(dir.path(), "/made");
  {
    auto lock = LockDevice(made + "/by/need", kUuid, "a");
    ASSERT_TRUE(lock.ok()) << lock.status();
    // Moved about, it is one lock still.
    FileLock moved = *std::move(lock);
    EXPECT_TRUE(IsHeld(made + "/by/need", kUuid).value());
  }
  EXPECT_NE(access(made.c_str(), F_OK), 0);
  EXPECT_EQ(access(dir.path().c_str(), F_OK), 0);
  {
    const auto lock = LockDevice(made, kUuid, "a");
    ASSERT_TRUE(lock.ok()) << lock.status();
    std::ofstream(made + "/another's") << "x";
  }
  EXPECT_EQ(access(made.c_str(), F_OK), 0);
  EXPECT_NE(access(DeviceLockPath(made, kUuid).c_str(), F_OK), 0);
  // Refused for its address, it has made nothing.
  EXPECT_FALSE(LockDevice(made + "/more", kUuid, "a\nb").ok());
  EXPECT_NE(access((made + "/more").c_str(), F_OK), 0);
}

TEST(DeviceLock, TakesOneThatIsLetGoMeanwhile) {
  TempDir dir;
  const std::string folder = absl::StrCat(dir.path(), "/made");
  // Both take it and let it go without end; at no time do both have it.
  const auto take_often = [&] {
    int taken = 0;
    for (int i = 0; i < 20000 && taken < 200; ++i) {
      const auto lock = LockDevice(folder, kUuid, "a");
      if (lock.ok()) ++taken;
      if (!lock.ok() && !absl::IsAlreadyExists(lock.status())) return false;
      const auto again = LockDevice(folder, kUuid, "b");
      if (lock.ok() && again.ok()) return false;
    }
    return taken == 200;
  };
  Child other(take_often);
  EXPECT_TRUE(take_often());
  EXPECT_TRUE(other.worked());
}

TEST(DeviceLock, LeavesAnothersWhereItsOwnWasRemoved) {
  TempDir dir;
  auto first = LockDevice(dir.path(), kUuid, "first");
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(unlink(DeviceLockPath(dir.path(), kUuid).c_str()), 0);
  const auto second = LockDevice(dir.path(), kUuid, "second");
  ASSERT_TRUE(second.ok()) << second.status();
  { const FileLock gone = *std::move(first); }
  EXPECT_TRUE(IsHeld(dir.path(), kUuid).value());
  EXPECT_EQ(ReadHolder(DeviceLockPath(dir.path(), kUuid))->address, "second");
}

TEST(DeviceLock, ForeignTextIsNoHolder) {
  TempDir dir;
  const std::string path = DeviceLockPath(dir.path(), kUuid);
  std::ofstream(path) << "pid=many\nnonsense";
  const auto holder = ReadHolder(path);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(holder->pid, 0);
  EXPECT_EQ(holder->address, "");
}

TEST(DeviceLock, RefusesWhatItCannotKeep) {
  TempDir dir;
  EXPECT_TRUE(absl::IsInvalidArgument(LockDevice(dir.path(), "", "a").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(LockDevice(dir.path(), std::string(129, 'a'), "a").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(LockDevice(dir.path(), kUuid, "a\nb").status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(LockDevice(dir.path(), kUuid, std::string(1025, 'a')).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(IsHeld(dir.path(), "").status()));
  // A directory in the file's place, and a file in the directory's.
  const std::string path = DeviceLockPath(dir.path(), kUuid);
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  const auto lock = LockDevice(dir.path(), kUuid, "a");
  EXPECT_TRUE(absl::IsFailedPrecondition(lock.status())) << lock.status();
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr(path));
  std::ofstream(absl::StrCat(dir.path(), "/file")) << "x";
  EXPECT_FALSE(LockDevice(absl::StrCat(dir.path(), "/file"), kUuid, "a").ok());
}

TEST(SocketLock, IsBesideTheSocket) {
  TempDir dir;
  const std::string socket = absl::StrCat(dir.path(), "/broker.sock");
  const auto first = LockSocketPath(socket);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(IsFileLocked(SocketLockPath(socket)).value());
  const auto second = LockSocketPath(socket);
  ASSERT_TRUE(absl::IsAlreadyExists(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("unix:", socket)));
}

}  // namespace
}  // namespace vrambroker::observe
