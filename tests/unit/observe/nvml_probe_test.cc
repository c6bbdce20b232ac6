#include "broker/observe/nvml_probe.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "tests/unit/observe/nvml_double.h"

namespace vrambroker::observe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr unsigned long long kGiB = 1ull << 30;
constexpr char kDouble[] = NVML_DOUBLE_PATH;
constexpr char kEmptyLibrary[] = NVML_EMPTY_PATH;

auto IsProcess(int32_t pid, int64_t bytes) {
  return AllOf(Field(&ProcessUsage::pid, pid), Field(&ProcessUsage::bytes, bytes));
}
auto IsDevice(const std::string& uuid, int64_t bytes) {
  return AllOf(Field(&NvmlDevice::uuid, uuid), Field(&NvmlDevice::capacity_bytes, bytes));
}

class NvmlProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(kDouble, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    auto* find = reinterpret_cast<decltype(&NvmlDoubleState)>(dlsym(library_, kNvmlDoubleState));
    ASSERT_NE(find, nullptr);
    double_ = find();
    *double_ = NvmlDouble();
    double_->devices = {{"GPU-a", 24 * kGiB, kGiB / 2, 3 * kGiB, {{70, kGiB}, {7, 2 * kGiB}}, {}},
                        {"GPU-b", 32 * kGiB, 0, 0, {}, {}}};
  }
  void TearDown() override { dlclose(library_); }

  std::unique_ptr<NvmlProbe> OpenProbe(const std::string& uuid = "GPU-a") {
    auto probe = NvmlProbe::Open(uuid, kDouble);
    EXPECT_TRUE(probe.ok()) << probe.status();
    return *std::move(probe);
  }
  DriverReading ReadOnce() {
    auto reading = OpenProbe()->Read();
    EXPECT_TRUE(reading.ok()) << reading.status();
    return reading.value_or(DriverReading());
  }

  void* library_ = nullptr;
  NvmlDouble* double_ = nullptr;
};

TEST_F(NvmlProbeTest, ReadsMemoryWithTheDriversPartAndProcessesInOrder) {
  const absl::Time before = absl::Now();
  const DriverReading reading = ReadOnce();
  EXPECT_EQ(reading.capacity_bytes, static_cast<int64_t>(24 * kGiB));
  EXPECT_EQ(reading.driver_reserved_bytes, static_cast<int64_t>(kGiB / 2));
  EXPECT_EQ(reading.total_used_bytes, static_cast<int64_t>(3 * kGiB + kGiB / 2));
  EXPECT_TRUE(reading.by_process);
  EXPECT_THAT(reading.processes, ElementsAre(IsProcess(7, 2 * kGiB), IsProcess(70, kGiB)));
  EXPECT_GE(reading.begin, before);
  EXPECT_GE(reading.end, reading.begin);
  EXPECT_LE(reading.end, absl::Now());
  EXPECT_EQ(reading.unlisted_bytes, static_cast<int64_t>(kGiB / 2));
  EXPECT_EQ(double_->memory_v2_calls, 2);
  EXPECT_EQ(double_->memory_calls, 0);
}

TEST_F(NvmlProbeTest, FallsBackToTheOlderMemoryCall) {
  double_->memory_v2_result = 25;
  const DriverReading reading = ReadOnce();
  EXPECT_EQ(reading.capacity_bytes, static_cast<int64_t>(24 * kGiB));
  EXPECT_EQ(reading.total_used_bytes, static_cast<int64_t>(3 * kGiB + kGiB / 2));
  EXPECT_EQ(reading.driver_reserved_bytes, 0);
  EXPECT_EQ(double_->memory_calls, 2);
}

TEST_F(NvmlProbeTest, WhatNobodyOnTheListHasIsUnlisted) {
  double_->devices[0].processes.clear();
  const DriverReading hidden = ReadOnce();
  EXPECT_TRUE(hidden.by_process);
  EXPECT_EQ(hidden.unlisted_bytes, static_cast<int64_t>(3 * kGiB + kGiB / 2));
  // A list that came after the total may have more.
  double_->devices[0].processes.push_back({7, 9 * kGiB});
  EXPECT_EQ(ReadOnce().unlisted_bytes, 0);
}

TEST_F(NvmlProbeTest, TotalsOnlyWhereProcessesAreNotTold) {
  double_->processes_result = 4;
  EXPECT_FALSE(ReadOnce().by_process);
  double_->processes_result = 0;
  double_->devices[0].processes.push_back({9, ~0ull});
  const DriverReading reading = ReadOnce();
  EXPECT_FALSE(reading.by_process);
  EXPECT_TRUE(reading.processes.empty());
  EXPECT_EQ(reading.total_used_bytes, static_cast<int64_t>(3 * kGiB + kGiB / 2));
}

TEST_F(NvmlProbeTest, AProcessWithTwoContextsIsOne) {
  double_->devices[0].processes.push_back({7, kGiB});
  EXPECT_THAT(ReadOnce().processes, ElementsAre(IsProcess(7, 3 * kGiB), IsProcess(70, kGiB)));
}

