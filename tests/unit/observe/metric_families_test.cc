#include "broker/observe/metric_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/check_names.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <set>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::observe {
namespace {

using core::Bytes;
using core::DecisionKind;
using core::Reason;
using prometheus::MetricFamily;
using prometheus::MetricType;
using testing::HasSubstr;

core::ComponentPicture Component(const std::string& id, int64_t held) {
  core::ComponentPicture c;
  c.id = id;
  c.held_bytes = Bytes(held);
  c.target_bytes = Bytes(held / 2);
  c.charge = Bytes(held + 1);
  c.regret = Bytes(3);
  c.link_rate = 5e9;
  c.stall_per_byte = 2e-10;
  return c;
}

core::SessionPicture Session(uint64_t id, const std::string& worker, core::SessionPhase phase) {
  core::SessionPicture s;
  s.id = core::SessionId(id);
  s.worker = worker;
  s.place = {"pod-1", "team", "main"};
  s.phase = phase;
  s.pool = Bytes(100);
  s.recorded = Bytes(60);
  return s;
}

core::Picture MakePicture() {
  core::Picture picture;
  picture.host_memory[""].budget = core::Bytes(1000);
  picture.epoch = core::Epoch(1'700'000'000'000'000);
  picture.recovery_left = absl::Seconds(3);
  for (const char* uuid : {"GPU-1", "GPU-2"}) {
    core::DevicePicture device;
    device.uuid = uuid;
    device.ledger.capacity = Bytes(1000);
    device.ledger.reserve = Bytes(10);
    device.ledger.in_use = Bytes(20);
    device.ledger.retained = Bytes(30);
    device.ledger.permanent = Bytes(40);
    device.ledger.pooled = Bytes(50);
    device.ledger.draining = Bytes(60);
    device.ledger.external = Bytes(absl::string_view(uuid) == "GPU-2" ? 900 : 70);
    device.ledger.external_known = true;
    device.components.push_back(Component(absl::StrCat("w-", uuid, "/dit"), 400));
    picture.devices.push_back(device);
  }
  picture.sessions = {Session(1, "w-GPU-1", core::SessionPhase::kAttached),
                      Session(2, "w-GPU-2", core::SessionPhase::kLost)};
  picture.waiting.push_back({"w-GPU-1/dit", "r", absl::Seconds(2), Bytes(5), 0, ""});
  picture.waiting.push_back({"w-GPU-1/dit", "s", absl::Seconds(1), Bytes(5), 0, ""});
  picture.runs.push_back({core::RunId(1), "p", "d", 0, 2, true});
  picture.runs.push_back({core::RunId(2), "p", "d", 0, 2, false});
  picture.runs.push_back({core::RunId(3), "p", "d", 0, 2, false});
  return picture;
}

core::Effect Decided(DecisionKind kind, Reason reason, int layers, int64_t bytes,
                     int64_t given_up = 0) {
  core::Decision d;
  d.kind = kind;
  d.reason = reason;
  d.layers = layers;
  d.component_layers = 8;
  d.device = "GPU-1";
  d.bytes = Bytes(bytes);
  d.given_up = Bytes(given_up);
  return core::LogDecision{d};
}

// "name{label="value",...} value" of each sample; histograms by their count.
std::map<std::string, double> SamplesOf(const std::vector<MetricFamily>& families) {
  std::map<std::string, double> samples;
  for (const MetricFamily& family : families) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string labels;
      for (const auto& label : metric.label) {
        absl::StrAppend(&labels, labels.empty() ? "" : ",", label.name, "=", label.value);
      }
      const double value = family.type == MetricType::Counter ? metric.counter.value
                           : family.type == MetricType::Gauge
                               ? metric.gauge.value
                               : static_cast<double>(metric.histogram.sample_count);
      const std::string key = absl::StrCat(family.name, "{", labels, "}");
      EXPECT_TRUE(samples.emplace(key, value).second) << "a second sample of " << key;
    }
  }
  return samples;
}

double At(const std::map<std::string, double>& samples, const std::string& key) {
  const auto found = samples.find("vram_broker_" + key);
  EXPECT_NE(found, samples.end()) << key;
  return found == samples.end() ? -1 : found->second;
}

