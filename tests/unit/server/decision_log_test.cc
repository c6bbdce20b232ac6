// The writer: what reaches the files, what is dropped and said to be.
#include "broker/server/decision_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "broker/core/explain.h"
#include "tests/poll.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;
using testing::Not;

core::LogDecision DecisionOf(uint64_t id, std::shared_ptr<const core::Knowledge> knowledge) {
  core::Decision decision;
  decision.id = core::DecisionId(id);
  decision.time = absl::UnixEpoch() + absl::Seconds(id);
  decision.kind = core::DecisionKind::kGrant;
  decision.component = "w/c";
  decision.text = "granted";
  decision.planned = knowledge != nullptr;
  return {decision, std::move(knowledge), 0};
}

std::shared_ptr<core::Knowledge> SomeKnowledge() {
  auto knowledge = std::make_shared<core::Knowledge>();
  const auto component = std::make_shared<const core::KnownComponent>(
      core::KnownComponent{core::ComponentId(1), "w/c",
                           core::LayerTable({{2, core::Bytes(100)}, {1, core::Bytes(50)}})});
  knowledge->components.push_back(component);
  core::PlanComponent c;
  c.layers = &component->layers;
  knowledge->problem.components.push_back(c);
  knowledge->problem.slots = 1;
  knowledge->slot_starts = {0.1};
  knowledge->keep = knowledge->ahead = {0};
  return knowledge;
}

