// A weights file that is cut short while it is mapped: the use fails, the process lives.
#include "stage_workers/offload/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What the component, its pool and the card say agrees.
void ExpectBooked(Rig& rig, const StreamedComponent& component) {
  const PoolStats stats = rig.pool->Stats();
  EXPECT_EQ(stats.used_bytes, component.bytes().total());
  EXPECT_EQ(stats.used_bytes + stats.pooled_bytes, rig.OnCard());
}

absl::Status RunPass(StreamedComponent& component) {
  Lanes lanes(64, 7);
  return component.RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).status();
}

void ExpectCutShort(const absl::Status& status, const std::string& path, int64_t expected,
                    int64_t found) {
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("component component: " + path),
                    HasSubstr(absl::StrCat(expected, " bytes were there")),
                    HasSubstr(absl::StrCat(found, " are there now"))));
}

TEST(MappedFile, AUseOfAFileThatWasCutShortFailsAndGivesItsBytesBack) {
  for (const int resident : {0, 5, 12}) {
    Rig rig(64 << 20, {.caching = false});
    std::unique_ptr<StreamedComponent> component = Placed(rig);
    const std::string path = rig.folder.File("weights.safetensors");
    const int64_t whole = static_cast<int64_t>(std::filesystem::file_size(path));
    Use(*component, 12, 1, 3);
    ASSERT_TRUE(component->BeginUse({.resident_layers = resident, .passes = 2}).ok());
    std::filesystem::resize_file(path, whole / 3);
    ExpectCutShort(RunPass(*component), path, whole, whole / 3);
    // What is partly there is reported until the use is ended.
    EXPECT_GE(component->bytes().held, component->PrefixBytes(std::min(resident, 3)));
    ExpectBooked(rig, *component);
    EXPECT_TRUE(component->ReleaseAfterUse(resident).ok());
    // What had been loaded from the whole file is good, and nothing else.
    EXPECT_LE(component->held_layers(), std::min(resident, 3));
    EXPECT_EQ(component->bytes().window, 0);
    ExpectBooked(rig, *component);
    ExpectCutShort(component->LoadNext(0).status(), path, whole, whole / 3);
    EXPECT_TRUE(component->ReleaseTo(0).ok());
    EXPECT_EQ(component->bytes().held, 0);
    ExpectBooked(rig, *component);
  }
}

TEST(MappedFile, ACutWithinTheLastPageIsSeenThoughNothingFaults) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  const std::string path = rig.folder.File("weights.safetensors");
  const int64_t whole = static_cast<int64_t>(std::filesystem::file_size(path));
  std::filesystem::resize_file(path, whole - 1);
  ASSERT_TRUE(component->BeginUse({}).ok());
  ExpectCutShort(RunPass(*component), path, whole, whole - 1);
  EXPECT_TRUE(component->ReleaseAfterUse().ok());
}

TEST(MappedFile, WhatWasReadOfACutFileNeverCountsEvenWhenItGrowsAgain) {
  TestFolder folder;
  const std::string path = folder.File("bytes");
  WriteFile(path, std::string(100'000, 'x'));
  const int fd = open(path.c_str(), O_RDONLY);
  const absl::StatusOr<std::unique_ptr<MappedFile>> map = MappedFile::Map(fd, 100'000, path);
  close(fd);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_TRUE((*map)->CheckWhole().ok());
  std::filesystem::resize_file(path, 10);
  EXPECT_EQ((*map)->data()[90'000], 0);
  (*map)->data()[95'000] = 'y';
  EXPECT_EQ((*map)->data()[95'000], 'y');
  std::filesystem::resize_file(path, 100'000);
  EXPECT_TRUE(absl::IsDataLoss((*map)->CheckWhole()));
}

TEST(MappedFile, SoManyAtATimeAndNoMore) {
  TestFolder folder;
  const std::string path = folder.File("bytes");
  WriteFile(path, "some");
  const int fd = open(path.c_str(), O_RDONLY);
  std::vector<std::unique_ptr<MappedFile>> maps;
  for (int i = 0; i < kMaxMappedFiles; ++i) {
    absl::StatusOr<std::unique_ptr<MappedFile>> map = MappedFile::Map(fd, 4, path);
    ASSERT_TRUE(map.ok()) << map.status();
    maps.push_back(*std::move(map));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(MappedFile::Map(fd, 4, path).status()));
  maps.pop_back();
  EXPECT_TRUE(MappedFile::Map(fd, 4, path).ok());
  close(fd);
}

// Maps a file beside MappedFile, cuts it and reads it.
void TouchAForeignMapping() {
  TestFolder folder;
  const std::string path = folder.File("bytes");
  WriteFile(path, std::string(100'000, 'x'));
  const int fd = open(path.c_str(), O_RDONLY);
  const absl::StatusOr<std::unique_ptr<MappedFile>> own = MappedFile::Map(fd, 100'000, path);
  const auto* foreign =
      static_cast<const volatile char*>(mmap(nullptr, 100'000, PROT_READ, MAP_PRIVATE, fd, 0));
  std::filesystem::resize_file(path, 10);
  (void)foreign[90'000];
}

// A sanitizer has a handler of its own from the start, which reports and exits.
bool EndedAsBefore(int status) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (WIFEXITED(status)) return WEXITSTATUS(status) != 0;
#endif
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

TEST(MappedFileDeathTest, ABusErrorOfSomebodyElseEndsTheProcessAsBefore) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(TouchAForeignMapping(), EndedAsBefore, "");
}

}  // namespace
}  // namespace vrambroker::offload
