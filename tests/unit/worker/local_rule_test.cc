#include "stage_workers/worker/local_rule.h"

#include "gtest/gtest.h"

namespace vrambroker::worker {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(LocalRule, ReadsWhatIsRetained) {
  EXPECT_EQ(ParseRetain("none")->mode, RetainMode::kNone);
  EXPECT_EQ(ParseRetain("all")->mode, RetainMode::kAll);
  const absl::StatusOr<RetainRule> rule = ParseRetain("if-free:4GiB");
  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_EQ(rule->mode, RetainMode::kIfFree);
  EXPECT_EQ(rule->free_bytes, 4 * kGiB);
  for (const char* text : {"", "some", "if-free", "if-free:", "if-free:much", "All"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRetain(text).status())) << text;
  }
}

TEST(LocalRule, KeepsTheWholeSetOrNothing) {
  const RetainRule rule = {.mode = RetainMode::kIfFree, .free_bytes = 4 * kGiB};
  EXPECT_EQ(LayersToKeep(rule, 53, 4 * kGiB), 53);
  EXPECT_EQ(LayersToKeep(rule, 53, 4 * kGiB - 1), 0);
  EXPECT_EQ(LayersToKeep({.mode = RetainMode::kAll}, 53, 0), 53);
  EXPECT_EQ(LayersToKeep({.mode = RetainMode::kNone}, 53, 100 * kGiB), 0);
}

TEST(LocalRule, ReadsTheConfiguredSet) {
  const absl::StatusOr<offload::KeepSpec> count = ParseResident("53");
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(count->pattern, offload::KeepPattern::kLeading);
  EXPECT_EQ(count->count, 53);
  const absl::StatusOr<offload::KeepSpec> ratio = ParseResident("0.8");
  ASSERT_TRUE(ratio.ok());
  EXPECT_EQ(ratio->pattern, offload::KeepPattern::kRatioPerList);
  EXPECT_EQ(ratio->ratio, 0.8);
  EXPECT_EQ(ParseResident("all")->count, -1);
  EXPECT_EQ(ParseResident("1.0")->ratio, 1.0);
  for (const char* text : {"", "-1", "1.1", "-0.5", "many", "8x", "0.8.1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseResident(text).status())) << text;
  }
}

TEST(LocalRule, ARatioTakesItsShareOfEachBlockList) {
  const std::vector<offload::BlockList> lists = {{"a", 36}, {"b", 27}, {"c", 3}};
  const absl::StatusOr<offload::KeepOrder> order =
      offload::MakeKeepOrder(lists, *ParseResident("0.8"));
  ASSERT_TRUE(order.ok());
  EXPECT_EQ(order->configured, 53);
}

FitQuestion Question(int64_t available) {
  FitQuestion question;
  question.configured = 10;
  question.prefix_bytes = [](int layers) { return int64_t{100} * layers; };
  question.window_bytes = [](int layers) { return int64_t{layers < 10 ? 200 : 0}; };
  question.activation_bytes = 50;
  question.available_bytes = available;
  return question;
}

TEST(LocalRule, FitsAsManyLayersAsThereIsRoomFor) {
  EXPECT_EQ(LayersThatFit(Question(1049)), 7);
  EXPECT_EQ(LayersThatFit(Question(350)), 1);
  EXPECT_EQ(LayersThatFit(Question(349)), 0);
  EXPECT_EQ(LayersThatFit(Question(0)), 0);
}

TEST(LocalRule, TheWholeSetNeedsNoWindow) {
  // Nine layers and a window take more than all ten without one.
  EXPECT_EQ(LayersThatFit(Question(1050)), 10);
}

}  // namespace
}  // namespace vrambroker::worker