TEST(MetricFamilies, NamesFollowTheRules) {
  Observation seen{MakePicture(), Tally(), 0};
  std::set<std::string> names;
  for (const MetricFamily& family : ToFamilies(seen)) {
    EXPECT_TRUE(prometheus::CheckMetricName(family.name)) << family.name;
    EXPECT_TRUE(absl::StartsWith(family.name, "vram_broker_")) << family.name;
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_TRUE(absl::EndsWith(family.help, ".")) << family.name;
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.type == MetricType::Counter)
        << family.name;
    if (family.type == MetricType::Histogram) {
      EXPECT_TRUE(absl::EndsWith(family.name, "_seconds"));
    }
    EXPECT_FALSE(family.metric.empty()) << family.name;
    for (const auto& metric : family.metric) {
      for (const auto& label : metric.label) {
        EXPECT_TRUE(prometheus::CheckLabelName(label.name)) << family.name << " " << label.name;
      }
    }
  }
}

TEST(MetricFamilies, ClassesOfEveryDeviceAddUpToItsCapacity) {
  const Observation seen{MakePicture(), Tally(), 0};
  const auto samples = SamplesOf(ToFamilies(seen));
  for (const std::string uuid : {"GPU-1", "GPU-2"}) {
    double sum = 0;
    for (const std::string name :
         {"free", "in_use", "retained", "permanent", "pooled", "draining", "external", "reserve"}) {
      sum += At(samples, absl::StrCat("device_bytes{UUID=", uuid, ",class=", name, "}"));
    }
    sum -= At(samples, absl::StrCat("device_bytes{UUID=", uuid, ",class=overcommitted}"));
    EXPECT_EQ(sum, At(samples, absl::StrCat("device_capacity_bytes{UUID=", uuid, "}")));
  }
  EXPECT_EQ(At(samples, "device_bytes{UUID=GPU-2,class=overcommitted}"), 110);
  EXPECT_EQ(At(samples, "device_bytes{UUID=GPU-2,class=free}"), 0);
}

TEST(MetricFamilies, ThePictureIsShownAsItIs) {
  const auto samples = SamplesOf(ToFamilies({MakePicture(), Tally(), 7}));
  EXPECT_EQ(At(samples, "mailbox_waiting{}"), 7);
  EXPECT_EQ(At(samples, "recovery_left_seconds{}"), 3);
  EXPECT_EQ(At(samples, "worker_recorded_bytes{worker=w-GPU-2}"), 60);
  EXPECT_EQ(At(samples, "start_time_seconds{}"), 1.7e9);
  EXPECT_EQ(At(samples, "waiting_uses{UUID=GPU-1}"), 2);
  EXPECT_EQ(At(samples, "waiting_uses{UUID=GPU-2}"), 0);
  EXPECT_EQ(At(samples, "oldest_wait_seconds{UUID=GPU-1}"), 2);
  EXPECT_EQ(At(samples, "component_held_bytes{UUID=GPU-1,worker=w-GPU-1,component=dit}"), 400);
  EXPECT_EQ(At(samples, "component_target_bytes{UUID=GPU-1,worker=w-GPU-1,component=dit}"), 200);
  const std::string dit = "{UUID=GPU-1,worker=w-GPU-1,component=dit}";
  EXPECT_EQ(At(samples, "component_link_bytes_per_second" + dit), 5e9);
  EXPECT_EQ(At(samples, "component_stall_seconds_per_byte" + dit), 2e-10);
  EXPECT_EQ(At(samples, "sessions{state=attached}"), 1);
  EXPECT_EQ(At(samples, "sessions{state=lost}"), 1);
  EXPECT_EQ(At(samples, "sessions{state=gone}"), 0);
  EXPECT_EQ(At(samples, "worker_pool_bytes{worker=w-GPU-1}"), 100);
  EXPECT_EQ(At(samples, "worker_info{worker=w-GPU-1,pod=pod-1,namespace=team,container=main}"), 1);
  EXPECT_EQ(At(samples, "runs{pipeline=p,state=declared}"), 2);
  EXPECT_EQ(At(samples, "runs{pipeline=p,state=started}"), 1);
}

