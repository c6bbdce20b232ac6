#include "broker/server/convert_attach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "broker/server/size.h"

namespace vrambroker::server {
namespace {

using testing::HasSubstr;

v1::Component GoodComponent(const std::string& name) {
  v1::Component component;
  component.set_name(name);
  v1::LayerRun* run = component.add_layer_runs();
  run->set_count(3);
  run->set_layer_bytes(100);
  return component;
}

v1::AttachRequest GoodAttach() {
  v1::AttachRequest request;
  request.set_worker("te-0");
  request.set_pid(7);
  request.set_start_time_ticks(9);
  request.set_attach_number(1);
  *request.add_components() = GoodComponent("a");
  *request.add_components() = GoodComponent("b");
  v1::Snapshot* snapshot = request.mutable_snapshot();
  snapshot->set_sequence(5);
  for (const char* name : {"a", "b"}) {
    v1::ComponentResidency* one = snapshot->add_components();
    one->set_component(name);
    one->set_held_layers(2);
    one->set_completed_generation(4);
    one->set_fixed_placed(true);
  }
  snapshot->set_pool_bytes(11);
  snapshot->set_pinned_host_bytes(12);
  v1::RunningUse* use = request.add_running_uses();
  use->set_request_id("r");
  use->set_component("b");
  use->set_granted_layers(3);
  use->set_window_bytes(13);
  use->set_activation_bytes(14);
  use->set_generation(15);
  use->add_former_use_ids(16);
  use->add_former_use_ids(uint64_t{1} << 53);
  return request;
}

TEST(ReadAttach, TakesEveryField) {
  v1::AttachRequest request = GoodAttach();
  v1::Component* component = request.mutable_components(0);
  component->set_device_uuid("GPU-1");
  component->set_fixed_bytes(21);
  component->set_window_bytes(22);
  component->set_lifetime(v1::LIFETIME_PERMANENT);
  component->set_no_host_copy(true);
  component->set_pass_seconds(0.5);
  component->set_link_bytes_per_second(1e9);
  component->set_host_tier(v1::HOST_TIER_PINNED);
  component->set_pin_host_bytes(23);
  request.mutable_host_memory()->set_limit_bytes(24);
  request.mutable_host_memory()->set_domain("cgroup:25");
  request.mutable_components(1)->set_device_uuid("GPU-1");
  const auto event = ReadAttach(request);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->worker, "te-0");
  EXPECT_EQ(event->process, (core::Process{7, 9}));
  EXPECT_EQ(event->attach_number, 1u);
  EXPECT_EQ(event->version, 1);
  EXPECT_EQ(event->device_uuid, "GPU-1");
  ASSERT_EQ(event->components.size(), 2u);
  const core::ComponentSpec& spec = event->components[0];
  EXPECT_EQ(spec.name, "a");
  EXPECT_EQ(spec.layers, core::LayerTable({{3, core::Bytes(100)}}));
  EXPECT_EQ(spec.fixed, core::Bytes(21));
  EXPECT_EQ(spec.window, core::Bytes(22));
  EXPECT_EQ(spec.lifetime, core::Lifetime::kPermanent);
  EXPECT_TRUE(spec.no_host_copy);
  EXPECT_EQ(spec.pass_seconds, 0.5);
  EXPECT_EQ(spec.link_rate, 1e9);
  EXPECT_EQ(spec.host_tier, core::HostTier::kPinned);
  EXPECT_EQ(spec.pin_host, core::Bytes(23));
  EXPECT_EQ(event->host.limit, core::Bytes(24));
  EXPECT_EQ(event->host.domain, "cgroup:25");
  EXPECT_EQ(event->components[1].host_tier, core::HostTier::kUnknown);
  EXPECT_EQ(event->components[1].lifetime, core::Lifetime::kForward);
  EXPECT_EQ(event->snapshot.sequence, 5u);
  ASSERT_EQ(event->snapshot.components.size(), 2u);
  EXPECT_EQ(event->snapshot.components[1].component, "b");
  EXPECT_EQ(event->snapshot.components[1].held, 2);
  EXPECT_EQ(event->snapshot.components[1].completed, core::Generation(4));
  EXPECT_TRUE(event->snapshot.components[1].fixed_placed);
  EXPECT_EQ(event->snapshot.pool, core::Bytes(11));
  EXPECT_EQ(event->snapshot.pinned_host, core::Bytes(12));
  ASSERT_EQ(event->running_uses.size(), 1u);
  EXPECT_EQ(event->running_uses[0].granted, 3);
  EXPECT_EQ(event->running_uses[0].window, core::Bytes(13));
  EXPECT_EQ(event->running_uses[0].activation, core::Bytes(14));
  EXPECT_EQ(event->running_uses[0].generation, core::Generation(15));
  EXPECT_EQ(event->running_uses[0].former_ids,
            (std::vector<core::UseId>{core::UseId(16), core::UseId(uint64_t{1} << 53)}));
}

TEST(ReadAttach, ADriverNeedsANameAndANumberOnly) {
  v1::AttachRequest request;
  request.set_worker("driver");
  request.set_attach_number(1);
  const auto event = ReadAttach(request);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->snapshot.sequence, 0u);
  EXPECT_EQ(event->process.pid, 0);
}

