#include "broker/server/convert_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>

#include "broker/server/size.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

// Each of `cases` spoils a good request; reading it must be refused, naming what was spoilt.
template <typename Request, typename Read, typename Cases>
void ExpectRefusals(const Request& good, Read read, const Cases& cases) {
  ASSERT_TRUE(read(good).ok()) << read(good).status();
  for (const auto& [spoil, named] : cases) {
    Request request = good;
    spoil(&request);
    const auto event = read(request);
    EXPECT_EQ(event.status().code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_THAT(std::string(event.status().message()), HasSubstr(named));
    EXPECT_THAT(std::string(event.status().message()), HasSubstr("allowed"));
  }
}

template <typename Request>
using Case = std::pair<std::function<void(Request*)>, const char*>;

v1::BeginUseRequest GoodBegin() {
  v1::BeginUseRequest request;
  request.set_session_id(2);
  request.set_request_id(std::string(64, 'r'));
  request.set_component("dit");
  request.set_run_id(4);
  request.set_stage(63);
  request.set_passes(1000000);
  request.set_activation_bytes(kMaxBytes);
  request.set_shape(std::string(64, 's'));
  request.set_activation_is_exact(true);
  request.set_window_bytes(7);
  request.set_min_resident_layers(3);
  request.set_max_resident_layers(9);
  request.set_priority(-100);
  for (int i = 1; i <= 16; ++i) request.add_held_use_ids(static_cast<uint64_t>(i));
  return request;
}

TEST(ReadBeginUse, TakesAShardGroup) {
  v1::BeginUseRequest request = GoodBegin();
  request.clear_held_use_ids();
  request.mutable_shard_group()->set_name("run-1-stage-2");
  request.mutable_shard_group()->set_size(64);
  const auto event = ReadBeginUse(request);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->use.group, "run-1-stage-2");
  EXPECT_EQ(event->use.group_size, 64);
}

TEST(ReadBeginUse, TakesEveryField) {
  const auto event = ReadBeginUse(GoodBegin());
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->header.session, core::SessionId(2));
  EXPECT_EQ(event->header.request_id, std::string(64, 'r'));
  EXPECT_EQ(event->use.component, "dit");
  EXPECT_EQ(event->use.run, core::RunId(4));
  EXPECT_EQ(event->use.stage, 63);
  EXPECT_EQ(event->use.passes, 1000000);
  EXPECT_EQ(event->use.activation, core::Bytes(kMaxBytes));
  EXPECT_EQ(event->use.shape, std::string(64, 's'));
  EXPECT_TRUE(event->use.activation_is_exact);
  EXPECT_EQ(event->use.window, core::Bytes(7));
  EXPECT_EQ(event->use.min_resident, 3);
  EXPECT_EQ(event->use.max_resident, 9);
  EXPECT_EQ(event->use.priority, -100);
  EXPECT_EQ(event->use.held_uses.size(), 16u);
}

TEST(ReadBeginUse, ZeroMeansWhatIsDocumented) {
  v1::BeginUseRequest request;
  request.set_session_id(1);
  request.set_request_id("r");
  request.set_component("dit");
  request.set_stage(-9);  // ignored without a run
  request.set_min_resident_layers(4096);
  const auto event = ReadBeginUse(request);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->use.passes, 1);
  EXPECT_EQ(event->use.stage, 0);
  EXPECT_EQ(event->use.max_resident, 0);
}

