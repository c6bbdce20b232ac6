#include "broker/observe/charge_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace vrambroker::observe {
namespace {

using core::Bytes;
using core::Owner;
using testing::HasSubstr;

constexpr char kUuid[] = "GPU-1";

Owner OwnerOf(const std::string& worker, int32_t pid, int64_t charge) {
  return {worker, {pid, static_cast<uint64_t>(pid) * 3}, 1, kUuid, Bytes(charge), false};
}

class ChargeRecordTest : public testing::Test {
 protected:
  ChargeRecordTest() {
    std::string name = testing::TempDir() + "/charges-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ChargeRecordTest() override { std::filesystem::remove_all(folder_); }

  void Open() {
    record_.reset();
    auto opened = ChargeRecord::Open(folder_, kUuid);
    ASSERT_TRUE(opened.ok()) << opened.status();
    record_ = *std::move(opened);
  }
  // As after a kill: nothing is said at the end.
  void Forget() { forgotten_.push_back(std::move(record_)); }
  std::string path() const { return ChargeRecord::PathOf(folder_, kUuid); }
  std::optional<Owner> Find(const std::string& worker) const {
    for (const Owner& owner : record_->found()) {
      if (owner.worker == worker) return owner;
    }
    return std::nullopt;
  }

  std::string folder_;
  std::unique_ptr<ChargeRecord> record_;
  std::vector<std::unique_ptr<ChargeRecord>> forgotten_;  // until the folder is gone
};

TEST_F(ChargeRecordTest, WhatWasPutLastIsFound) {
  Open();
  EXPECT_TRUE(record_->found().empty());
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, 5)).ok());
  ASSERT_TRUE(record_->Put(OwnerOf("b", 11, 6)).ok());
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, 7)).ok());
  record_->SetProvable("b", {11, 33});
  record_->PutEpoch(42);
  Open();
  EXPECT_EQ(record_->found().size(), 2u);
  EXPECT_EQ(record_->newest_epoch(), 42u);
  ASSERT_TRUE(Find("a").has_value());
  EXPECT_EQ(Find("a")->charge, Bytes(7));
  EXPECT_EQ(Find("a")->process.pid, 10);
  EXPECT_EQ(Find("a")->process.start_time, 30u);
  EXPECT_EQ(Find("a")->device, kUuid);
  EXPECT_FALSE(Find("a")->provable);
  EXPECT_TRUE(Find("b")->provable);
}

TEST_F(ChargeRecordTest, WhoIsForgottenIsNotFoundAndAnEmptyRecordLeavesNoFile) {
  Open();
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, 5)).ok());
  Open();
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, 0)).ok());
  ASSERT_TRUE(record_->Put(OwnerOf("never", 11, 0)).ok());
  Open();
  EXPECT_TRUE(record_->found().empty());
  record_.reset();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(ChargeRecordTest, HasRoomForSoManyAndTakesBackWhatIsForgotten) {
  Open();
  for (size_t i = 0; i < ChargeRecord::kSlots; ++i) {
    ASSERT_TRUE(record_->Put(OwnerOf(absl::StrCat("w", i), static_cast<int32_t>(i + 1), 1)).ok());
  }
  const absl::Status full = record_->Put(OwnerOf("more", 9999, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_TRUE(record_->Put(OwnerOf("w5", 6, 2)).ok()) << "it has its place";
  EXPECT_TRUE(record_->Put(OwnerOf("w5", 6, 0)).ok());
  EXPECT_TRUE(record_->Put(OwnerOf("more", 9999, 1)).ok());
  Open();
  EXPECT_EQ(record_->found().size(), ChargeRecord::kSlots);
}

TEST_F(ChargeRecordTest, ANameThatIsTooLongIsRefused) {
  Open();
  EXPECT_TRUE(record_->Put(OwnerOf(std::string(128, 'a'), 10, 5)).ok());
  const absl::Status status = record_->Put(OwnerOf(std::string(129, 'a'), 11, 5));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("129 bytes, at most 128"));
  Open();
  EXPECT_EQ(record_->found().size(), 1u);
}

TEST_F(ChargeRecordTest, AWriteThatBrokeOffLeavesWhatWasBefore) {
  Open();
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, 5)).ok());
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, 6)).ok());
  Forget();
  // One byte after the other of the newer version is spoilt: the older one counts.
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), {});
  const size_t name = all.find(std::string("a\0\0\0", 4));
  ASSERT_NE(name, std::string::npos);
  const size_t second = all.find(std::string("a\0\0\0", 4), name + 1);
  ASSERT_NE(second, std::string::npos);
  file.seekp(static_cast<std::streamoff>(second));
  file.put('b');
  file.close();
  Open();
  ASSERT_TRUE(Find("a").has_value());
  EXPECT_EQ(Find("a")->charge, Bytes(5));
}