class DecisionLogTest : public testing::Test {
 protected:
  DecisionLogTest() {
    char folder[] = "/tmp/decision_log_test.XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~DecisionLogTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& more = "") const { return folder_ + "/log" + more; }
  std::string Contents(const std::string& more = "") const {
    std::ifstream file(path(more));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::unique_ptr<DecisionLog> Open(const std::string& where, int64_t max_bytes = 1 << 20) {
    auto file = observe::DecisionLogFile::Open(where, max_bytes, 3);
    EXPECT_TRUE(file.ok()) << file.status();
    v1::DecisionLogHeader header;
    header.set_version(1);
    header.set_broker_epoch(5);
    return std::make_unique<DecisionLog>(*std::move(file), header,
                                         [this](uint64_t lines, const std::string& why) {
                                           told_ += lines;
                                           why_ = why;
                                         });
  }

  std::string folder_;
  // Written by the log's thread; to be read once the log is gone.
  uint64_t told_ = 0;
  std::string why_;
};

int CountOf(const std::string& what, const std::string& text) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST_F(DecisionLogTest, BeginsWithAHeaderAndWritesWhatWaitsAtItsEnd) {
  auto log = Open(path());
  log->Write(DecisionOf(7, nullptr));
  v1::DecisionLogLine line;
  line.mutable_run_ended()->set_run_id(3);
  log->Write(line);
  log.reset();
  const std::string text = Contents();
  EXPECT_EQ(CountOf("\n", text), 3);
  EXPECT_EQ(text.find("{\"time\":"), 0u);
  EXPECT_THAT(text, HasSubstr("\"header\":{\"version\":1,\"broker_epoch\":\"5\"}"));
  EXPECT_THAT(text, HasSubstr("\"id\":\"7\""));
  EXPECT_THAT(text, HasSubstr("{\"run_ended\":{\"run_id\":\"3\"}}"));
  EXPECT_EQ(told_, 0u);
}

TEST_F(DecisionLogTest, APlanStandsOnceForTheDecisionsThatShareIt) {
  const auto plan = SomeKnowledge();
  auto log = Open(path());
  for (uint64_t id = 1; id <= 3; ++id) log->Write(DecisionOf(id, plan));
  log->Write(DecisionOf(4, SomeKnowledge()));
  log.reset();
  const std::string text = Contents();
  EXPECT_EQ(CountOf("\"plan\":{", text), 2);
  EXPECT_EQ(CountOf("\"plan_decision_id\":\"1\"", text), 3);
  EXPECT_EQ(CountOf("\"plan_decision_id\":\"4\"", text), 1);
  EXPECT_THAT(text, HasSubstr("\"layer_runs\":[{\"count\":2,\"layer_bytes\":\"100\"},"
                              "{\"count\":1,\"layer_bytes\":\"50\"}]"));
}

TEST_F(DecisionLogTest, EveryFileCanBeReadAlone) {
  const auto plan = SomeKnowledge();
  v1::DecisionLogLine worker;
  worker.mutable_worker()->set_worker("w");
  v1::DecisionLogLine other;
  other.mutable_worker()->set_worker("gone");
  v1::DecisionLogLine gone;
  gone.mutable_worker_gone()->set_worker("gone");
  auto log = Open(path(), 3000);
  for (const auto& line : {worker, other, gone}) log->Write(line);
  for (uint64_t id = 1; id <= 40; ++id) log->Write(DecisionOf(id, plan));
  log.reset();
  for (const char* more : {"", ".1", ".2"}) {
    const std::string text = Contents(more);
    EXPECT_LE(text.size(), 3000u);
    EXPECT_EQ(CountOf("\"header\"", text), 1) << more;
    EXPECT_EQ(CountOf("\"worker\":{\"worker\":\"w\"}", text), 1) << more;
    EXPECT_EQ(CountOf("\"plan\":{", text), 1) << more;
    EXPECT_LT(text.find("\"plan\":{"), text.find("\"plan_decision_id\"") + 1000) << more;
  }
  EXPECT_THAT(Contents(), Not(HasSubstr("\"gone\"")));
  EXPECT_THAT(Contents(), HasSubstr("\"id\":\"40\""));
}

TEST_F(DecisionLogTest, AFullDiskDropsAndCounts) {
  auto log = Open("/dev/full");
  for (uint64_t id = 1; id <= 5; ++id) log->Write(DecisionOf(id, nullptr));
  log.reset();
  EXPECT_EQ(told_, 5u);
  EXPECT_THAT(why_, HasSubstr("No space left"));
}

TEST_F(DecisionLogTest, AFolderThatVanishesCostsLinesUntilItIsBack) {
  std::filesystem::create_directory(path(".d"));
  auto log = Open(path(".d/log"));
  log->Write(DecisionOf(1, nullptr));
  ASSERT_TRUE(WaitFor([&] { return CountOf("\"id\":\"1\"", Contents(".d/log")) == 1; }));
  EXPECT_TRUE(WaitFor([] { return DecisionLog::Unwritten() == 0; }));
  std::filesystem::remove_all(path(".d"));
  log->Write(DecisionOf(2, nullptr));
  ASSERT_TRUE(WaitFor([&] { return log->dropped() == 1; }));
  std::filesystem::create_directory(path(".d"));
  log->Write(DecisionOf(3, nullptr));
  log.reset();
  const std::string text = Contents(".d/log");
  EXPECT_EQ(text.find("{\"time\":"), 0u);
  EXPECT_EQ(CountOf("\"header\"", text), 1);
  EXPECT_EQ(CountOf("\"id\":\"3\"", text), 1);
  EXPECT_THAT(text, HasSubstr("\"dropped\":{\"lines\":\"1\"}"));
  EXPECT_EQ(told_, 1u);
  EXPECT_THAT(why_, HasSubstr("No such file or directory"));
}

TEST_F(DecisionLogTest, AQueueThatIsFullDropsCountsAndSaysSoInTheFile) {
  auto log = Open(path(), 64 << 20);
  constexpr uint64_t kMany = 4 * DecisionLog::kMaxWaiting;
  for (uint64_t id = 1; id <= kMany; ++id) log->Write(DecisionOf(id, nullptr));
  const uint64_t dropped = log->dropped();
  log.reset();
  const std::string text = Contents();
  EXPECT_EQ(static_cast<uint64_t>(CountOf("\"decision\":{\"decision\"", text)), kMany - dropped);
  EXPECT_EQ(told_, dropped);
  EXPECT_EQ(CountOf("\"dropped\":{\"lines\"", text) > 0, dropped > 0);
}

TEST_F(DecisionLogTest, WhatWaitsRestsOnSoManyBytesAtMost) {
  auto big = SomeKnowledge();
  big->bytes = DecisionLog::kMaxWaitingBytes + 1;
  auto log = Open(path());
  log->Write(DecisionOf(1, big));
  EXPECT_EQ(log->dropped(), 1u);
  log->Write(DecisionOf(2, nullptr));
  EXPECT_EQ(log->dropped(), 1u);
  log.reset();
  EXPECT_THAT(Contents(), HasSubstr("\"dropped\":{\"lines\":\"1\"}"));
  EXPECT_THAT(Contents(), HasSubstr("\"id\":\"2\""));
}

}  // namespace
}  // namespace vrambroker::server