TEST_F(NvmlProbeTest, AListThatGrowsIsReadAgainAFewTimes) {
  auto& processes = double_->devices[0].processes;
  processes.assign(65, {100, 1});
  double_->growths = 1;
  const DriverReading reading = ReadOnce();
  EXPECT_TRUE(reading.by_process);
  EXPECT_EQ(double_->processes_calls, 3);
  int64_t bytes = 0;
  for (const ProcessUsage& process : reading.processes) bytes += process.bytes;
  EXPECT_EQ(bytes, 65 + 17);
  // One that grows faster than it is read, or past the bound, is not by process.
  processes.assign(65, {100, 1});
  double_->growths = 100;
  EXPECT_FALSE(ReadOnce().by_process);
  double_->growths = 0;
  processes.assign(4097, {100, 1});
  EXPECT_FALSE(ReadOnce().by_process);
}

TEST_F(NvmlProbeTest, AFailedOrSenselessReadingIsAnError) {
  auto probe = OpenProbe();
  double_->memory_v2_result = double_->memory_result = 15;
  const auto failed = probe->Read();
  EXPECT_TRUE(absl::IsUnavailable(failed.status()));
  EXPECT_THAT(std::string(failed.status().message()),
              AllOf(HasSubstr("nvmlDeviceGetMemoryInfo"), HasSubstr("15")));
  double_->memory_v2_result = 0;
  double_->devices[0].used = 25 * kGiB;
  EXPECT_TRUE(absl::IsInternal(probe->Read().status()));
}

TEST_F(NvmlProbeTest, ListsDevicesAndInstances) {
  double_->devices[1].instances = {{"MIG-1", 8 * kGiB, 0, 0, {}, {}},
                                   {"MIG-2", 16 * kGiB, 0, kGiB, {}, {}}};
  const auto devices = ListNvmlDevices(kDouble);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(*devices, ElementsAre(IsDevice("GPU-a", 24 * kGiB), IsDevice("MIG-1", 8 * kGiB),
                                    IsDevice("MIG-2", 16 * kGiB)));
  auto probe = OpenProbe("MIG-2");
  EXPECT_EQ(probe->Uuid(), "MIG-2");
  EXPECT_EQ(probe->Read().value().total_used_bytes, static_cast<int64_t>(kGiB));
  double_->devices.clear();
  EXPECT_TRUE(ListNvmlDevices(kDouble).value().empty());
}

TEST_F(NvmlProbeTest, AnUnknownUuidNamesThoseThereAre) {
  const auto probe = NvmlProbe::Open("GPU-c", kDouble);
  EXPECT_TRUE(absl::IsNotFound(probe.status())) << probe.status();
  EXPECT_THAT(std::string(probe.status().message()),
              AllOf(HasSubstr("GPU-c"), HasSubstr("GPU-a, GPU-b")));
}

TEST_F(NvmlProbeTest, EachInitialisationIsShutDown) {
  {
    auto library = LoadNvml(kDouble);
    ASSERT_TRUE(library.ok());
    auto a = NvmlProbe::Open(*library, "GPU-a");
    auto b = NvmlProbe::Open(*library, "GPU-b");
    ASSERT_TRUE(a.ok() && b.ok());
    library->reset();
    EXPECT_TRUE((*b)->Read().ok());
    EXPECT_EQ(double_->inits, 1);
    EXPECT_EQ(double_->shutdowns, 0);
  }
  EXPECT_EQ(double_->shutdowns, 1);
}

TEST_F(NvmlProbeTest, WithoutADriverItIsUnavailableAndNotShutDown) {
  double_->init_result = 9;
  const auto devices = ListNvmlDevices(kDouble);
  EXPECT_TRUE(absl::IsUnavailable(devices.status()));
  EXPECT_THAT(std::string(devices.status().message()),
              AllOf(HasSubstr("nvmlInit_v2"), HasSubstr(kDouble), HasSubstr("Driver Not Loaded")));
  EXPECT_EQ(double_->shutdowns, 0);
}

TEST(NvmlLibrary, SaysWhatItTriedWhereThereIsNone) {
  const auto missing = ListNvmlDevices("libno-such-driver.so.1");
  EXPECT_TRUE(absl::IsUnavailable(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("libno-such-driver.so.1"), HasSubstr("emulated")));
  const auto empty = ListNvmlDevices(kEmptyLibrary);
  EXPECT_TRUE(absl::IsUnavailable(empty.status()));
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("has no nvmlInit_v2"));
}

// Whatever this machine has, the real library's answer is devices with their memory, or a status.
TEST(NvmlLibrary, TheRealOneAnswersOrIsUnavailable) {
  const auto devices = ListNvmlDevices();
  if (!devices.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(devices.status())) << devices.status();
    return;
  }
  for (const NvmlDevice& device : *devices) {
    auto probe = NvmlProbe::Open(device.uuid);
    ASSERT_TRUE(probe.ok()) << probe.status();
    const auto reading = (*probe)->Read();
    ASSERT_TRUE(reading.ok()) << reading.status();
    EXPECT_EQ(reading->capacity_bytes, device.capacity_bytes);
    EXPECT_LE(reading->total_used_bytes, reading->capacity_bytes);
    RecordProperty(device.uuid, std::to_string(reading->total_used_bytes));
  }
}

}  // namespace
}  // namespace vrambroker::observe
