// Streams every layer of a component through the window and copies the same bytes by memcpy, paced
// by the same link, in turns.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "stage_workers/card/compute.h"
#include "stage_workers/card/emulated_card.h"
#include "stage_workers/card/emulated_memory.h"
#include "stage_workers/offload/component.h"
#include "stage_workers/offload/weights_writer.h"
#include "tests/bench/bench.h"

namespace vrambroker::bench {
namespace {

// The link of the demo's cards.
constexpr double kLinkBytesPerSecond = 29.9e9 / 64 * 8;
constexpr int kLayers = 32;
constexpr int64_t kLayerBytes = 4 << 20;
constexpr int kPasses = 4;
constexpr int kTurns = 7;
constexpr int64_t kTotalBytes = kPasses * kLayers * kLayerBytes;

// A card and weights that go when the measurement is over.
class Place {
 public:
  Place()
      : card_name_(absl::StrCat("bench-", getpid())),
        folder_(std::filesystem::temp_directory_path() / card_name_) {}
  ~Place() {
    card_.reset();
    (void)card::EmulatedCard::Remove(card_name_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  absl::Status Make() {
    std::filesystem::create_directories(folder_);
    absl::StatusOr<std::unique_ptr<card::EmulatedCard>> card = card::EmulatedCard::Create(
        card_name_, {.capacity_bytes = 256 << 20, .h2d_bytes_per_second = kLinkBytesPerSecond});
    if (!card.ok()) return card.status();
    card_ = *std::move(card);
    v1::WorkloadComponent component;
    component.set_name("streamed");
    v1::LayerGroup* group = component.add_layer_groups();
    group->set_count(kLayers);
    group->set_layer_bytes(kLayerBytes);
    const absl::StatusOr<offload::WeightsPlan> plan = offload::PlanWeights(component, {}, 1);
    if (!plan.ok()) return plan.status();
    path_ = offload::WeightsPath(folder_, component.name());
    return offload::WriteWeights(path_, *plan, [](int64_t) {});
  }

  card::EmulatedCard* card() const { return card_.get(); }
  const std::string& weights() const { return path_; }

 private:
  const std::string card_name_;
  const std::string folder_;
  std::unique_ptr<card::EmulatedCard> card_;
  std::string path_;
};

// A figure that nothing is aimed at for.
Figure Known(const char* name, double value, const char* unit) {
  return {.name = name, .value = value, .unit = unit, .goal = {}};
}

// Bytes a second of a use that has nothing resident and computes as fast as it can.
absl::StatusOr<double> StreamedRate(offload::StreamedComponent& component) {
  const auto lock = component.Lock();
  absl::Status status = component.BeginUse({.resident_layers = 0, .passes = kPasses});
  std::vector<uint64_t> lanes(256, 1);
  int64_t bytes = 0;
  const int64_t begin = card::MonotonicNanos();
  for (int pass = 0; status.ok() && pass < kPasses; ++pass) {
    const absl::StatusOr<offload::PassStats> stats =
        component.RunPass(absl::MakeSpan(lanes), absl::ZeroDuration());
    status = stats.status();
    if (stats.ok()) bytes += stats->bytes_to_device;
  }
  const double seconds = static_cast<double>(card::MonotonicNanos() - begin) / 1e9;
  status.Update(component.ReleaseAfterUse());
  if (!status.ok()) return status;
  return static_cast<double>(bytes) / seconds;
}

// The same layers copied by memcpy to one place and another in turns, in pieces that each wait for
// the card's own link: what the link lost because nobody used it is lost here, too.
double PacedMemcpyRate(const offload::LayerMap& map, card::EmulatedMemory& link,
                       std::vector<char>& destination) {
  constexpr int64_t kPiece = 256 << 10;
  // The link may be reserved so far ahead, in nanoseconds.
  constexpr int64_t kAhead = 1'000'000;
  const int64_t begin = card::MonotonicNanos();
  int64_t bytes = 0;
  int64_t ready = begin;
  int turn = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const offload::Layer& layer : map.layers) {
      char* target = destination.data() + (turn++ % 2) * kLayerBytes;
      for (const card::HostPiece& piece : layer.tensors.pieces) {
        for (int64_t at = 0; at < piece.bytes; at += kPiece) {
          const int64_t part = std::min(kPiece, piece.bytes - at);
          ready = link.ReserveLink(card::Direction::kToDevice, part);
          std::memcpy(target + piece.device_offset + at,
                      static_cast<const char*>(piece.source) + at, part);
          if (ready - card::MonotonicNanos() > kAhead) card::WaitUntilNanos(ready - kAhead / 2);
        }
      }
      bytes += layer.tensors.bytes;
    }
  }
  card::WaitUntilNanos(ready);
  return static_cast<double>(bytes) / (static_cast<double>(card::MonotonicNanos() - begin) / 1e9);
}

}  // namespace

absl::StatusOr<Figures> CopyRateBench(const BenchOptions&) {
  Place place;
  if (absl::Status status = place.Make(); !status.ok()) return status;
  offload::PoolAllocator pool(place.card(), {});
  absl::StatusOr<std::shared_ptr<offload::SafetensorsFile>> file =
      offload::SafetensorsFile::Open(place.weights());
  if (!file.ok()) return file.status();
  absl::StatusOr<offload::LayerMap> map = offload::GroupLayers(*file, {});
  if (!map.ok()) return map.status();
  absl::StatusOr<offload::KeepOrder> keep = offload::MakeKeepOrder(map->lists, {});
  if (!keep.ok()) return keep.status();
  offload::ComponentOptions options;
  options.name = "streamed";
  options.keep = *std::move(keep);
  absl::StatusOr<std::unique_ptr<offload::StreamedComponent>> component =
      offload::StreamedComponent::Create(&pool, *std::move(map), std::move(options));
  if (!component.ok()) return component.status();
  {
    const auto lock = (*component)->Lock();
    if (absl::Status status = (*component)->PlaceFixed(); !status.ok()) return status;
  }

  const absl::StatusOr<std::unique_ptr<card::EmulatedMemory>> link =
      card::EmulatedMemory::Open(card::EmulatedCard::NameOfUuid(place.card()->Uuid()));
  if (!link.ok()) return link.status();
  std::vector<char> destination(2 * kLayerBytes);
  std::vector<double> streamed;
  std::vector<double> copied;
  for (int turn = 0; turn <= kTurns; ++turn) {
    const absl::StatusOr<double> rate = StreamedRate(**component);
    if (!rate.ok()) return rate.status();
    const double reference = PacedMemcpyRate((*component)->map(), **link, destination);
    if (turn == 0) continue;  // brings files and pages into memory
    streamed.push_back(*rate);
    copied.push_back(reference);
  }
  const double streamed_rate = Percentile(&streamed, 0.5);
  const double copied_rate = Percentile(&copied, 0.5);
  return Figures{Known("offload path, all layers streamed", streamed_rate / 1e9, "GB/s"),
                 Known("memcpy paced by the same link", copied_rate / 1e9, "GB/s"),
                 Known("link", kLinkBytesPerSecond / 1e9, "GB/s"),
                 Known("copied in each of 7 turns", kTotalBytes / 1e6, "MB"),
                 {.name = "ratio of the two rates",
                  .value = streamed_rate / copied_rate,
                  .unit = "",
                  .goal = 0.95,
                  .goal_is_most = false}};
}

}  // namespace vrambroker::bench