TEST(MetricFamilies, WhatTwoSessionsOfOneNameHaveIsAddedUp) {
  core::Picture picture = MakePicture();
  picture.devices[0].components.push_back(Component("w-GPU-1/dit", 100));
  core::SessionPicture gone = Session(3, "w-GPU-1", core::SessionPhase::kGone);
  gone.place = {"older", "", ""};
  picture.sessions.push_back(gone);
  const auto samples = SamplesOf(ToFamilies({picture, Tally(), 0}));
  EXPECT_EQ(At(samples, "component_held_bytes{UUID=GPU-1,worker=w-GPU-1,component=dit}"), 500);
  EXPECT_EQ(At(samples, "worker_pool_bytes{worker=w-GPU-1}"), 200);
  EXPECT_EQ(At(samples, "worker_info{worker=w-GPU-1,pod=pod-1,namespace=team,container=main}"), 1);
}

TEST(MetricFamilies, HostMemoryThatIsPinned) {
  core::Picture picture = MakePicture();
  picture.sessions[0].pinned_host = core::Bytes(30);
  picture.sessions[0].pin_allowance = core::Bytes(40);
  picture.host_memory[""].budget = core::Bytes(50);
  picture.host_memory["cgroup:1"].budget = core::Bytes();
  picture.host_memory["cgroup:2"] = {};
  const auto samples = SamplesOf(ToFamilies({picture, Tally(), 0}));
  const std::string worker = picture.sessions[0].worker;
  EXPECT_EQ(At(samples, absl::StrCat("host_pinned_bytes{worker=", worker, "}")), 30);
  EXPECT_EQ(At(samples, absl::StrCat("host_pin_allowance_bytes{worker=", worker, "}")), 40);
  EXPECT_EQ(At(samples, "host_pin_budget_bytes{domain=/}"), 50);
  EXPECT_EQ(At(samples, "host_pin_budget_bytes{domain=cgroup:1}"), 0);
  EXPECT_FALSE(samples.contains("host_pin_budget_bytes{domain=cgroup:2}")) << "not known";
}

TEST(MetricFamilies, PipelinesPastTheBoundAreAddedUp) {
  core::Picture picture = MakePicture();
  picture.runs.clear();
  for (size_t i = 0; i < kMaxPipelines + 10; ++i) {
    picture.runs.push_back({core::RunId(i + 1), absl::StrCat("p", i), "d", 0, 1, false});
  }
  const auto samples = SamplesOf(ToFamilies({picture, Tally(), 0}));
  EXPECT_EQ(At(samples, "runs{pipeline=p0,state=declared}"), 1);
  EXPECT_EQ(At(samples, absl::StrCat("runs{pipeline=", kOtherPipelines, ",state=declared}")), 10);
}

TEST(MetricFamilies, EachDecisionIsCountedOnceByKindAndReasonWithItsBytes) {
  Tally tally;
  tally.Note(Decided(DecisionKind::kGrant, Reason::kFitsWhole, 8, 800));
  tally.Note(Decided(DecisionKind::kGrant, Reason::kPlanned, 5, 500));
  tally.Note(Decided(DecisionKind::kRefusal, Reason::kCannotFit, 0, 0));
  tally.Note(Decided(DecisionKind::kRetention, Reason::kKeptForNextUse, 3, 300, 200));
  tally.Note(Decided(DecisionKind::kRetention, Reason::kNoNextUse, 0, 0, 50));
  tally.Note(Decided(DecisionKind::kRevocation, Reason::kWantedByOthers, 0, 30));
  tally.Note(Decided(DecisionKind::kRevocation, Reason::kNoNextUse, 0, 7));
  tally.Note(Decided(DecisionKind::kLoadAhead, Reason::kLoadAhead, 4, 60));
  const auto samples = SamplesOf(ToFamilies({MakePicture(), tally, 0}));
  double all = 0;
  for (const auto& [key, value] : samples) {
    if (absl::StartsWith(key, "vram_broker_decisions_total{")) all += value;
  }
  EXPECT_EQ(all, 8);
  EXPECT_EQ(At(samples, "decisions_total{UUID=GPU-1,kind=grant,reason=planned}"), 1);
  EXPECT_EQ(At(samples, "decisions_total{UUID=GPU-2,kind=grant,reason=planned}"), 0);
  EXPECT_EQ(At(samples, "decision_bytes_total{UUID=GPU-1,kind=grant,reason=fits_whole}"), 800);
  EXPECT_EQ(At(samples, "decision_bytes_total{UUID=GPU-1,kind=load_ahead,reason=load_ahead}"), 60);
  EXPECT_EQ(At(samples, "partial_grants_total{UUID=GPU-1}"), 1);
  EXPECT_EQ(At(samples, "evicted_bytes_total{UUID=GPU-1}"), 230);
  EXPECT_EQ(At(samples, "released_bytes_total{UUID=GPU-1}"), 57);
}