struct BadAttach {
  const char* what;
  std::function<void(v1::AttachRequest*)> spoil;
  const char* named;
};

TEST(ReadAttach, RefusesEachFieldOutOfItsRangeAndNamesIt) {
  const double infinity = std::numeric_limits<double>::infinity();
  using R = v1::AttachRequest;
  const BadAttach cases[] = {
      {"no name", [](R* r) { r->clear_worker(); }, "worker: ''"},
      {"name of other characters", [](R* r) { r->set_worker("a/b"); }, "worker: 'a/b'"},
      {"name too long", [](R* r) { r->set_worker(std::string(129, 'a')); }, "worker: "},
      {"negative pid", [](R* r) { r->set_pid(-1); }, "pid: -1 given, 0 to"},
      {"no attach number", [](R* r) { r->clear_attach_number(); }, "attach_number: 0 given"},
      {"newer versions only", [](R* r) { r->set_min_version(2), r->set_max_version(3); }, "2 to 3"},
      {"negative version", [](R* r) { r->set_min_version(-1); }, "min_version: -1"},
      {"versions upside down", [](R* r) { r->set_min_version(3), r->set_max_version(2); },
       "min_version"},
      {"pod", [](R* r) { r->set_pod(std::string(129, 'p')); }, "pod: 129 bytes"},
      {"namespace", [](R* r) { r->set_namespace_(std::string(129, 'p')); }, "namespace: 129 bytes"},
      {"container", [](R* r) { r->set_container(std::string(129, 'p')); }, "container: 129 bytes"},
      {"component's name", [](R* r) { r->mutable_components(1)->set_name(""); },
       "components[1].name"},
      {"name twice", [](R* r) { r->mutable_components(1)->set_name("a"); }, "'a' a second time"},
      {"two devices", [](R* r) { r->mutable_components(1)->set_device_uuid("GPU-2"); },
       "attach one session for each device"},
      {"long uuid", [](R* r) { r->mutable_components(0)->set_device_uuid(std::string(129, 'u')); },
       "components[0].device_uuid: 129 bytes"},
      {"no layers", [](R* r) { r->mutable_components(0)->clear_layer_runs(); },
       "components[0].layer_runs (count): 0"},
      {"empty run", [](R* r) { r->mutable_components(0)->mutable_layer_runs(0)->set_count(0); },
       "layer_runs.count: 0"},
      {"layers without bytes",
       [](R* r) { r->mutable_components(0)->mutable_layer_runs(0)->set_layer_bytes(0); },
       "layer_runs.layer_bytes: 0"},
      {"too many layers",
       [](R* r) { r->mutable_components(0)->mutable_layer_runs(0)->set_count(4097); },
       "layer_runs.count: 4097"},
      {"too many layers in all",
       [](R* r) {
         for (int i = 0; i < 2; ++i) {
           v1::LayerRun* run = r->mutable_components(0)->add_layer_runs();
           run->set_count(2047), run->set_layer_bytes(1);
         }
       },
       "layers in all): 4097"},
      {"too many bytes in all",
       [](R* r) { r->mutable_components(0)->mutable_layer_runs(0)->set_layer_bytes(kMaxBytes); },
       "bytes in all)"},
      {"negative fixed bytes", [](R* r) { r->mutable_components(0)->set_fixed_bytes(-1); },
       "components[0].fixed_bytes: -1 bytes"},
      {"too many fixed bytes",
       [](R* r) { r->mutable_components(0)->set_fixed_bytes(kMaxBytes + 1); }, "fixed_bytes"},
      {"negative window", [](R* r) { r->mutable_components(0)->set_window_bytes(-1); },
       "window_bytes"},
      {"unknown lifetime",
       [](R* r) { r->mutable_components(0)->set_lifetime(static_cast<v1::Lifetime>(9)); },
       "lifetime: 9"},
      {"forward without a host copy",
       [](R* r) { r->mutable_components(0)->set_no_host_copy(true); }, "no_host_copy"},
      {"negative seconds", [](R* r) { r->mutable_components(0)->set_pass_seconds(-1); },
       "pass_seconds"},
      {"infinite seconds", [=](R* r) { r->mutable_components(0)->set_pass_seconds(infinity); },
       "pass_seconds"},
      {"no number", [](R* r) { r->mutable_components(0)->set_link_bytes_per_second(std::nan("")); },
       "link_bytes_per_second"},
      {"an unknown tier",
       [](R* r) { r->mutable_components(0)->set_host_tier(static_cast<v1::HostTier>(3)); },
       "host_tier"},
      {"too many components",
       [](R* r) {
         for (int i = 0; i < 63; ++i) *r->add_components() = GoodComponent("x" + std::to_string(i));
       },
       "components (count): 65"},
      {"snapshot without number", [](R* r) { r->mutable_snapshot()->clear_sequence(); },
       "snapshot.sequence: 0"},
      {"snapshot of a stranger",
       [](R* r) { r->mutable_snapshot()->mutable_components(0)->set_component("c"); },
       "snapshot.components.component: 'c'"},
      {"snapshot with one twice",
       [](R* r) { r->mutable_snapshot()->mutable_components(0)->set_component("b"); },
       "'b' a second time"},
      {"snapshot that leaves one out",
       [](R* r) { r->mutable_snapshot()->mutable_components()->RemoveLast(); }, "1 entries"},
      {"more held than there is",
       [](R* r) { r->mutable_snapshot()->mutable_components(0)->set_held_layers(4); },
       "held_layers of 'a': 4 given, 0 to 3"},
      {"negative held",
       [](R* r) { r->mutable_snapshot()->mutable_components(0)->set_held_layers(-1); },
       "held_layers: -1"},
      {"negative pool", [](R* r) { r->mutable_snapshot()->set_pool_bytes(-1); }, "pool_bytes"},
      {"negative pinned", [](R* r) { r->mutable_snapshot()->set_pinned_host_bytes(-1); },
       "pinned_host_bytes"},
      {"negative wish", [](R* r) { r->mutable_components(0)->set_pin_host_bytes(-1); },
       "components[0].pin_host_bytes: -1"},
      {"a wish beyond all memory",
       [](R* r) { r->mutable_components(0)->set_pin_host_bytes((int64_t{64} << 40) + 1); },
       "pin_host_bytes"},
      {"negative limit", [](R* r) { r->mutable_host_memory()->set_limit_bytes(-1); },
       "host_memory.limit_bytes: -1"},
      {"a long domain", [](R* r) { r->mutable_host_memory()->set_domain(std::string(129, 'd')); },
       "of 129 bytes"},
      {"a domain with a slash", [](R* r) { r->mutable_host_memory()->set_domain("a/b"); },
       "host_memory.domain: 'a/b'"},
      {"use without id", [](R* r) { r->mutable_running_uses(0)->clear_request_id(); },
       "running_uses[0].request_id"},
      {"use with a long id",
       [](R* r) { r->mutable_running_uses(0)->set_request_id(std::string(65, 'r')); }, "65 bytes"},
      {"use of a stranger", [](R* r) { r->mutable_running_uses(0)->set_component("c"); },
       "running_uses[0].component: 'c'"},
      {"two uses of one",
       [](R* r) {
         *r->add_running_uses() = r->running_uses(0);
         r->mutable_running_uses(1)->set_request_id("s");
       },
       "one use a component"},
      {"one id for two uses",
       [](R* r) {
         *r->add_running_uses() = r->running_uses(0);
         r->mutable_running_uses(1)->set_component("a");
       },
       "running_uses[1].request_id"},
      {"use of more layers than there are",
       [](R* r) { r->mutable_running_uses(0)->set_granted_layers(4); }, "granted_layers: 4"},
      {"negative window of a use", [](R* r) { r->mutable_running_uses(0)->set_window_bytes(-1); },
       "running_uses[0].window_bytes"},
      {"former id 0", [](R* r) { r->mutable_running_uses(0)->add_former_use_ids(0); },
       "running_uses[0].former_use_ids: 0"},
      {"former id past what a double holds",
       [](R* r) { r->mutable_running_uses(0)->add_former_use_ids((uint64_t{1} << 53) + 1); },
       "running_uses[0].former_use_ids"},
      {"too many former ids",
       [](R* r) {
         for (uint64_t i = 0; i < 63; ++i) r->mutable_running_uses(0)->add_former_use_ids(100 + i);
       },
       "former_use_ids (count): 65"},
      {"negative activation of a use",
       [](R* r) { r->mutable_running_uses(0)->set_activation_bytes(-1); }, "activation_bytes"},
  };
  for (const BadAttach& bad : cases) {
    v1::AttachRequest request = GoodAttach();
    bad.spoil(&request);
    const auto event = ReadAttach(request);
    EXPECT_EQ(event.status().code(), absl::StatusCode::kInvalidArgument) << bad.what;
    EXPECT_THAT(std::string(event.status().message()), HasSubstr(bad.named)) << bad.what;
    EXPECT_THAT(std::string(event.status().message()), HasSubstr("allowed")) << bad.what;
  }
}

