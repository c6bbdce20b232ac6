// A broker that is killed and started again while many workers are at work.
#include <gmock/gmock.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/harness.h"

namespace vrambroker::e2e {
namespace {

constexpr int kWorkers = 50;
constexpr int64_t kCapacity = 24 * kMiB;
constexpr absl::Duration kWindow = absl::Seconds(20);

class RestartTest : public E2eTest {
 protected:
  // Uses of every worker, one after the other, until Finish(); all kept going at once.
  void KeepGoing(StageWorker* worker) {
    threads_.emplace_back([this, worker] {
      while (!finished_) {
        const std::unique_ptr<StageCall> call =
            worker->Begin(Stage(128 * 1024), absl::Seconds(120));
        if (!call->status().ok()) {
          std::lock_guard<std::mutex> lock(mutex_);
          failures_.push_back(absl::StrCat(worker->name(), ": ", call->status().error_message()));
          return;
        }
        ++uses_;
      }
    });
  }
  void Finish() {
    finished_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  ~RestartTest() override { Finish(); }

  int Attached() {
    const v1::Picture picture = Picture();
    int attached = 0;
    for (const v1::SessionPicture& s : picture.sessions()) {
      attached += s.state() == v1::SESSION_STATE_ATTACHED ? 1 : 0;
    }
    return attached;
  }
  // Nothing is granted twice: what is on the card fits, and the ledger agrees with it.
  void ExpectNothingOverGranted() {
    const v1::DevicePicture device = Device();
    EXPECT_EQ(device.overcommitted_bytes(), 0) << device.DebugString();
    EXPECT_LE(UsedOnCard(), kCapacity);
  }

  std::mutex mutex_;
  std::vector<std::string> failures_;
  std::atomic<int> uses_{0};
  std::atomic<bool> finished_{false};
  std::vector<std::thread> threads_;
};

TEST_F(RestartTest, FiftyWorkersAtWorkAreAllBackWithinTheWindowAndNothingIsGrantedTwice) {
  CardSetup card;
  card.capacity = kCapacity;
  MakeCard(card);
  const std::vector<std::string> flags = {
      absl::StrCat("--recovery-window=", absl::FormatDuration(kWindow))};
  StartBroker(flags);
  std::vector<StageWorker*> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.push_back(&BeginWorker(absl::StrCat("w", i), {.layers = 4, .layer_bytes = kMiB / 4}));
  }
  ASSERT_TRUE(Eventually([&] { return Attached() == kWorkers; }, absl::Seconds(40)));
  for (StageWorker* worker : workers) {
    ASSERT_TRUE(Eventually([&] { return Ready(worker->name()); }, absl::Seconds(40)));
    KeepGoing(worker);
  }
  ASSERT_TRUE(Eventually([&] { return uses_ >= 2 * kWorkers; }, absl::Seconds(40)));
  ExpectNothingOverGranted();

  broker().Kill();
  StartBroker(flags);
  const absl::Time answered = absl::Now();
  EXPECT_TRUE(Eventually(
      [&] {
        ExpectNothingOverGranted();
        return Attached() == kWorkers && !Picture().has_recovery_left();
      },
      kWindow));
  const absl::Duration back = absl::Now() - answered;
  RecordProperty("all_back_ms", static_cast<int>(absl::ToInt64Milliseconds(back)));
  std::cout << kWorkers << " workers were back " << absl::FormatDuration(back)
            << " after the broker's first answer\n";
  const int before = uses_;
  EXPECT_TRUE(Eventually(
      [&] {
        ExpectNothingOverGranted();
        return uses_ >= before + 2 * kWorkers;
      },
      absl::Seconds(40)));
  Finish();
  EXPECT_TRUE(failures_.empty()) << failures_.size() << " failed, the first: " << failures_[0];
  const v1::Picture picture = Picture();
  for (const v1::SessionPicture& s : picture.sessions()) {
    EXPECT_EQ(s.recorded_bytes(), 0) << s.worker();
  }
}

// One broker after the other is killed between a decision, its record and its answer, early and
// late in its life; the last one lives.
TEST_F(RestartTest, ABrokerMayBeKilledBetweenADecisionItsRecordAndItsAnswer) {
  CardSetup card;
  card.capacity = 8 * kMiB;
  MakeCard(card);
  StartBroker();
  std::vector<StageWorker*> workers;
  for (int i = 0; i < 6; ++i) {
    workers.push_back(&BeginWorker(absl::StrCat("w", i), {.layers = 8, .layer_bytes = kMiB / 4}));
  }
  for (StageWorker* worker : workers) {
    ASSERT_TRUE(Eventually([&] { return Ready(worker->name()); }, absl::Seconds(40)));
    KeepGoing(worker);
  }
  broker().Kill();
  for (const char* point : {"decided", "recorded", "answered"}) {
    for (int count : {1, 4, 11, 30}) {
      SCOPED_TRACE(absl::StrCat(point, ":", count));
      BrokerProgram("killed-brokerd", {absl::StrCat(point, ":", count)});
      BeginBroker();
      const absl::Status ended = broker().Join(absl::Seconds(20));
      ASSERT_THAT(std::string(ended.message()), testing::HasSubstr("signal 9")) << broker().Log();
      EXPECT_LE(UsedOnCard(), card.capacity);
    }
  }
  BrokerProgram("vram-brokerd");
  StartBroker();
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Device().overcommitted_bytes(), 0);
    return Attached() == 6 && !Picture().has_recovery_left();
  }));
  const int before = uses_;
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Device().overcommitted_bytes(), 0);
    return uses_ >= before + 24;
  }));
  Finish();
  EXPECT_TRUE(failures_.empty()) << failures_.size() << " failed, the first: " << failures_[0];
}

}  // namespace
}  // namespace vrambroker::e2e
