#include "broker/observe/probe_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/poll.h"

namespace vrambroker::observe {
namespace {

using ::testing::HasSubstr;

constexpr ProbeThread::Options kSeldom{absl::Hours(1)};

// A device whose readings count up, and which can be held in a reading.
struct Device {
  std::atomic<int> begun{0};
  std::atomic<bool> hold{false};
  std::atomic<bool> broken{false};
};

class CountingProbe : public DriverProbe {
 public:
  CountingProbe(std::string uuid, Device* device) : uuid_(std::move(uuid)), device_(device) {}
  const std::string& Uuid() const override { return uuid_; }
  absl::StatusOr<DriverReading> Read() override {
    DriverReading reading;
    reading.total_used_bytes = ++device_->begun;
    EXPECT_TRUE(WaitFor([&] { return !device_->hold; }));
    if (device_->broken) return absl::UnavailableError("lost");
    return reading;
  }

 private:
  const std::string uuid_;
  Device* const device_;
};

// What came back, in order.
class Readings {
 public:
  ProbeThread::Callback Callback() {
    return [this](const std::string& uuid, const absl::StatusOr<DriverReading>& reading) {
      std::lock_guard<std::mutex> lock(mutex_);
      all_.push_back({uuid, reading.ok() ? reading->total_used_bytes : -1});
    };
  }
  size_t Count(const std::string& uuid) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::count_if(all_.begin(), all_.end(), [&](auto& r) { return r.first == uuid; });
  }
  std::vector<std::pair<std::string, int64_t>> All() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, int64_t>> all_;
};

std::vector<std::unique_ptr<DriverProbe>> Probes(std::map<std::string, Device>* devices) {
  std::vector<std::unique_ptr<DriverProbe>> probes;
  for (auto& [uuid, device] : *devices) {
    probes.push_back(std::make_unique<CountingProbe>(uuid, &device));
  }
  return probes;
}

TEST(ProbeThread, ReadsEveryDeviceAtOnceThenByItsInterval) {
  std::map<std::string, Device> devices;
  devices["a"];
  devices["b"];
  Readings readings;
  auto thread = ProbeThread::Start(Probes(&devices), readings.Callback(), {absl::Milliseconds(5)});
  ASSERT_TRUE(thread.ok()) << thread.status();
  EXPECT_TRUE(WaitFor([&] { return readings.Count("a") >= 4 && readings.Count("b") >= 4; }));
}

TEST(ProbeThread, ARequestReadsBeforeTheInterval) {
  std::map<std::string, Device> devices;
  devices["a"];
  devices["b"];
  Readings readings;
  auto thread = ProbeThread::Start(Probes(&devices), readings.Callback(), kSeldom);
  ASSERT_TRUE(thread.ok()) << thread.status();
  ASSERT_TRUE(WaitFor([&] { return readings.All().size() == 2; }));
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE((*thread)->RequestReading("b").ok());
    ASSERT_TRUE(WaitFor([&] { return readings.Count("b") == i + 2; }));
  }
  EXPECT_EQ(readings.Count("a"), 1u);
  EXPECT_TRUE(absl::IsNotFound((*thread)->RequestReading("c")));
}

TEST(ProbeThread, RequestsDuringAReadingAreOneMoreReading) {
  std::map<std::string, Device> devices;
  Device& device = devices["a"];
  device.hold = true;
  Readings readings;
  auto thread = ProbeThread::Start(Probes(&devices), readings.Callback(), kSeldom);
  ASSERT_TRUE(thread.ok()) << thread.status();
  ASSERT_TRUE(WaitFor([&] { return device.begun == 1; }));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*thread)->RequestReading("a").ok());
  device.hold = false;
  ASSERT_TRUE(WaitFor([&] { return readings.Count("a") == 2; }));
  // Any further one would be before this one.
  ASSERT_TRUE((*thread)->RequestReading("a").ok());
  ASSERT_TRUE(WaitFor([&] { return readings.Count("a") == 3; }));
  EXPECT_EQ(device.begun, 3);
}

