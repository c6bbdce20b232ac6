// What the offload tests share: files of any tensors, and a component on a card of its own.
#ifndef VRAMBROKER_TESTS_UNIT_OFFLOAD_OFFLOAD_TEST_UTIL_H_
#define VRAMBROKER_TESTS_UNIT_OFFLOAD_OFFLOAD_TEST_UTIL_H_

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "stage_workers/card/compute.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/offload/component.h"
#include "stage_workers/offload/layers.h"
#include "stage_workers/offload/pool.h"
#include "stage_workers/offload/safetensors.h"

namespace vrambroker::offload {

// A folder of the test's own.
class TestFolder {
 public:
  TestFolder() {
    static std::atomic<int> serial{0};
    path_ = absl::StrCat(testing::TempDir(), "offload-", getpid(), "-", ++serial);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestTensor {
  std::string name;
  // U8 elements.
  int64_t bytes = 0;
};

inline std::string LengthPrefix(uint64_t length) {
  std::string text(8, '\0');
  for (int i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i));
  return text;
}

inline void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

// A safetensors file of these tensors, one after the other, with contents of their own.
inline std::shared_ptr<SafetensorsFile> MakeFile(const std::string& path,
                                                 const std::vector<TestTensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const TestTensor& tensor : tensors) {
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", tensor.name,
                    "\":{\"dtype\":\"U8\",\"shape\":[", tensor.bytes, "],\"data_offsets\":[",
                    data.size(), ",", data.size() + tensor.bytes, "]}");
    uint64_t word = std::hash<std::string>{}(tensor.name) | 1;
    for (int64_t i = 0; i < tensor.bytes; ++i) {
      word = word * 6364136223846793005 + 1442695040888963407;
      data.push_back(static_cast<char>(word >> 56));
    }
  }
  header += "}";
  WriteFile(path, LengthPrefix(header.size()) + header + data);
  absl::StatusOr<std::shared_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

// Block lists a (5 layers), b (4) and c (3) of different sizes, and fixed tensors before and after.
inline std::vector<TestTensor> TwelveLayers() {
  std::vector<TestTensor> tensors = {{"embed.weight", 50'000}};
  for (int i = 0; i < 5; ++i) {
    tensors.push_back({absl::StrCat("a.", i, ".w1"), 40'000});
    tensors.push_back({absl::StrCat("a.", i, ".w2"), 30'001});
  }
  for (int i = 0; i < 4; ++i) tensors.push_back({absl::StrCat("b.", i, ".w"), 64'000});
  for (int i = 0; i < 3; ++i) tensors.push_back({absl::StrCat("c.", i, ".w"), 20'000});
  tensors.push_back({"head.weight", 1'000});
  return tensors;
}

// A card, a pool and a component of twelve layers on it.
struct Rig {
  explicit Rig(int64_t capacity = 64 << 20, PoolOptions pool_options = {}, double rate = 0) {
    static std::atomic<int> serial{0};
    card_name = absl::StrCat("test-offload-", getpid(), "-", ++serial);
    absl::StatusOr<std::unique_ptr<card::EmulatedCard>> made = card::EmulatedCard::Create(
        card_name, {.capacity_bytes = capacity, .h2d_bytes_per_second = rate});
    EXPECT_TRUE(made.ok()) << made.status();
    card = *std::move(made);
    pool = std::make_unique<PoolAllocator>(card.get(), pool_options);
  }
  ~Rig() {
    pool.reset();
    card.reset();
    (void)card::EmulatedCard::Remove(card_name);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  LayerMap Map(const std::vector<TestTensor>& tensors = TwelveLayers()) {
    absl::StatusOr<LayerMap> map =
        GroupLayers(MakeFile(folder.File("weights.safetensors"), tensors), {});
    EXPECT_TRUE(map.ok()) << map.status();
    return *std::move(map);
  }
  std::unique_ptr<StreamedComponent> Make(ComponentOptions options, KeepSpec keep = {}) {
    LayerMap map = Map();
    absl::StatusOr<KeepOrder> order = MakeKeepOrder(map.lists, keep);
    EXPECT_TRUE(order.ok()) << order.status();
    options.name = "component";
    options.keep = *std::move(order);
    absl::StatusOr<std::unique_ptr<StreamedComponent>> component =
        StreamedComponent::Create(pool.get(), std::move(map), std::move(options));
    EXPECT_TRUE(component.ok()) << component.status();
    return *std::move(component);
  }
  // Bytes that this process has on the card.
  int64_t OnCard() {
    absl::StatusOr<card::Usage> usage = card->ReadUsage();
    EXPECT_TRUE(usage.ok()) << usage.status();
    return usage->by_pid[getpid()];
  }

  TestFolder folder;
  std::string card_name;
  std::unique_ptr<card::EmulatedCard> card;
  std::unique_ptr<PoolAllocator> pool;
};

using Lanes = std::vector<uint64_t>;

// One use of so many passes; ends it keeping `keep`. The activations go through all passes.
inline Lanes Use(StreamedComponent& component, int resident, int passes, int keep,
                 Lanes lanes = Lanes(64, 7)) {
  absl::Status status = component.BeginUse(
      {.resident_layers = resident, .passes = passes, .activation_bytes = 10'000});
  EXPECT_TRUE(status.ok()) << status;
  for (int pass = 0; pass < passes; ++pass) {
    absl::StatusOr<PassStats> stats =
        component.RunPass(absl::MakeSpan(lanes), absl::ZeroDuration());
    EXPECT_TRUE(stats.ok()) << stats.status();
  }
  status = component.ReleaseAfterUse(keep);
  EXPECT_TRUE(status.ok()) << status;
  return lanes;
}

// A component whose fixed weights, and permanent layers, are on the device.
inline std::unique_ptr<StreamedComponent> Placed(Rig& rig, ComponentOptions options = {},
                                                 KeepSpec keep = {}) {
  std::unique_ptr<StreamedComponent> component = rig.Make(std::move(options), keep);
  EXPECT_TRUE(component->PlaceFixed().ok());
  if (component->options().lifetime == Lifetime::kPermanent) {
    EXPECT_TRUE(component->PlacePermanent().ok());
  }
  return component;
}

// What the uses of all tests must compute, by a plain walk over the file's memory.
inline Lanes Reference(const LayerMap& map, int passes, Lanes lanes = Lanes(64, 7)) {
  const auto compute = [&](const TensorGroup& group) {
    std::vector<char> device(group.bytes + card::kLineBytes, 0);
    for (const card::HostPiece& piece : group.pieces) {
      if (piece.source == nullptr) continue;
      std::memcpy(device.data() + piece.device_offset, piece.source, piece.bytes);
    }
    for (int64_t i = 0; i < card::SampledLines(group.bytes); ++i) {
      card::MixLine(device.data() + i * card::kSampleStride, i, absl::MakeSpan(lanes));
    }
    card::FinishLayer(absl::MakeSpan(lanes));
  };
  for (int pass = 0; pass < passes; ++pass) {
    compute(map.fixed);
    for (const Layer& layer : map.layers) compute(layer.tensors);
  }
  return lanes;
}

}  // namespace vrambroker::offload

#endif  // VRAMBROKER_TESTS_UNIT_OFFLOAD_OFFLOAD_TEST_UTIL_H_
