#include "broker/observe/driver_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/poll.h"
#include "tests/unit/observe/child.h"

namespace vrambroker::observe {
namespace {

using card::EmulatedCard;

constexpr int64_t kMiB = 1 << 20;

class ProbeTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(EmulatedCard::Remove(name_).ok()); }

  std::unique_ptr<EmulatedProbe> OpenProbe() {
    auto probe = EmulatedProbe::Open(name_);
    EXPECT_TRUE(probe.ok()) << probe.status();
    return *std::move(probe);
  }
  static int64_t BytesOf(const DriverReading& reading, int32_t pid) {
    const auto found =
        std::find_if(reading.processes.begin(), reading.processes.end(),
                     [&](const ProcessUsage& process) { return process.pid == pid; });
    return found == reading.processes.end() ? 0 : found->bytes;
  }

  const std::string name_ = absl::StrCat("observe-probe-", getpid());
};

class EmulatedProbeTest : public ProbeTest {
 protected:
  void SetUp() override {
    auto made = EmulatedCard::Create(name_, {.capacity_bytes = 64 * kMiB});
    ASSERT_TRUE(made.ok()) << made.status();
    card_ = *std::move(made);
  }

  std::unique_ptr<EmulatedCard> card_;
};

TEST_F(EmulatedProbeTest, ReadsWhatProcessesHold) {
  auto probe = OpenProbe();
  EXPECT_EQ(probe->Uuid(), absl::StrCat("emulated:", name_));
  auto reading = probe->Read();
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_EQ(reading->capacity_bytes, 64 * kMiB);
  EXPECT_EQ(reading->total_used_bytes, 0);
  EXPECT_EQ(reading->driver_reserved_bytes, 0);

  const auto buffer = card_->Allocate(8 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const absl::Time before = absl::Now();
  reading = probe->Read();
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_TRUE(reading->by_process);
  EXPECT_EQ(reading->total_used_bytes, 8 * kMiB);
  EXPECT_EQ(BytesOf(*reading, getpid()), 8 * kMiB);
  EXPECT_LE(before, reading->begin);
  EXPECT_LE(reading->begin, reading->end);
  EXPECT_LE(reading->end, absl::Now());
}

// The child is forked before this process has a thread, as it will start one itself.
TEST_F(ProbeTest, TheBytesOfADeadProcessGo) {
  Child child([&] {
    static std::unique_ptr<EmulatedCard> card;
    auto made = EmulatedCard::Create(name_, {.capacity_bytes = 64 * kMiB});
    if (!made.ok()) return false;
    card = *std::move(made);
    return card->Allocate(4 * kMiB).ok();
  });
  ASSERT_TRUE(child.worked());
  auto probe = OpenProbe();
  const auto reading = probe->Read();
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_EQ(BytesOf(*reading, child.pid()), 4 * kMiB);
  child.Kill();
  EXPECT_TRUE(WaitFor([&] {
    const auto later = probe->Read();
    return later.ok() && later->total_used_bytes == 0 && BytesOf(*later, child.pid()) == 0;
  }));
}

TEST(EmulatedProbe, NeedsTheCard) {
  EXPECT_TRUE(absl::IsNotFound(EmulatedProbe::Open("observe-no-such-card").status()));
}

}  // namespace
}  // namespace vrambroker::observe