TEST(ProbeThread, ADeviceAskedForWithoutEndKeepsNoOtherFromItsTurn) {
  std::map<std::string, Device> devices;
  devices["a"];
  devices["b"];
  Readings readings;
  std::atomic<ProbeThread*> self{nullptr};
  auto keep = readings.Callback();
  auto thread = ProbeThread::Start(
      Probes(&devices),
      [&](const std::string& uuid, const absl::StatusOr<DriverReading>& reading) {
        keep(uuid, reading);
        if (self != nullptr) (void)self.load()->RequestReading("a");
      },
      kSeldom);
  ASSERT_TRUE(thread.ok()) << thread.status();
  self = thread->get();
  ASSERT_TRUE((*thread)->RequestReading("a").ok());
  ASSERT_TRUE(WaitFor([&] { return readings.Count("a") > 10; }));
  const size_t before = readings.Count("b");
  ASSERT_TRUE((*thread)->RequestReading("b").ok());
  EXPECT_TRUE(WaitFor([&] { return readings.Count("b") > before; }));
  self = nullptr;
}

TEST(ProbeThread, AFailureIsHandedOnAndReadAgain) {
  std::map<std::string, Device> devices;
  devices["a"].broken = true;
  Readings readings;
  auto thread = ProbeThread::Start(Probes(&devices), readings.Callback(), {absl::Milliseconds(1)});
  ASSERT_TRUE(thread.ok()) << thread.status();
  ASSERT_TRUE(WaitFor([&] { return readings.Count("a") >= 2; }));
  EXPECT_EQ(readings.All().front().second, -1);
  devices["a"].broken = false;
  EXPECT_TRUE(WaitFor([&] { return readings.All().back().second > 0; }));
}

TEST(ProbeThread, StopsPromptlyAndSilently) {
  std::map<std::string, Device> devices;
  Device& device = devices["a"];
  Readings readings;
  auto thread = ProbeThread::Start(Probes(&devices), readings.Callback(), kSeldom);
  ASSERT_TRUE(thread.ok()) << thread.status();
  ASSERT_TRUE(WaitFor([&] { return readings.Count("a") == 1; }));
  const absl::Time before = absl::Now();
  (*thread)->Stop();
  EXPECT_LT(absl::Now() - before, absl::Minutes(1));  // An hour is the interval.
  EXPECT_TRUE(absl::IsCancelled((*thread)->RequestReading("a")));
  (*thread)->Stop();
  EXPECT_EQ(device.begun, 1);
  EXPECT_EQ(readings.Count("a"), 1u);
}

TEST(ProbeThread, NoReadingIsHandedOnAfterStop) {
  std::map<std::string, Device> devices;
  Device& device = devices["a"];
  device.hold = true;
  Readings readings;
  auto thread = ProbeThread::Start(Probes(&devices), readings.Callback(), kSeldom);
  ASSERT_TRUE(thread.ok()) << thread.status();
  ASSERT_TRUE(WaitFor([&] { return device.begun == 1; }));
  std::thread stop([&] { (*thread)->Stop(); });
  ASSERT_TRUE(WaitFor([&] { return absl::IsCancelled((*thread)->RequestReading("a")); }));
  device.hold = false;
  stop.join();
  EXPECT_EQ(readings.Count("a"), 0u);
}

TEST(ProbeThread, RefusesWhatItCannotDo) {
  std::map<std::string, Device> devices;
  devices["a"];
  Readings readings;
  const auto refused =
      ProbeThread::Start(Probes(&devices), readings.Callback(), {absl::Seconds(0)});
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("above 0"));
  EXPECT_TRUE(absl::IsInvalidArgument(ProbeThread::Start(Probes(&devices), nullptr, {}).status()));
  auto twice = Probes(&devices);
  twice.push_back(std::move(Probes(&devices)[0]));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ProbeThread::Start(std::move(twice), readings.Callback(), {}).status()));
  std::vector<std::unique_ptr<DriverProbe>> none(1);
  EXPECT_TRUE(absl::IsInvalidArgument(
      ProbeThread::Start(std::move(none), readings.Callback(), {}).status()));
  std::map<std::string, Device> many;
  for (size_t i = 0; i <= ProbeThread::kMaxProbes; ++i) many[std::to_string(i)];
  EXPECT_TRUE(absl::IsResourceExhausted(
      ProbeThread::Start(Probes(&many), readings.Callback(), {}).status()));
  EXPECT_TRUE(ProbeThread::Start({}, readings.Callback(), {}).ok());
}

}  // namespace
}  // namespace vrambroker::observe
