// What it costs to have a charge on record before its answer leaves, beside a plain copy of as many
// bytes: what memory alone takes.
#include <unistd.h>

#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/observe/charge_record.h"
#include "tests/bench/bench.h"

namespace vrambroker::bench {
namespace {

constexpr int kOwners = 200;  // on record, of the 1,024 that there can be
constexpr int kPuts = 20000;
constexpr size_t kEntryBytes = 384;

double Nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

core::Owner OwnerOf(int number, int64_t charge) {
  core::Owner owner;
  owner.worker = absl::StrCat("worker-", number);
  owner.process = {1000 + number, 1};
  owner.attach_number = 1;
  owner.device = "GPU-bench";
  owner.charge = core::Bytes(charge);
  return owner;
}

}  // namespace

absl::StatusOr<Figures> RecordBench(const BenchOptions&) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / absl::StrCat("vram-bench-record-", getpid()))
          .string();
  std::filesystem::create_directories(folder);
  std::vector<double> puts, copies;
  puts.reserve(kPuts);
  copies.reserve(kPuts);
  {
    const auto record = observe::ChargeRecord::Open(folder, "GPU-bench");
    if (!record.ok()) return record.status();
    std::vector<core::Owner> owners;
    owners.reserve(kOwners);
    for (int i = 0; i < kOwners; ++i) owners.push_back(OwnerOf(i, 1));
    std::vector<char> memory(kOwners * kEntryBytes);
    std::array<char, kEntryBytes> entry{};
    for (int i = 0; i < kPuts; ++i) {
      core::Owner& owner = owners[static_cast<size_t>(i * 7 % kOwners)];
      owner.charge += core::Bytes(1);
      entry[0] = static_cast<char>(i);
      const double began = Nanoseconds();
      if (absl::Status put = (*record)->Put(owner); !put.ok()) return put;
      const double put = Nanoseconds();
      std::memcpy(memory.data() + static_cast<size_t>(i * 7 % kOwners) * kEntryBytes, entry.data(),
                  kEntryBytes);
      asm volatile("" : : "r"(memory.data()) : "memory");
      puts.push_back(put - began);
      copies.push_back(Nanoseconds() - put);
    }
  }
  std::filesystem::remove_all(folder);
  return Figures{{"a charge on record, p50", Percentile(&puts, 0.50), "ns", std::nullopt},
                 {"a charge on record, p99", Percentile(&puts, 0.99), "ns", std::nullopt},
                 {"a copy of as many bytes, p50", Percentile(&copies, 0.50), "ns", std::nullopt}};
}

}  // namespace vrambroker::bench