TEST(ReadAttach, TakesEachBoundItself) {
  v1::AttachRequest request = GoodAttach();
  request.set_worker(std::string(128, 'w'));
  request.set_pod(std::string(128, 'p'));
  request.set_max_version(99);
  v1::Component* component = request.mutable_components(0);
  component->mutable_layer_runs(0)->set_count(4096);
  component->mutable_layer_runs(0)->set_layer_bytes(kMaxBytes / 4096);
  component->set_fixed_bytes(kMaxBytes);
  for (int i = 0; i < 62; ++i) {
    *request.add_components() = GoodComponent("x" + std::to_string(i));
    v1::ComponentResidency* one = request.mutable_snapshot()->add_components();
    one->set_component("x" + std::to_string(i));
  }
  const auto event = ReadAttach(request);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->components.size(), 64u);
  EXPECT_EQ(event->place.pod.size(), 128u);
  EXPECT_EQ(event->components[0].layers.All(), core::Bytes(kMaxBytes));
}

v1::UpdateComponentsRequest GoodUpdate() {
  v1::UpdateComponentsRequest request;
  request.set_session_id(3);
  request.set_request_id("u");
  *request.add_upsert() = GoodComponent("a");
  request.add_remove("b");
  return request;
}

TEST(ReadUpdate, TakesWhatIsInRange) {
  v1::UpdateComponentsRequest request = GoodUpdate();
  request.mutable_upsert(0)->set_device_uuid("GPU-1");
  std::string device;
  const auto event = ReadUpdate(request, &device);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(device, "GPU-1");
  EXPECT_EQ(event->header.session, core::SessionId(3));
  EXPECT_EQ(event->header.request_id, "u");
  EXPECT_EQ(event->upsert.size(), 1u);
  EXPECT_EQ(event->remove, std::vector<std::string>{"b"});
}

