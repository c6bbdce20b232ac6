// Loads, allocations and write-backs that fail half-way.
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stage_workers/offload/component.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

constexpr int kLayers = 12;

// What the component, its pool and the card say agrees.
void ExpectBooked(Rig& rig, const StreamedComponent& component) {
  const PoolStats stats = rig.pool->Stats();
  EXPECT_EQ(stats.used_bytes, component.bytes().total());
  EXPECT_EQ(stats.used_bytes + stats.pooled_bytes, rig.OnCard());
}

TEST(ComponentFailures, ALoadThatFailsHalfWayIsReportedAndReleased) {
  for (const bool copy_fails : {false, true}) {
    for (int good = 0; good < kLayers; ++good) {
      Rig rig(64 << 20, {.caching = false});
      std::unique_ptr<StreamedComponent> component = Placed(rig);
      const Lanes expected = Use(*component, kLayers, 1, 0);
      ASSERT_TRUE(component->BeginUse({.resident_layers = kLayers}).ok());
      if (copy_fails) {
        rig.card->SetFaults({.failing_copies = 1, .copies_before_failing = good});
      } else {
        rig.card->SetFaults({.failing_allocations = 1, .allocations_before_failing = good});
      }
      Lanes lanes(64, 7);
      absl::Status status =
          component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).status();
      EXPECT_EQ(status.code(),
                copy_fails ? absl::StatusCode::kInternal : absl::StatusCode::kResourceExhausted);
      // The partial bytes are reported.
      EXPECT_GE(component->bytes().held, component->PrefixBytes(good));
      ExpectBooked(rig, *component);
      EXPECT_EQ(component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).status().code(),
                absl::StatusCode::kFailedPrecondition);
      // At most what was really loaded can stay, whatever is granted.
      EXPECT_TRUE(component->ReleaseAfterUse(kLayers).ok());
      EXPECT_EQ(component->held_layers(), good);
      EXPECT_EQ(component->bytes().held, component->PrefixBytes(good));
      ExpectBooked(rig, *component);
      EXPECT_EQ(Use(*component, kLayers, 1, 0), expected);
      EXPECT_EQ(component->bytes().held, 0);
      ExpectBooked(rig, *component);
    }
  }
}

TEST(ComponentFailures, AStreamedCopyThatFailsEndsThePass) {
  for (int good = 0; good < kLayers; ++good) {
    Rig rig;
    std::unique_ptr<StreamedComponent> component = Placed(rig);
    const Lanes expected = Use(*component, 0, 1, 0);
    ASSERT_TRUE(component->BeginUse({.resident_layers = 0}).ok());
    rig.card->SetFaults({.failing_copies = 1, .copies_before_failing = good});
    Lanes lanes(64, 7);
    EXPECT_EQ(component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).status().code(),
              absl::StatusCode::kInternal);
    EXPECT_TRUE(component->ReleaseAfterUse().ok());
    ExpectBooked(rig, *component);
    EXPECT_EQ(Use(*component, 0, 1, 0), expected);
  }
}

TEST(ComponentFailures, AUseThatDoesNotGetItsBuffersHasNotBegun) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig, {.window_layers = 3});
  Use(*component, 4, 1, 4);
  rig.pool->Trim();
  // Two slots are had, then the third, then the activations fail.
  for (const int before : {0, 2, 3}) {
    rig.card->SetFaults({.failing_allocations = 1, .allocations_before_failing = before});
    EXPECT_EQ(component->BeginUse({.resident_layers = 4, .activation_bytes = 100}).code(),
              absl::StatusCode::kResourceExhausted)
        << before;
    EXPECT_FALSE(component->in_use());
    EXPECT_EQ(component->bytes().total(), component->map().fixed.bytes + component->PrefixBytes(4));
    rig.pool->Trim();
    ExpectBooked(rig, *component);
  }
  EXPECT_TRUE(component->BeginUse({.resident_layers = 4, .activation_bytes = 100}).ok());
}