core::Effect Kept(const std::string& component, Reason reason, int64_t bytes) {
  core::Decision d;
  d.kind = DecisionKind::kRetention;
  d.reason = reason;
  d.component = component;
  d.device = "GPU-1";
  d.bytes = Bytes(bytes);
  return core::LogDecision{d};
}

TEST(MetricFamilies, WhatAComponentKeptIsShownByReason) {
  Tally tally;
  tally.Note(Kept("w-GPU-1/dit", Reason::kKeptForNextUse, 300));
  tally.Note(Kept("w-GPU-1/dit", Reason::kKeptForNextUse, 200));
  tally.Note(Kept("w-GPU-1/dit", Reason::kNoNextUse, 0));
  tally.Note(Kept("w-GPU-1/dit", Reason::kPermanent, 7));
  tally.Note(Kept("detached/dit", Reason::kPermanent, 9));
  std::map<std::string, double> kept;
  for (const auto& [key, value] : SamplesOf(ToFamilies({MakePicture(), tally, 0}))) {
    if (absl::StrContains(key, "kept_bytes")) kept[key.substr(key.find(',') + 1)] = value;
  }
  const std::map<std::string, double> expected = {
      {"worker=w-GPU-1,component=dit,reason=kept_for_next_use}", 500},
      {"worker=w-GPU-1,component=dit,reason=kept_by_recency}", 0},
      {"worker=w-GPU-1,component=dit,reason=permanent}", 7},
      {"worker=w-GPU-2,component=dit,reason=kept_for_next_use}", 0},
      {"worker=w-GPU-2,component=dit,reason=kept_by_recency}", 0}};
  EXPECT_EQ(kept, expected);
}

TEST(Tally, ForgetsWhatTheComponentDecidedOnLongestAgoKept) {
  Tally tally;
  for (size_t i = 0; i < kMaxKept; ++i) {
    tally.Note(Kept(absl::StrCat("w/", i), Reason::kKeptByRecency, 1));
  }
  tally.Note(Kept("w/0", Reason::kKeptByRecency, 1));
  tally.Note(Kept("w/new", Reason::kKeptByRecency, 1));
  const auto& kept = tally.devices().at("GPU-1").kept;
  EXPECT_EQ(kept.size(), kMaxKept);
  EXPECT_TRUE(kept.contains("w/0"));
  EXPECT_FALSE(kept.contains("w/1"));
  EXPECT_TRUE(kept.contains("w/new"));
}

