#include "stage_workers/card/cuda_card.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/card/card_test_util.h"

namespace vrambroker::card {
namespace {

TEST(CudaCard, ListsCardsOrSaysWhyThereAreNone) {
  absl::StatusOr<std::vector<std::string>> cards = ListCudaCards();
  if (cards.ok()) {
    for (const std::string& uuid : *cards) EXPECT_THAT(uuid, testing::StartsWith("GPU-"));
    return;
  }
  EXPECT_EQ(cards.status().code(),
            BuiltWithCuda() ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnimplemented);
  EXPECT_EQ(OpenCudaCard("GPU-0").status(), cards.status());
  EXPECT_EQ(OpenCard("GPU-0").status(), cards.status());
}

TEST(CudaCard, OpensEitherKindByUuid) {
  TestCardName name;
  std::unique_ptr<EmulatedCard> emulated = MakeCard(name, 1 << 20);
  absl::StatusOr<std::unique_ptr<Card>> card = OpenCard(emulated->Uuid());
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_EQ((*card)->CapacityBytes(), 1 << 20);
  EXPECT_EQ(OpenCard("emulated:none-" + name.get()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace vrambroker::card
