#include "stage_workers/offload/component.h"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_workers/card/compute.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 12;

TEST(Component, ComputesTheSameResidentStreamedOrBoth) {
  for (const bool caching : {true, false}) {
    for (const int window : {1, 2, 5, 64}) {
      Rig rig(64 << 20, {.caching = caching});
      std::unique_ptr<StreamedComponent> component = Placed(rig, {.window_layers = window});
      const Lanes expected = Reference(component->map(), 3);
      for (const int resident : {0, 1, 5, 11, 12}) {
        EXPECT_EQ(Use(*component, resident, 3, /*keep=*/resident / 2), expected)
            << "window " << window << " resident " << resident;
      }
    }
  }
}

TEST(Component, TheDefaultOfReleaseAfterUseEqualsAFullRelease) {
  Rig a;
  Rig b;
  std::unique_ptr<StreamedComponent> by_use = Placed(a);
  std::unique_ptr<StreamedComponent> by_all = Placed(b);
  Lanes lanes(64, 7);
  for (StreamedComponent* component : {by_use.get(), by_all.get()}) {
    ASSERT_TRUE(component->BeginUse({.resident_layers = 9, .activation_bytes = 5000}).ok());
    ASSERT_TRUE(component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).ok());
    EXPECT_EQ(component->held_layers(), 9);
  }
  EXPECT_TRUE(by_use->ReleaseAfterUse().ok());
  EXPECT_TRUE(by_all->ReleaseAll().ok());
  for (StreamedComponent* component : {by_use.get(), by_all.get()}) {
    EXPECT_EQ(component->held_layers(), 0);
    EXPECT_FALSE(component->in_use());
    EXPECT_EQ(component->bytes().total(), component->map().fixed.bytes);
  }
  a.pool->Trim();
  b.pool->Trim();
  EXPECT_EQ(a.OnCard(), by_use->map().fixed.bytes);
  EXPECT_EQ(b.OnCard(), by_all->map().fixed.bytes);
}

TEST(Component, KeepKeepsExactlyTheGrantedSet) {
  Rig rig(64 << 20, {.caching = false});
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  Use(*component, 8, 2, 5);
  EXPECT_EQ(component->held_layers(), 5);
  EXPECT_EQ(component->bytes().held, component->PrefixBytes(5));
  EXPECT_EQ(component->bytes().window, 0);
  EXPECT_EQ(component->bytes().activation, 0);
  EXPECT_EQ(rig.OnCard(), component->PrefixBytes(5) + component->map().fixed.bytes);
  // No more than the use's resident set can stay.
  Use(*component, 3, 1, 12);
  EXPECT_EQ(component->held_layers(), 3);
  Use(*component, 12, 1, 12);
  EXPECT_EQ(component->held_layers(), 12);
}

TEST(Component, RetainedLayersSkipTheFirstPassFaultIn) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  const int64_t all = component->PrefixBytes(kLayers);
  const auto moved_by = [&](int resident, int passes, int keep) {
    const int64_t before = component->counters().bytes_to_device;
    Use(*component, resident, passes, keep);
    return component->counters().bytes_to_device - before;
  };
  EXPECT_EQ(moved_by(12, 3, 12), all);
  EXPECT_EQ(moved_by(12, 3, 7), 0);
  EXPECT_EQ(moved_by(12, 3, 0), all - component->PrefixBytes(7));
  // Streamed layers move in every pass, resident ones in the first only.
  EXPECT_EQ(moved_by(4, 3, 4), component->PrefixBytes(4) + 3 * (all - component->PrefixBytes(4)));
  EXPECT_EQ(moved_by(4, 3, 0), 3 * (all - component->PrefixBytes(4)));
}