TEST(MetricFamilies, CountsStepsRefusalsAndReadingsAreShown) {
  using What = core::Count::What;
  Tally tally;
  tally.Note(core::Effect(
      core::Count{What::kUseBegan, "GPU-1", Bytes(10), absl::Seconds(0.3), absl::Seconds(2)}));
  tally.Note(core::Effect(
      core::Count{What::kUseEnded, "GPU-1", Bytes(20), absl::Seconds(4), absl::ZeroDuration()}));
  tally.Note(core::Effect(
      core::Count{What::kReleased, "GPU-1", Bytes(30), absl::Seconds(1), absl::ZeroDuration()}));
  tally.Note(core::Effect(core::Count{What::kOverdue, "GPU-1", Bytes(40), {}, {}}));
  tally.Note(core::Effect(core::Count{What::kLoadedAhead, "GPU-1", Bytes(50), {}, {}}));
  tally.Note(core::Effect(core::Count{What::kShownFree, "GPU-1", Bytes(), absl::Seconds(1), {}}));
  tally.Note(core::Effect(core::Answer{core::CallId(1), absl::AbortedError("stale")}));
  tally.Note(core::Effect(core::Answer{core::CallId(2), core::EmptyAnswer()}));
  core::ReadingEvent reading;
  reading.device_uuid = "GPU-1";
  tally.Note(core::Event(reading), absl::Microseconds(20));
  reading.status = absl::InternalError("no driver");
  tally.Note(core::Event(reading), absl::Microseconds(20));
  const auto samples = SamplesOf(ToFamilies({MakePicture(), tally, 0}));
  EXPECT_EQ(At(samples, "uses_begun_total{UUID=GPU-1}"), 1);
  EXPECT_EQ(At(samples, "reused_bytes_total{UUID=GPU-1}"), 10);
  EXPECT_EQ(At(samples, "stall_avoided_seconds_total{UUID=GPU-1}"), 2);
  EXPECT_EQ(At(samples, "wait_seconds{UUID=GPU-1}"), 1);
  EXPECT_EQ(At(samples, "uses_ended_total{UUID=GPU-1}"), 1);
  EXPECT_EQ(At(samples, "loaded_bytes_total{UUID=GPU-1}"), 20);
  EXPECT_EQ(At(samples, "stall_seconds_total{UUID=GPU-1}"), 4);
  EXPECT_EQ(At(samples, "revoked_bytes_total{UUID=GPU-1}"), 30);
  EXPECT_EQ(At(samples, "revocation_seconds{UUID=GPU-1}"), 1);
  EXPECT_EQ(At(samples, "overdue_targets_total{UUID=GPU-1}"), 1);
  EXPECT_EQ(At(samples, "under_released_bytes_total{UUID=GPU-1}"), 40);
  EXPECT_EQ(At(samples, "loaded_ahead_bytes_total{UUID=GPU-1}"), 50);
  EXPECT_EQ(At(samples, "shown_free_seconds{UUID=GPU-1}"), 1);
  EXPECT_EQ(At(samples, "refused_calls_total{code=ABORTED}"), 1);
  EXPECT_EQ(At(samples, "driver_readings_total{UUID=GPU-1,result=ok}"), 1);
  EXPECT_EQ(At(samples, "driver_readings_total{UUID=GPU-1,result=failed}"), 1);
  EXPECT_EQ(At(samples, "decision_seconds{event=reading}"), 2);
  EXPECT_EQ(At(samples, "decision_seconds{event=begin_use}"), 0);
}

// The name that a sample of each event's histogram goes by.
TEST(MetricFamilies, EveryEventIsCountedUnderItsName) {
  Tally tally;
  tally.Note(core::Event(core::AttachEvent()), absl::Microseconds(1));
  tally.Note(core::Event(core::EndUseEvent()), absl::Microseconds(1));
  tally.Note(core::Event(core::DrainEvent()), absl::Microseconds(1));
  const auto samples = SamplesOf(ToFamilies({MakePicture(), tally, 0}));
  for (const char* event : {"attach", "end_use", "drain"}) {
    EXPECT_EQ(At(samples, absl::StrCat("decision_seconds{event=", event, "}")), 1);
  }
}

TEST(Distribution, BucketsIncludeTheirUpperEndAndAddUp) {
  Distribution<DecisionBounds> d;
  d.Add(10e-6);
  d.Add(11e-6);
  d.Add(1);
  d.Add(5);
  EXPECT_EQ(d.counts()[0], 1u);
  EXPECT_EQ(d.counts()[1], 1u);
  EXPECT_EQ(d.counts()[DecisionBounds::kUpper.size() - 1], 1u);
  EXPECT_EQ(d.counts().back(), 1u);
  EXPECT_DOUBLE_EQ(d.sum(), 6 + 21e-6);
}

TEST(MetricFamilies, LabelsOfAnyContentAreEscaped) {
  core::Picture picture = MakePicture();
  picture.sessions[0].place.pod = "a\"b\\c\nd";
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, ToFamilies({picture, Tally(), 0}));
  EXPECT_THAT(text.str(), HasSubstr("pod=\"a\\\"b\\\\c\\nd\""));
}

}  // namespace
}  // namespace vrambroker::observe
