// Changed layers, full resets and permanent sets.
#include <vector>

#include "gtest/gtest.h"
#include "stage_workers/offload/component.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

constexpr int kLayers = 12;

// New bytes for a layer, and what the component then must compute.
std::vector<char> NewBytes(const StreamedComponent& component, int layer, char value) {
  return std::vector<char>(component.map().layers[layer].tensors.bytes, value);
}

TEST(ComponentRelease, ReleaseAllWritesChangedLayersBackAndDropsRetainedOnes) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  const Lanes original = Use(*component, 12, 1, 6);
  ASSERT_TRUE(component->WriteLayer(2, NewBytes(*component, 2, 33)).ok());
  // Changed on the device, not yet on the host.
  EXPECT_EQ(Reference(component->map(), 1), original);
  EXPECT_TRUE(component->ReleaseAll().ok());
  EXPECT_EQ(component->held_layers(), 0);
  EXPECT_EQ(component->bytes().total(), component->map().fixed.bytes);
  EXPECT_EQ(component->counters().bytes_to_host, 40'000 + 30'001);
  const Lanes changed = Reference(component->map(), 1);
  EXPECT_NE(changed, original);
  EXPECT_EQ(Use(*component, 0, 1, 0), changed);
  // Once only: a layer that was not changed again is not written back again.
  Use(*component, 12, 1, 12);
  EXPECT_TRUE(component->ReleaseAll().ok());
  EXPECT_EQ(component->counters().bytes_to_host, 40'000 + 30'001);
}

TEST(ComponentRelease, EveryWayOfReleasingWritesChangedLayersBack) {
  for (int way = 0; way < 3; ++way) {
    Rig rig;
    std::unique_ptr<StreamedComponent> component = Placed(rig);
    Use(*component, 12, 1, 12);
    ASSERT_TRUE(component->WriteLayer(8, NewBytes(*component, 8, 44)).ok());
    const Lanes resident = Use(*component, 12, 1, 12);
    if (way == 0) {
      EXPECT_TRUE(component->ReleaseTo(3).ok());
    } else if (way == 1) {
      Use(*component, 12, 1, 3);
    } else {
      Use(*component, 3, 1, 3);
    }
    EXPECT_EQ(component->held_layers(), 3);
    EXPECT_EQ(Reference(component->map(), 1), resident) << way;
    EXPECT_EQ(Use(*component, 3, 1, 0), resident) << way;
  }
}

TEST(ComponentRelease, WritingALayerThatIsNotHeldWritesTheHostCopy) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  const Lanes before = Use(*component, 0, 1, 0);
  ASSERT_TRUE(component->WriteLayer(11, NewBytes(*component, 11, 55)).ok());
  const Lanes after = Use(*component, 12, 1, 0);
  EXPECT_NE(before, after);
  EXPECT_EQ(after, Reference(component->map(), 1));
  EXPECT_EQ(component->WriteLayer(11, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(component->WriteLayer(12, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(component->MarkChanged(0).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ComponentRelease, MarkedLayersAreWrittenBack) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  Use(*component, 12, 1, 12);
  const card::DeviceBuffer buffer = component->LayerBuffer(7);
  ASSERT_TRUE(buffer);
  const std::vector<char> bytes = NewBytes(*component, 7, 66);
  const card::HostPiece piece = {.source = bytes.data(),
                                 .bytes = static_cast<int64_t>(bytes.size())};
  ASSERT_TRUE((*rig.card->CopyToDevice(buffer, {&piece, 1}, {}))->Wait().ok());
  ASSERT_TRUE(component->MarkChanged(7).ok());
  const Lanes resident = Use(*component, 12, 1, 12);
  EXPECT_TRUE(component->ReleaseTo(0).ok());
  EXPECT_EQ(Reference(component->map(), 1), resident);
}

TEST(ComponentRelease, PermanentLayersStayWhateverAUseSays) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component =
      Placed(rig, {.lifetime = Lifetime::kPermanent}, {.count = 0});
  const Lanes expected = Reference(component->map(), 2);
  const int64_t moved = component->counters().bytes_to_device;
  EXPECT_EQ(Use(*component, 0, 2, 0), expected);
  EXPECT_EQ(Use(*component, 12, 2, 3), expected);
  EXPECT_EQ(component->held_layers(), kLayers);
  EXPECT_EQ(component->counters().bytes_to_device, moved);
  EXPECT_EQ(component->ReleaseTo(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->LoadNext(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->held_layers(), kLayers);
  // It has a host copy, so a full reset works, and it can be placed anew.
  EXPECT_TRUE(component->ReleaseAll().ok());
  EXPECT_EQ(component->held_layers(), 0);
  EXPECT_EQ(component->BeginUse({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(component->PlacePermanent().ok());
  EXPECT_EQ(Use(*component, 0, 2, 0), expected);
}

TEST(ComponentRelease, APermanentSetWithoutAHostCopyRefusesAFullReset) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = rig.Make(
      {.tier = HostTier::kPinned, .lifetime = Lifetime::kPermanent, .keep_host_copy = false});
  const Lanes expected = Reference(component->map(), 1);
  ASSERT_TRUE(component->PlaceFixed().ok());
  EXPECT_TRUE(component->has_host_copy());
  ASSERT_TRUE(component->PlacePermanent().ok());
  EXPECT_FALSE(component->has_host_copy());
  EXPECT_EQ(component->ReleaseAll().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->held_layers(), kLayers);
  EXPECT_EQ(Use(*component, 0, 1, 0), expected);
  ASSERT_TRUE(component->BeginUse({}).ok());
  EXPECT_EQ(component->ReleaseAll().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(component->in_use());
  EXPECT_TRUE(component->ReleaseAfterUse().ok());
}

TEST(ComponentRelease, PlacePermanentIsForPermanentComponents) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  EXPECT_EQ(component->PlacePermanent().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace vrambroker::offload