TEST(Component, PassesTellWhatTheyMoved) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  ASSERT_TRUE(component->BeginUse({.resident_layers = 5, .passes = 2}).ok());
  Lanes lanes(64, 7);
  absl::StatusOr<PassStats> first =
      component->RunPass(absl::MakeSpan(lanes), absl::Milliseconds(5));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->layers_faulted_in, 5);
  EXPECT_EQ(first->layers_streamed, 7);
  EXPECT_EQ(first->bytes_to_device, component->PrefixBytes(kLayers));
  EXPECT_GE(first->elapsed, absl::Milliseconds(5));
  absl::StatusOr<PassStats> second =
      component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->layers_faulted_in, 0);
  EXPECT_EQ(second->layers_streamed, 7);
  EXPECT_TRUE(component->ReleaseAfterUse().ok());
}

TEST(Component, KeepWithoutAResidentSetIsAFullRelease) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component =
      Placed(rig, {}, {.pattern = KeepPattern::kRatioPerList, .ratio = 0});
  EXPECT_EQ(component->configured_layers(), 0);
  Use(*component, 0, 2, 12);
  EXPECT_EQ(component->held_layers(), 0);
  EXPECT_EQ(component->bytes().held, 0);
  EXPECT_EQ(component->BeginUse({.resident_layers = 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(component->LoadNext(0).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Component, KeepsFiftyThreeOfSixtySixByRatio) {
  Rig rig;
  std::vector<TestTensor> tensors;
  for (const auto& [list, count] :
       std::vector<std::pair<std::string, int>>{{"visual", 36}, {"language", 27}, {"refiner", 3}}) {
    for (int i = 0; i < count; ++i) tensors.push_back({absl::StrCat(list, ".", i, ".w"), 1000});
  }
  LayerMap map = rig.Map(tensors);
  KeepOrder keep = *MakeKeepOrder(map.lists, {.pattern = KeepPattern::kRatioPerList, .ratio = 0.8});
  std::unique_ptr<StreamedComponent> component =
      *StreamedComponent::Create(rig.pool.get(), std::move(map), {.keep = std::move(keep)});
  ASSERT_TRUE(component->PlaceFixed().ok());
  EXPECT_EQ(component->configured_layers(), 53);
  Use(*component, 53, 1, 53);
  int held[3] = {};
  for (int layer = 0; layer < 66; ++layer) {
    if (component->LayerBuffer(layer)) ++held[layer < 36 ? 0 : layer < 63 ? 1 : 2];
  }
  EXPECT_EQ(held[0], 29);
  EXPECT_EQ(held[1], 22);
  EXPECT_EQ(held[2], 2);
}

TEST(Component, WindowAndActivationsExistDuringAUseOnly) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig, {.window_layers = 3});
  const int64_t largest = component->map().largest_layer_bytes;
  ASSERT_TRUE(component->BeginUse({.resident_layers = 4, .activation_bytes = 5000}).ok());
  EXPECT_EQ(component->bytes().window, 3 * largest);
  EXPECT_EQ(component->bytes().window, component->WindowBytes(4));
  EXPECT_EQ(component->bytes().activation, 5000);
  EXPECT_TRUE(component->ReleaseAfterUse(4).ok());
  EXPECT_EQ(component->bytes().total(), component->map().fixed.bytes);
  EXPECT_EQ(component->WindowBytes(10), 2 * largest);
  EXPECT_EQ(component->WindowBytes(12), 0);
  // Freed to the allocator, which keeps it until it is trimmed.
  EXPECT_EQ(rig.pool->Stats().pooled_bytes, 3 * largest + 5000);
}

TEST(Component, AGrantBelowWhatIsHeldReleasesFirst) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  Use(*component, 12, 1, 12);
  ASSERT_TRUE(component->BeginUse({.resident_layers = 4}).ok());
  EXPECT_EQ(component->held_layers(), 4);
  EXPECT_TRUE(component->ReleaseAfterUse(4).ok());
  EXPECT_EQ(component->held_layers(), 4);
}