TEST_F(ChargeRecordTest, WhatIsNoRecordOfThisBootIsMadeAnewAndSaid) {
  std::ofstream(path()) << "something else";
  Open();
  EXPECT_THAT(record_->why(), HasSubstr("14 bytes"));
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, 5)).ok());
  Forget();
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(16);  // the boot's id, after magic and epoch
  file.put('?');
  file.close();
  Open();
  EXPECT_THAT(record_->why(), HasSubstr("another boot"));
  EXPECT_TRUE(record_->found().empty());
  Forget();
  std::fstream magic(path(), std::ios::in | std::ios::out | std::ios::binary);
  magic.put('?');
  magic.close();
  Open();
  EXPECT_THAT(record_->why(), HasSubstr("another version"));
}

TEST_F(ChargeRecordTest, WhatNoBrokerHasWrittenIsNotRead) {
  Open();
  ASSERT_TRUE(record_->Put(OwnerOf("a", 10, int64_t{1} << 47)).ok());
  ASSERT_TRUE(record_->Put(OwnerOf("b\x01", 11, 5)).ok());
  ASSERT_TRUE(record_->Put(OwnerOf("c", 12, 5)).ok());
  Open();
  EXPECT_EQ(record_->found().size(), 1u);
  EXPECT_TRUE(Find("c").has_value());
}

TEST_F(ChargeRecordTest, AFileThatAnotherHasMadeSinceIsNotRemoved) {
  Open();
  Forget();
  std::filesystem::remove(path());
  Open();
  forgotten_.clear();
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(ChargeRecordTest, AFolderThatCannotBeUsedIsNamed) {
  std::ofstream(folder_ + "/file") << "x";
  const auto opened = ChargeRecord::Open(folder_ + "/file", kUuid);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr(folder_ + "/file"));
}

// What a process had put when it was killed, at any point, is found: what it said it had put, or
// what it was putting.
TEST_F(ChargeRecordTest, HoldsThroughAKillAtAnyPoint) {
  for (int round = 0; round < 20; ++round) {
    int said[2];
    ASSERT_EQ(pipe(said), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto record = ChargeRecord::Open(folder_, kUuid);
      if (!record.ok()) _exit(1);
      for (int64_t charge = 1;; ++charge) {
        if (!(*record)->Put(OwnerOf("a", 10, charge)).ok()) _exit(1);
        if (write(said[1], &charge, sizeof(charge)) != sizeof(charge)) _exit(1);
      }
    }
    close(said[1]);
    int64_t last = 0;
    for (int i = 0; i < 50 + 37 * round; ++i) {
      ASSERT_EQ(read(said[0], &last, sizeof(last)), static_cast<ssize_t>(sizeof(last)));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(said[0], &last, sizeof(last)) == static_cast<ssize_t>(sizeof(last))) {
    }
    close(said[0]);
    Open();
    ASSERT_TRUE(Find("a").has_value());
    EXPECT_GE(Find("a")->charge, Bytes(last));
    EXPECT_LE(Find("a")->charge, Bytes(last + 1));
    record_.reset();
  }
}

}  // namespace
}  // namespace vrambroker::observe
