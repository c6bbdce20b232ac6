#include "broker/core/run_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vrambroker::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

absl::Time At(int seconds) { return absl::FromUnixSeconds(1000 + seconds); }

Run Of(uint64_t id, uint64_t driver, int starts_at, const std::vector<std::string>& stages) {
  Run run;
  run.id = RunId(id);
  run.driver = SessionId(driver);
  run.starts_at = At(starts_at);
  std::vector<StageSpec> all;
  for (const std::string& name : stages) {
    StageSpec stage;
    stage.component = name;
    all.push_back(std::move(stage));
  }
  run.stages = std::make_shared<const std::vector<StageSpec>>(std::move(all));
  return run;
}

TEST(RunBook, RunsWaitByTheirStartAndThenByTheirDeclaration) {
  RunBook book;
  book.Add(Of(1, 1, 5, {"a"}));
  book.Add(Of(2, 1, 0, {"a"}));
  book.Add(Of(3, 2, 0, {"a"}));
  EXPECT_EQ(book.size(), 3);
  EXPECT_THAT(book.waiting(),
              ElementsAre(Pair(At(0), RunId(2)), Pair(At(0), RunId(3)), Pair(At(5), RunId(1))));
  EXPECT_THAT(book.started(), IsEmpty());
}

TEST(RunBook, AStartedRunWaitsNoMoreAndStandsInTheOrderOfStarts) {
  RunBook book;
  book.Add(Of(1, 1, 0, {"a", "b"}));
  book.Add(Of(2, 1, 0, {"a"}));
  book.Start(RunId(2), 7);
  book.Start(RunId(1), 9);
  book.SetNextStage(RunId(1), 2);
  EXPECT_THAT(book.waiting(), IsEmpty());
  EXPECT_THAT(book.started(), ElementsAre(Pair(7, RunId(2)), Pair(9, RunId(1))));
  EXPECT_EQ(book.At(RunId(1)).next_stage, 2);
  EXPECT_EQ(book.At(RunId(1)).count(), 2);
  EXPECT_TRUE(book.At(RunId(1)).started());
  book.Erase(RunId(2));
  EXPECT_THAT(book.started(), ElementsAre(Pair(9, RunId(1))));
  EXPECT_EQ(book.Find(RunId(2)), nullptr);
}

TEST(RunBook, AComponentIsNamedAsLongAsARunHasItAsAStage) {
  RunBook book;
  book.Add(Of(1, 1, 0, {"a", "w/b", "a"}));
  book.Add(Of(2, 1, 0, {"a"}));
  EXPECT_TRUE(book.Names("a"));
  EXPECT_TRUE(book.Names("w/b"));
  EXPECT_FALSE(book.Names("b"));
  book.Erase(RunId(1));
  EXPECT_TRUE(book.Names("a"));
  EXPECT_FALSE(book.Names("w/b"));
  book.Erase(RunId(2));
  EXPECT_FALSE(book.Names("a"));
  EXPECT_TRUE(book.empty());
}

TEST(RunBook, TheRunsOfALostDriverEndAfterItsGraceUnlessItComesBack) {
  RunBook book;
  book.Add(Of(1, 1, 0, {"a"}));
  book.Add(Of(2, 1, 0, {"a"}));
  book.Add(Of(3, 2, 0, {"a"}));
  book.Start(RunId(1), 1);
  EXPECT_EQ(book.next_end(), absl::InfiniteFuture());
  book.EndAt(SessionId(1), At(30));
  EXPECT_EQ(book.next_end(), At(30));
  book.HandOver(SessionId(1), SessionId(9));
  EXPECT_EQ(book.next_end(), absl::InfiniteFuture());
  EXPECT_EQ(book.At(RunId(2)).driver, SessionId(9));
  EXPECT_FALSE(book.EraseEnded(At(1000)));

  book.EndAt(SessionId(1), At(31));  // nobody's now
  EXPECT_EQ(book.next_end(), absl::InfiniteFuture());
  book.EndAt(SessionId(9), At(40));
  EXPECT_FALSE(book.EraseEnded(At(39)));
  EXPECT_TRUE(book.EraseEnded(At(40)));
  EXPECT_EQ(book.size(), 1);
  EXPECT_EQ(book.all().begin()->first, RunId(3));
  EXPECT_THAT(book.started(), IsEmpty());
}

}  // namespace
}  // namespace vrambroker::core