TEST(Component, TargetsReleaseAndLoadAheadInKeepOrder) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component =
      Placed(rig, {}, {.pattern = KeepPattern::kRatioPerList, .ratio = 0.5});
  // 3 of a, 2 of b, 2 of c.
  EXPECT_EQ(component->configured_layers(), 7);
  for (int held = 1; held <= 7; ++held) {
    absl::StatusOr<int> loaded = component->LoadNext(held % 2 == 0 ? 0 : 1e9);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(*loaded, held);
    EXPECT_EQ(component->held_layers(), held);
    EXPECT_EQ(component->bytes().held, component->PrefixBytes(held));
  }
  EXPECT_EQ(component->LoadNext(0).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(component->LayerBuffer(6));
  EXPECT_FALSE(component->LayerBuffer(3));
  EXPECT_TRUE(component->ReleaseTo(9).ok());
  EXPECT_EQ(component->held_layers(), 7);
  EXPECT_TRUE(component->ReleaseTo(2).ok());
  EXPECT_EQ(component->held_layers(), 2);
  EXPECT_EQ(component->ReleaseTo(-1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Use(*component, 7, 2, 0), Reference(component->map(), 2));
}

TEST(Component, TargetsAreRefusedDuringAUse) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  ASSERT_TRUE(component->BeginUse({.resident_layers = 4}).ok());
  EXPECT_EQ(component->ReleaseTo(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->LoadNext(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->RemoveFixed().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->MarkChanged(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->WriteLayer(0, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->BeginUse({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(component->ReleaseAfterUse().ok());
  EXPECT_TRUE(component->ReleaseAfterUse(5).ok());
}

TEST(Component, FixedWeightsArePlacedBeforeUses) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = rig.Make({});
  EXPECT_EQ(component->BeginUse({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->bytes().total(), 0);
  ASSERT_TRUE(component->PlaceFixed().ok());
  ASSERT_TRUE(component->PlaceFixed().ok());
  EXPECT_EQ(component->bytes().fixed, component->map().fixed.bytes);
  ASSERT_TRUE(component->RemoveFixed().ok());
  EXPECT_EQ(component->bytes().total(), 0);
  EXPECT_EQ(component->BeginUse({}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Component, RefusesUsesOutOfRange) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig, {}, {.count = 6});
  const auto message = [&](UseOptions use) {
    const absl::Status status = component->BeginUse(use);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({.resident_layers = 7}), HasSubstr("resident_layers: 7 given; 0 to 6"));
  EXPECT_THAT(message({.resident_layers = -1}), HasSubstr("resident_layers: -1"));
  EXPECT_THAT(message({.passes = 0}), HasSubstr("passes: 0"));
  EXPECT_THAT(message({.activation_bytes = -1}), HasSubstr("activation_bytes: -1"));
  Lanes lanes(64, 7);
  EXPECT_EQ(component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(component->BeginUse({.passes = 1}).ok());
  Lanes odd(9);
  EXPECT_EQ(component->RunPass(absl::MakeSpan(odd), absl::ZeroDuration()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).ok());
  EXPECT_EQ(component->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Component, RefusesOptionsThatAreNotItsOwn) {
  Rig rig;
  const auto create = [&](ComponentOptions options) {
    return StreamedComponent::Create(rig.pool.get(), rig.Map(), std::move(options)).status().code();
  };
  const KeepOrder good = *MakeKeepOrder(rig.Map().lists, {});
  EXPECT_EQ(create({.keep = good, .window_layers = 2}), absl::StatusCode::kOk);
  EXPECT_EQ(create({.keep = good, .window_layers = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create({.keep = good, .window_layers = 65}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}), absl::StatusCode::kInvalidArgument);
  KeepOrder twice = good;
  twice.order[3] = twice.order[4];
  EXPECT_EQ(create({.keep = twice}), absl::StatusCode::kInvalidArgument);
  KeepOrder many = good;
  many.configured = 13;
  EXPECT_EQ(create({.keep = many}), absl::StatusCode::kInvalidArgument);
}

TEST(Component, ARefusedPinMeansPageable) {
  Rig rig;
  rig.card->SetFaults({.refuse_pin = true});
  std::unique_ptr<StreamedComponent> component = Placed(rig, {.tier = HostTier::kPinned});
  EXPECT_EQ(component->tier(), HostTier::kPageable);
  EXPECT_EQ(component->pin_status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Use(*component, 5, 2, 5), Reference(component->map(), 2));
}

TEST(Component, APinThatIsPutOffComesBetweenUses) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component =
      Placed(rig, {.tier = HostTier::kPinned, .pin_at_once = false});
  EXPECT_EQ(component->tier(), HostTier::kPageable);
  EXPECT_TRUE(component->pin_status().ok());
  EXPECT_GE(component->pin_bytes(), component->map().file->mapping_bytes());
  const Lanes expected = Reference(component->map(), 2);
  EXPECT_EQ(Use(*component, 5, 2, 5), expected);
  ASSERT_TRUE(component->BeginUse({.resident_layers = 5}).ok());
  EXPECT_EQ(component->PinHostCopy().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(component->tier(), HostTier::kPageable);
  ASSERT_TRUE(component->ReleaseAfterUse(3).ok());
  ASSERT_TRUE(component->PinHostCopy().ok()) << component->pin_status();
  EXPECT_EQ(component->tier(), HostTier::kPinned);
  EXPECT_TRUE(component->PinHostCopy().ok());
  EXPECT_EQ(component->held_layers(), 3);
  EXPECT_EQ(Use(*component, 5, 2, 0), expected);
}

TEST(Component, APutOffPinThatIsRefusedMeansPageable) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component =
      Placed(rig, {.tier = HostTier::kPinned, .pin_at_once = false});
  rig.card->SetFaults({.refuse_pin = true});
  EXPECT_EQ(component->PinHostCopy().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(component->tier(), HostTier::kPageable);
  EXPECT_EQ(component->pin_status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Use(*component, 5, 2, 5), Reference(component->map(), 2));
}

TEST(Component, TheWindowIsFilledWhileLayersCompute) {
  // Every layer copies in about a fifth of the time it computes.
  Rig rig(64 << 20, {}, 10e6);
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  const double copy_seconds = static_cast<double>(component->PrefixBytes(kLayers)) / 10e6;
  ASSERT_TRUE(component->BeginUse({.resident_layers = 0, .passes = 2}).ok());
  Lanes lanes(64, 7);
  for (int pass = 0; pass < 2; ++pass) {
    absl::StatusOr<PassStats> stats =
        component->RunPass(absl::MakeSpan(lanes), absl::Seconds(5 * copy_seconds));
    ASSERT_TRUE(stats.ok());
    // All but the first copies of the first pass hide behind computing.
    EXPECT_LT(absl::ToDoubleSeconds(stats->stall), copy_seconds / 2);
  }
  EXPECT_TRUE(component->ReleaseAfterUse().ok());
}

TEST(Component, AUseDoesNotWaitForThePaceOfALoadAhead) {
  Rig rig;
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  std::atomic<bool> locked{false};
  std::thread loader([&] {
    std::unique_lock<std::mutex> lock = component->Lock();
    locked = true;
    // At this pace the layer would take more than an hour.
    EXPECT_TRUE(component->LoadNext(10).ok());
  });
  while (!locked) std::this_thread::yield();
  {
    std::unique_lock<std::mutex> lock = component->LockUrgently();
    EXPECT_EQ(component->held_layers(), 1);
    EXPECT_EQ(Use(*component, 6, 1, 6), Reference(component->map(), 1));
  }
  loader.join();
}

TEST(Component, GivesEverythingBackWhenItGoes) {
  Rig rig(64 << 20, {.caching = false});
  std::unique_ptr<StreamedComponent> component = Placed(rig);
  Use(*component, 9, 1, 9);
  ASSERT_TRUE(component->BeginUse({.resident_layers = 12, .activation_bytes = 100}).ok());
  EXPECT_GT(rig.OnCard(), 0);
  component.reset();
  EXPECT_EQ(rig.OnCard(), 0);
}

}  // namespace
}  // namespace vrambroker::offload