TEST(ReadBeginUse, RefusesEachFieldOutOfItsRange) {
  using R = v1::BeginUseRequest;
  const Case<R> cases[] = {
      {[](R* r) { r->clear_session_id(); }, "session_id: 0"},
      {[](R* r) { r->clear_request_id(); }, "request_id: 0 bytes"},
      {[](R* r) { r->set_request_id(std::string(65, 'r')); }, "request_id: 65 bytes"},
      {[](R* r) { r->clear_component(); }, "component: ''"},
      {[](R* r) { r->set_component("worker/dit"); }, "component: 'worker/dit'"},
      {[](R* r) { r->set_stage(-1); }, "stage: -1"},
      {[](R* r) { r->set_stage(64); }, "stage: 64"},
      {[](R* r) { r->set_passes(-1); }, "passes: -1"},
      {[](R* r) { r->set_passes(1000001); }, "passes: 1000001 given, 0 to 1000000"},
      {[](R* r) { r->set_activation_bytes(-1); }, "activation_bytes: -1 bytes"},
      {[](R* r) { r->set_activation_bytes(kMaxBytes + 1); }, "activation_bytes"},
      {[](R* r) { r->set_shape(std::string(65, 's')); }, "shape"},
      {[](R* r) { r->set_window_bytes(-1); }, "window_bytes: -1 bytes"},
      {[](R* r) { r->set_min_resident_layers(-1); }, "min_resident_layers: -1"},
      {[](R* r) { r->set_min_resident_layers(10); }, "min_resident_layers: 10 given, 0 to 9"},
      {[](R* r) { r->set_max_resident_layers(4097); }, "max_resident_layers: 4097"},
      {[](R* r) { r->set_max_resident_layers(-1); }, "max_resident_layers: -1"},
      {[](R* r) { r->set_priority(-101); }, "priority: -101 given, -100 to 100"},
      {[](R* r) { r->set_priority(101); }, "priority: 101"},
      {[](R* r) { r->add_held_use_ids(17); }, "held_use_ids (count): 17"},
      {[](R* r) { r->set_held_use_ids(3, 0); }, "held_use_ids: 0"},
      {[](R* r) { r->mutable_shard_group()->set_size(2); }, "shard_group.name: 0 bytes"},
      {[](R* r) { r->mutable_shard_group()->set_name(std::string(65, 'g')); },
       "shard_group.name: 65 bytes"},
      {[](R* r) {
         r->mutable_shard_group()->set_name("g");
         r->mutable_shard_group()->set_size(1);
       },
       "shard_group.size: 1 given, 2 to 64"},
      {[](R* r) {
         r->mutable_shard_group()->set_name("g");
         r->mutable_shard_group()->set_size(2);
       },
       "held_use_ids: 16 ids beside shard_group"},
  };
  ExpectRefusals(GoodBegin(), ReadBeginUse, cases);
}

v1::EndUseRequest GoodEnd() {
  v1::EndUseRequest request;
  request.set_session_id(2);
  request.set_request_id("e");
  request.set_use_id(5);
  v1::Snapshot* snapshot = request.mutable_snapshot();
  snapshot->set_sequence(3);
  snapshot->add_components()->set_component("dit");
  snapshot->mutable_components(0)->set_held_layers(4096);
  v1::UseMeasurements* measured = request.mutable_measured();
  measured->set_peak_activation_bytes(1);
  measured->set_stall_seconds(0.5);
  measured->set_bytes_loaded(int64_t{1} << 50);
  measured->set_seconds(2);
  measured->set_compute_seconds(1.5);
  measured->set_copy_seconds(0.75);
  measured->set_passes(40);
  measured->set_warm_up(true);
  return request;
}

TEST(ReadEndUse, TakesEveryField) {
  const auto event = ReadEndUse(GoodEnd());
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->use, core::UseId(5));
  EXPECT_EQ(event->snapshot.sequence, 3u);
  EXPECT_EQ(event->snapshot.components[0].held, 4096);
  EXPECT_EQ(event->measured.peak_activation, core::Bytes(1));
  EXPECT_EQ(event->measured.stall_seconds, 0.5);
  EXPECT_EQ(event->measured.bytes_loaded, core::Bytes(int64_t{1} << 50));
  EXPECT_EQ(event->measured.seconds, 2);
  EXPECT_EQ(event->measured.compute_seconds, 1.5);
  EXPECT_EQ(event->measured.copy_seconds, 0.75);
  EXPECT_EQ(event->measured.passes, 40);
  EXPECT_TRUE(event->measured.warm_up);
}

TEST(ReadEndUse, NamesTheUseByItsRequestToo) {
  v1::EndUseRequest request = GoodEnd();
  request.clear_use_id();
  request.set_begin_request_id("b");
  request.clear_snapshot();
  request.clear_measured();
  const auto event = ReadEndUse(request);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->use);
  EXPECT_EQ(event->begin_request_id, "b");
  EXPECT_EQ(event->snapshot.sequence, 0u);
}

