#include "broker/server/decision_recorder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vrambroker::server {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

// A core that says what the tests say.
class DecisionRecorderTest : public testing::Test {
 protected:
  using Lines = std::vector<v1::DecisionLogLine>;

  Lines Say(const core::Event& event, const core::Effects& effects) {
    recorder_.Note(event, kNow);
    for (const core::Effect& effect : effects) recorder_.Note(effect, kNow);
    return recorder_.Take();
  }

  Lines Attach(uint64_t session, std::vector<std::pair<std::string, core::UseId>> resumed = {}) {
    core::AttachEvent attach;
    attach.connection = core::ConnectionId(session);
    attach.worker = "w";
    attach.device_uuid = "gpu";
    attach.process = {1, 1};
    core::ComponentSpec spec;
    spec.name = "c";
    spec.layers = core::LayerTable({{3, core::Bytes(10)}});
    attach.components = {spec};
    core::SendDirective directive;
    directive.connection = attach.connection;
    directive.welcome = core::Welcome();
    directive.welcome->session = core::SessionId(session);
    directive.welcome->resumed_uses = std::move(resumed);
    return Say(attach, {directive});
  }
  core::CallHeader Header(uint64_t session, const std::string& id) {
    return {core::CallId(++calls_), core::SessionId(session), id, 0};
  }
  Lines Begin(uint64_t session, const std::string& id, uint64_t use, uint64_t run = 0) {
    core::BeginUseEvent begin;
    begin.header = Header(session, id);
    begin.use.component = "c";
    begin.use.run = core::RunId(run);
    core::BeginAnswer answer;
    answer.use = core::UseId(use);
    answer.resident = 2;
    return Say(begin, {core::Answer{begin.header.call, answer}});
  }
  Lines End(uint64_t session, uint64_t use, const std::string& begin_id = "") {
    core::EndUseEvent end;
    end.header = Header(session, "end");
    end.use = core::UseId(use);
    end.begin_request_id = begin_id;
    end.measured.stall_seconds = 0.5;
    return Say(end, {core::Answer{end.header.call, core::EndAnswer()}});
  }

  DecisionRecorder recorder_;
  uint64_t calls_ = 0;
};

TEST_F(DecisionRecorderTest, TellsOfWorkersUsesAndTheirEnds) {
  const Lines attached = Attach(1);
  ASSERT_EQ(attached.size(), 1u);
  EXPECT_EQ(attached[0].worker().worker(), "w");
  EXPECT_EQ(attached[0].worker().components(0).layer_runs(0).count(), 3);
  const Lines began = Begin(1, "a", 1);
  ASSERT_EQ(began.size(), 1u);
  EXPECT_EQ(began[0].use_began().component_id(), "w/c");
  EXPECT_EQ(began[0].use_began().granted_layers(), 2);
  const Lines ended = End(1, 1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].use_ended().use_id(), 1u);
  EXPECT_EQ(ended[0].use_ended().stall_seconds(), 0.5);
}

TEST_F(DecisionRecorderTest, RepeatsAreTheSameUse) {
  Attach(1);
  EXPECT_EQ(Begin(1, "a", 1).size(), 1u);
  EXPECT_EQ(Begin(1, "a", 1).size(), 0u);
  EXPECT_EQ(End(1, 1).size(), 1u);
  EXPECT_EQ(End(1, 1).size(), 0u);
}

TEST_F(DecisionRecorderTest, AUseThatGoesOnAcrossAnAttachEndsUnderItsFirstId) {
  Attach(1);
  Begin(1, "a", 1);
  Begin(1, "b", 2);
  const Lines again = Attach(2, {{"a", core::UseId(3)}});
  ASSERT_EQ(again.size(), 2u);
  EXPECT_TRUE(again[0].use_ended().lost());
  EXPECT_EQ(again[0].use_ended().use_id(), 2u);
  const Lines ended = End(2, 0, "a");
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].use_ended().use_id(), 1u);
}

TEST_F(DecisionRecorderTest, DeathEndsAWorkerAndItsUses) {
  Attach(1);
  Begin(1, "a", 1);
  const Lines died = Say(core::ProcessDiedEvent{{1, 1}}, {});
  ASSERT_EQ(died.size(), 2u);
  EXPECT_TRUE(died[0].use_ended().lost());
  EXPECT_EQ(died[1].worker_gone().worker(), "w");
  EXPECT_EQ(Say(core::ProcessDiedEvent{{1, 1}}, {}).size(), 0u);
}

TEST_F(DecisionRecorderTest, RunsAreDeclaredStartedAndEnded) {
  Attach(1);
  core::DeclareRunEvent declare;
  declare.header = Header(1, "d");
  declare.pipeline = "p";
  core::DeclareRunAnswer answer{core::RunId(9)};
  EXPECT_EQ(
      Say(declare, {core::Answer{declare.header.call, answer}}).at(0).run_declared().pipeline(),
      "p");
  declare.header.call = core::CallId(++calls_);
  EXPECT_EQ(Say(declare, {core::Answer{declare.header.call, answer}}).size(), 0u);
  const Lines first = Begin(1, "a", 1, 9);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].run_started().run_id(), 9u);
  EXPECT_EQ(Begin(1, "b", 2, 9).size(), 1u);
  core::FinishRunEvent finish;
  finish.header = Header(1, "f");
  finish.run = core::RunId(9);
  const Lines ended = Say(finish, {core::Answer{finish.header.call, core::EmptyAnswer()}});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].run_ended().run_id(), 9u);
}

TEST_F(DecisionRecorderTest, ChangedComponentsAreNamedAgain) {
  Attach(1);
  core::UpdateComponentsEvent update;
  update.header = Header(1, "u");
  update.remove = {"c"};
  core::ComponentSpec spec;
  spec.name = "d";
  update.upsert = {spec};
  const Lines lines = Say(update, {core::Answer{update.header.call, core::UpdateAnswer()}});
  ASSERT_EQ(lines.size(), 1u);
  ASSERT_EQ(lines[0].worker().components_size(), 1);
  EXPECT_EQ(lines[0].worker().components(0).name(), "d");
}

TEST_F(DecisionRecorderTest, NothingIsSaidOfWhatWasRefusedOrGivenUp) {
  Attach(1);
  core::BeginUseEvent begin;
  begin.header = Header(1, "a");
  EXPECT_EQ(Say(begin, {core::Answer{begin.header.call, absl::AbortedError("no")}}).size(), 0u);
  begin.header = Header(1, "b");
  EXPECT_EQ(Say(begin, {}).size(), 0u);
  EXPECT_EQ(Say(core::CallCancelledEvent{begin.header.call}, {}).size(), 0u);
  EXPECT_EQ(Say(core::TickEvent{}, {core::Answer{begin.header.call, core::BeginAnswer()}}).size(),
            0u);
}

}  // namespace
}  // namespace vrambroker::server