TEST(ComponentFailures, ARealShortageIsTheSame) {
  // Room for the fixed weights and about half of the layers.
  Rig rig(450'000, {.caching = false});
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  ASSERT_TRUE(component->BeginUse({.resident_layers = kLayers}).ok());
  Lanes lanes(64, 7);
  EXPECT_EQ(component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).status().code(),
            absl::StatusCode::kResourceExhausted);
  ExpectBooked(rig, *component);
  EXPECT_TRUE(component->ReleaseAfterUse().ok());
  ExpectBooked(rig, *component);
  EXPECT_EQ(component->held_layers(), 0);
  // A smaller set runs on the same card.
  Use(*component, 2, 2, 2);
  EXPECT_EQ(component->held_layers(), 2);
}

TEST(ComponentFailures, ALoadAheadThatFailsLeavesNothing) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  ASSERT_TRUE(component->LoadNext(0).ok());
  for (const bool copy_fails : {false, true}) {
    if (copy_fails) {
      rig.card->SetFaults({.failing_copies = 1});
    } else {
      rig.card->SetFaults({.failing_allocations = 1});
    }
    EXPECT_FALSE(component->LoadNext(0).ok());
    EXPECT_EQ(component->held_layers(), 1);
    EXPECT_EQ(component->bytes().held, component->PrefixBytes(1));
    ExpectBooked(rig, *component);
  }
  EXPECT_EQ(*component->LoadNext(0), 2);
}

TEST(ComponentFailures, PlacingFixedOrPermanentLayersIsWholeOrNot) {
  for (const bool copy_fails : {false, true}) {
    Rig rig;
    std::unique_ptr<StreamedComponent> component =
        rig.Make({.lifetime = Lifetime::kPermanent, .keep_host_copy = false});
    const auto fail_after = [&](int good) {
      if (copy_fails) {
        rig.card->SetFaults({.failing_copies = 1, .copies_before_failing = good});
      } else {
        rig.card->SetFaults({.failing_allocations = 1, .allocations_before_failing = good});
      }
    };
    fail_after(0);
    EXPECT_FALSE(component->PlaceFixed().ok());
    EXPECT_EQ(component->bytes().total(), 0);
    EXPECT_TRUE(component->PlaceFixed().ok());
    fail_after(7);
    EXPECT_FALSE(component->PlacePermanent().ok());
    EXPECT_EQ(component->bytes().total(), component->map().fixed.bytes);
    EXPECT_TRUE(component->has_host_copy());
    ExpectBooked(rig, *component);
    EXPECT_TRUE(component->PlacePermanent().ok());
    EXPECT_FALSE(component->has_host_copy());
    ExpectBooked(rig, *component);
  }
}

TEST(ComponentFailures, AWriteBackThatFailsLosesNothing) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  Use(*component, kLayers, 1, kLayers);
  for (const int layer : {2, 8}) {
    const std::vector<char> bytes(component->map().layers[layer].tensors.bytes, 77);
    ASSERT_TRUE(component->WriteLayer(layer, bytes).ok());
  }
  const Lanes changed = Use(*component, kLayers, 1, kLayers);
  rig.card->SetFaults({.failing_copies = 1});
  EXPECT_EQ(component->ReleaseAll().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(component->held_layers(), kLayers);
  // Of a release by target the layers above the one that cannot be saved go.
  rig.card->SetFaults({.failing_copies = 1});
  EXPECT_EQ(component->ReleaseTo(0).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(component->held_layers(), 9);
  rig.card->SetFaults({.failing_copies = 1});
  ASSERT_TRUE(component->BeginUse({.resident_layers = 9}).ok());
  EXPECT_EQ(component->ReleaseAfterUse().code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(component->in_use());
  EXPECT_EQ(component->held_layers(), 9);
  ExpectBooked(rig, *component);
  EXPECT_TRUE(component->ReleaseAll().ok());
  EXPECT_EQ(component->held_layers(), 0);
  EXPECT_EQ(Use(*component, 0, 1, 0), changed);
}

}  // namespace
}  // namespace vrambroker::offload