TEST(ReadEndUse, RefusesEachFieldOutOfItsRange) {
  using R = v1::EndUseRequest;
  const Case<R> cases[] = {
      {[](R* r) { r->clear_session_id(); }, "session_id: 0"},
      {[](R* r) { r->clear_request_id(); }, "request_id"},
      {[](R* r) { r->clear_use_id(); }, "use_id, begin_request_id: neither"},
      {[](R* r) { r->set_begin_request_id("b"); }, "use_id, begin_request_id: both"},
      {[](R* r) {
         r->clear_use_id();
         r->set_begin_request_id(std::string(65, 'b'));
       },
       "begin_request_id: 65 bytes"},
      {[](R* r) { r->mutable_snapshot()->set_sequence(0); }, "snapshot.sequence"},
      {[](R* r) { r->mutable_snapshot()->mutable_components(0)->set_held_layers(4097); },
       "held_layers: 4097"},
      {[](R* r) { r->mutable_snapshot()->mutable_components(0)->clear_component(); },
       "snapshot.components.component"},
      {[](R* r) {
         for (int i = 0; i < 64; ++i) {
           r->mutable_snapshot()->add_components()->set_component("x" + std::to_string(i));
         }
       },
       "snapshot.components (count): 65"},
      {[](R* r) { r->mutable_measured()->set_peak_activation_bytes(-1); },
       "measured.peak_activation_bytes"},
      {[](R* r) { r->mutable_measured()->set_bytes_loaded(-1); }, "measured.bytes_loaded"},
      {[](R* r) { r->mutable_measured()->set_stall_seconds(-1); }, "measured.stall_seconds"},
      {[](R* r) { r->mutable_measured()->set_seconds(std::nan("")); }, "measured.seconds"},
      {[](R* r) { r->mutable_measured()->set_compute_seconds(-0.1); }, "measured.compute_seconds"},
      {[](R* r) { r->mutable_measured()->set_copy_seconds(-0.1); }, "measured.copy_seconds"},
      {[](R* r) { r->mutable_measured()->set_passes(-1); }, "measured.passes"},
  };
  ExpectRefusals(GoodEnd(), ReadEndUse, cases);
}

TEST(ReadReport, NeedsASnapshot) {
  v1::ReportResidencyRequest good;
  good.set_session_id(1);
  good.mutable_snapshot()->set_sequence(1);
  using R = v1::ReportResidencyRequest;
  const Case<R> cases[] = {
      {[](R* r) { r->clear_session_id(); }, "session_id"},
      {[](R* r) { r->clear_snapshot(); }, "snapshot: none"},
      {[](R* r) { r->mutable_snapshot()->clear_sequence(); }, "snapshot.sequence"},
  };
  ExpectRefusals(good, ReadReport, cases);
}

v1::DeclarePipelineRequest GoodPipeline() {
  v1::DeclarePipelineRequest request;
  request.set_session_id(1);
  request.set_request_id("p");
  request.set_pipeline("text_to_image");
  for (int i = 0; i < 64; ++i) request.add_stages()->set_component("w/dit");
  request.mutable_stages(1)->set_shape("512x512x1");
  request.mutable_stages(1)->set_activation_is_exact(true);
  return request;
}

TEST(ReadDeclarePipeline, TakesStagesAndRefusesWhatIsOutOfRange) {
  const auto event = ReadDeclarePipeline(GoodPipeline());
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->stages.size(), 64u);
  EXPECT_EQ(event->stages[0], (core::StageSpec{"w/dit", 1, core::Bytes(), "", false}));
  EXPECT_EQ(event->stages[1], (core::StageSpec{"w/dit", 1, core::Bytes(), "512x512x1", true}));
  using R = v1::DeclarePipelineRequest;
  const Case<R> cases[] = {
      {[](R* r) { r->clear_session_id(); }, "session_id"},
      {[](R* r) { r->clear_request_id(); }, "request_id"},
      {[](R* r) { r->set_pipeline("a b"); }, "pipeline: 'a b'"},
      {[](R* r) { r->clear_stages(); }, "stages (count): 0"},
      {[](R* r) { r->add_stages()->set_component("x"); }, "stages (count): 65"},
      {[](R* r) { r->mutable_stages(7)->set_component("a/b/c"); }, "stages[7].component: 'a/b/c'"},
      {[](R* r) { r->mutable_stages(7)->set_component("/a"); }, "stages[7].component: '/a'"},
      {[](R* r) { r->mutable_stages(7)->set_passes(1000001); }, "stages[7].passes"},
      {[](R* r) { r->mutable_stages(7)->set_activation_bytes(-1); }, "stages[7].activation_bytes"},
  };
  ExpectRefusals(GoodPipeline(), ReadDeclarePipeline, cases);
}

