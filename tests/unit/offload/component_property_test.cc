// Random sequences of everything that may happen to a component, against a reference that holds all
// its layers all the time: results are bit-identical and the books are right after every step.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stage_workers/offload/component.h"
#include "tests/unit/offload/offload_test_util.h"

namespace vrambroker::offload {
namespace {

constexpr int kLayers = 12;

class RandomOperations {
 public:
  RandomOperations(uint32_t seed, bool caching, KeepSpec keep, bool faults)
      : random_(seed), faults_(faults), rig_(64 << 20, {.caching = caching}) {
    component_ = rig_.Make({.window_layers = 1 + static_cast<int>(Below(4))}, keep);
    reference_ = reference_rig_.Make({.lifetime = Lifetime::kPermanent});
    EXPECT_TRUE(component_->PlaceFixed().ok());
    EXPECT_TRUE(reference_->PlaceFixed().ok());
    EXPECT_TRUE(reference_->PlacePermanent().ok());
  }

  void Run(int steps) {
    for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
      Perform();
      CheckBooks();
      CheckHeld();
      if (testing::Test::HasFailure()) std::printf("trace:%s\n", trace_.c_str());
    }
  }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  void Trace(const std::string& what) { trace_ += " " + what; }

  void Perform() {
    switch (Below(10)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return UseOnce();
      case 4: {
        const int target = Below(kLayers + 1);
        Trace(absl::StrCat("ReleaseTo(", target, ")"));
        EXPECT_TRUE(component_->ReleaseTo(target).ok());
        EXPECT_LE(component_->held_layers(), target);
        return;
      }
      case 5:
      case 6: {
        const int before = component_->held_layers();
        Trace("LoadNext");
        absl::StatusOr<int> held = component_->LoadNext(Below(2) == 0 ? 0 : 5e8);
        EXPECT_EQ(held.ok(), before < component_->configured_layers());
        return;
      }
      case 7:
        Trace("ReleaseAll");
        EXPECT_TRUE(component_->ReleaseAll().ok());
        EXPECT_EQ(component_->held_layers(), 0);
        return;
      case 8:
        return ChangeLayer();
      default:
        Trace("Trim");
        rig_.pool->Trim();
        // What is left is the excess of blocks in use.
        EXPECT_LE(rig_.pool->Stats().pooled_bytes, rig_.pool->Stats().used_bytes / 8);
    }
  }

  void ChangeLayer() {
    const int layer = Below(kLayers);
    Trace(absl::StrCat("Change(", layer, ")"));
    const std::vector<char> bytes(component_->map().layers[layer].tensors.bytes,
                                  static_cast<char>(random_()));
    EXPECT_TRUE(component_->WriteLayer(layer, bytes).ok());
    EXPECT_TRUE(reference_->WriteLayer(layer, bytes).ok());
  }

  void InjectFault() {
    if (!faults_ || Below(3) != 0) return;
    const int before = Below(20);
    Trace(absl::StrCat("Fault(", before, ")"));
    if (Below(2) == 0) {
      rig_.card->SetFaults({.failing_allocations = 1, .allocations_before_failing = before});
    } else {
      rig_.card->SetFaults({.failing_copies = 1, .copies_before_failing = before});
    }
  }

  void UseOnce() {
    UseOptions use = {
        .resident_layers = static_cast<int>(Below(component_->configured_layers() + 1)),
        .passes = 1 + static_cast<int>(Below(3)),
        .activation_bytes = Below(2) * 12'345};
    const int keep = Below(kLayers + 3);
    Trace(absl::StrCat("Use(", use.resident_layers, ",", use.passes, ",", keep, ")"));
    Lanes lanes(32, random_());
    Lanes expected = lanes;
    bool good = true;
    if (!component_->BeginUse(use).ok()) {
      ADD_FAILURE() << "BeginUse";
      return;
    }
    InjectFault();
    ASSERT_TRUE(reference_->BeginUse(use).ok());
    // Some uses end before all their passes have run.
    const int passes = Below(4) == 0 ? Below(use.passes + 1) : use.passes;
    for (int pass = 0; pass < passes && good; ++pass) {
      good = component_->RunPass(absl::MakeSpan(lanes), absl::ZeroDuration()).ok();
      EXPECT_TRUE(good || faults_);
      EXPECT_TRUE(reference_->RunPass(absl::MakeSpan(expected), absl::ZeroDuration()).ok());
      CheckBooks();
    }
    rig_.card->SetFaults({});
    if (good) {
      EXPECT_EQ(lanes, expected);
    }
    EXPECT_TRUE(component_->ReleaseAfterUse(keep).ok());
    EXPECT_TRUE(reference_->ReleaseAfterUse().ok());
    EXPECT_LE(component_->held_layers(), std::min(keep, use.resident_layers));
    if (good && passes > 0) {
      EXPECT_EQ(component_->held_layers(), std::min(keep, use.resident_layers));
    }
  }

  // The card shows what the pool has, and the pool what the component has.
  void CheckBooks() {
    const PoolStats stats = rig_.pool->Stats();
    EXPECT_EQ(stats.used_bytes, component_->bytes().total());
    EXPECT_EQ(stats.used_bytes + stats.pooled_bytes, rig_.OnCard());
  }

  // Between uses a prefix of the keep order is held, and nothing else is there.
  void CheckHeld() {
    const int held = component_->held_layers();
    EXPECT_LE(held, component_->configured_layers());
    for (int rank = 0; rank < kLayers; ++rank) {
      const int layer = component_->options().keep.order[rank];
      EXPECT_EQ(static_cast<bool>(component_->LayerBuffer(layer)), rank < held);
    }
    EXPECT_EQ(component_->bytes().total(),
              component_->map().fixed.bytes + component_->PrefixBytes(held));
  }

  std::mt19937 random_;
  const bool faults_;
  Rig rig_;
  Rig reference_rig_;
  std::unique_ptr<StreamedComponent> component_;
  std::unique_ptr<StreamedComponent> reference_;
  std::string trace_;
};

TEST(ComponentProperty, ResultsAreIdenticalWhateverHappensBetweenUses) {
  const std::vector<KeepSpec> specs = {{},
                                       {.pattern = KeepPattern::kLeading, .count = 7},
                                       {.pattern = KeepPattern::kStrided, .count = 5},
                                       {.pattern = KeepPattern::kRatioPerList, .ratio = 0.6},
                                       {.pattern = KeepPattern::kLeading, .count = 0}};
  for (uint32_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomOperations(seed, seed % 2 == 0, specs[seed % specs.size()], /*faults=*/false).Run(60);
  }
}

TEST(ComponentProperty, FailuresHalfWayLeaveTheBooksRight) {
  for (uint32_t seed = 101; seed <= 120 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomOperations(seed, seed % 2 == 0, {.pattern = KeepPattern::kRatioPerList, .ratio = 0.8},
                     /*faults=*/true)
        .Run(60);
  }
}

}  // namespace
}  // namespace vrambroker::offload