TEST(ReadUpdate, RefusesWhatIsNot) {
  using R = v1::UpdateComponentsRequest;
  const std::pair<std::function<void(R*)>, const char*> cases[] = {
      {[](R* r) { r->clear_session_id(); }, "session_id: 0"},
      {[](R* r) { r->clear_request_id(); }, "request_id: 0 bytes"},
      {[](R* r) { r->mutable_upsert(0)->set_fixed_bytes(-5); }, "upsert[0].fixed_bytes"},
      {[](R* r) { r->set_remove(0, "a"); }, "'a' a second time"},
      {[](R* r) { r->set_remove(0, "x y"); }, "remove: 'x y'"},
      {[](R* r) { r->add_remove("b"); }, "'b' a second time"},
      {[](R* r) { r->mutable_snapshot(); }, "snapshot.sequence"},
      {[](R* r) {
         for (int i = 0; i < 64; ++i) r->add_remove("x" + std::to_string(i));
       },
       "remove (count): 65"},
  };
  for (const auto& [spoil, named] : cases) {
    v1::UpdateComponentsRequest request = GoodUpdate();
    spoil(&request);
    std::string device;
    const auto event = ReadUpdate(request, &device);
    EXPECT_EQ(event.status().code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_THAT(std::string(event.status().message()), HasSubstr(named));
  }
}

}  // namespace
}  // namespace vrambroker::server