TEST(ReadDeclareRun, TakesTimesFromNowOn) {
  v1::DeclareRunRequest good;
  good.set_session_id(1);
  good.set_request_id("r");
  good.set_pipeline("p");
  good.mutable_starts_in()->set_seconds(2);
  good.mutable_starts_in()->set_nanos(500000000);
  EXPECT_EQ(ReadDeclareRun(good)->starts_in, absl::Milliseconds(2500));
  using R = v1::DeclareRunRequest;
  const Case<R> cases[] = {
      {[](R* r) { r->clear_session_id(); }, "session_id"},
      {[](R* r) { r->clear_request_id(); }, "request_id"},
      {[](R* r) { r->clear_pipeline(); }, "pipeline"},
      {[](R* r) { r->mutable_starts_in()->set_seconds(-1); }, "starts_in: -1 s"},
      {[](R* r) { r->mutable_starts_in()->set_nanos(-1); }, "starts_in"},
      {[](R* r) { r->mutable_starts_in()->set_seconds(315576000001); }, "starts_in"},
  };
  ExpectRefusals(good, ReadDeclareRun, cases);
}

TEST(ReadFinishRun, NeedsARun) {
  v1::FinishRunRequest good;
  good.set_session_id(1);
  good.set_request_id("f");
  good.set_run_id(9);
  EXPECT_EQ(ReadFinishRun(good)->run, core::RunId(9));
  using R = v1::FinishRunRequest;
  const Case<R> cases[] = {
      {[](R* r) { r->clear_session_id(); }, "session_id"},
      {[](R* r) { r->clear_request_id(); }, "request_id"},
      {[](R* r) { r->clear_run_id(); }, "run_id: 0"},
  };
  ExpectRefusals(good, ReadFinishRun, cases);
}

TEST(Fingerprint, IsThatOfWhatIsAskedFor) {
  EXPECT_EQ(Fingerprint(GoodBegin()), Fingerprint(GoodBegin()));
  v1::BeginUseRequest other = GoodBegin();
  other.set_activation_bytes(1);
  EXPECT_NE(Fingerprint(other), Fingerprint(GoodBegin()));
  other = GoodBegin();
  other.set_shape("another");
  EXPECT_NE(Fingerprint(other), Fingerprint(GoodBegin()));
  other = GoodBegin();
  other.set_activation_is_exact(false);
  EXPECT_NE(Fingerprint(other), Fingerprint(GoodBegin()));
  other = GoodBegin();
  other.set_held_use_ids(0, 99);
  EXPECT_NE(Fingerprint(other), Fingerprint(GoodBegin()));
  other = GoodBegin();
  other.mutable_shard_group()->set_name("g");
  EXPECT_NE(Fingerprint(other), Fingerprint(GoodBegin()));

  v1::EndUseRequest repeat = GoodEnd();
  repeat.mutable_snapshot()->set_sequence(99);
  EXPECT_EQ(Fingerprint(repeat), Fingerprint(GoodEnd()));
  repeat.set_use_id(6);
  EXPECT_NE(Fingerprint(repeat), Fingerprint(GoodEnd()));

  v1::DeclarePipelineRequest pipeline = GoodPipeline();
  pipeline.mutable_stages(5)->set_passes(2);
  EXPECT_NE(Fingerprint(pipeline), Fingerprint(GoodPipeline()));
}

}  // namespace
}  // namespace vrambroker::server
