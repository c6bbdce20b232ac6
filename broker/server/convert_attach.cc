#include "broker/server/convert_attach.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "broker/server/convert_calls.h"
#include "broker/server/size.h"

namespace vrambroker::server {
namespace {

constexpr double kMaxSeconds = 1e6;
constexpr double kMaxRate = 1e15;
constexpr size_t kMaxPlaceBytes = 128;
constexpr size_t kMaxDomainBytes = 128;
constexpr int kMaxFormerIds = 64;
constexpr uint64_t kMaxUseId = uint64_t{1} << 53;

core::LayerTable ReadLayers(const v1::Component& component, Checks* checks) {
  checks->Range("layer_runs (count)", component.layer_runs_size(), 1, kMaxLayerRuns);
  if (!checks->ok()) return {};
  std::vector<std::pair<int, core::Bytes>> runs;
  int64_t layers = 0;
  double bytes = 0;
  for (const v1::LayerRun& run : component.layer_runs()) {
    checks->Range("layer_runs.count", run.count(), 1, kMaxLayers);
    checks->Range("layer_runs.layer_bytes", run.layer_bytes(), 1, kMaxBytes);
    if (!checks->ok()) return {};
    layers += run.count();
    bytes += static_cast<double>(run.count()) * static_cast<double>(run.layer_bytes());
    runs.emplace_back(run.count(), core::Bytes(run.layer_bytes()));
  }
  checks->Range("layer_runs (layers in all)", layers, 1, kMaxLayers);
  checks->Require(bytes <= static_cast<double>(kMaxBytes), "layer_runs (bytes in all)",
                  absl::StrCat(bytes, " bytes"), "at most 64 TiB are");
  return checks->ok() ? core::LayerTable(runs) : core::LayerTable();
}

// Both lists are in one order.
core::HostTier ReadHostTier(const v1::Component& component, Checks* checks) {
  checks->Require(v1::HostTier_IsValid(component.host_tier()), "host_tier",
                  absl::StrCat(static_cast<int>(component.host_tier())),
                  "HOST_TIER_UNSPECIFIED (0), HOST_TIER_PAGEABLE (1) and HOST_TIER_PINNED (2) are");
  return static_cast<core::HostTier>(component.host_tier());
}
static_assert(static_cast<int>(core::HostTier::kPinned) == v1::HOST_TIER_PINNED);

core::Lifetime ReadLifetime(const v1::Component& component, Checks* checks) {
  checks->Require(v1::Lifetime_IsValid(component.lifetime()), "lifetime",
                  absl::StrCat(static_cast<int>(component.lifetime())),
                  "LIFETIME_FORWARD (1) and LIFETIME_PERMANENT (2) are");
  const bool permanent = component.lifetime() == v1::LIFETIME_PERMANENT;
  checks->Require(
      permanent || !component.no_host_copy(), "no_host_copy", "true",
      "with LIFETIME_FORWARD only false is (what is dropped could not be loaded again);");
  return permanent ? core::Lifetime::kPermanent : core::Lifetime::kForward;
}

std::vector<core::ComponentSpec> ReadComponents(
    const google::protobuf::RepeatedPtrField<v1::Component>& components, absl::string_view field,
    Checks* checks) {
  std::vector<core::ComponentSpec> specs;
  checks->Range(absl::StrCat(field, " (count)"), components.size(), 0, kMaxComponents);
  absl::flat_hash_set<std::string> names;
  for (int i = 0; i < components.size() && checks->ok(); ++i) {
    const std::string prefix = absl::StrCat(field, "[", i, "].");
    specs.push_back(ReadComponent(components[i], prefix, checks));
    checks->Require(names.insert(components[i].name()).second, absl::StrCat(prefix, "name"),
                    absl::StrCat("'", components[i].name(), "' a second time"),
                    "each name once is");
  }
  return specs;
}

// The snapshot of an attach is about the components of the same message: all of them, no others.
void CheckAttachSnapshot(const core::AttachEvent& event, Checks* checks) {
  if (event.snapshot.sequence == 0 || !checks->ok()) return;
  absl::flat_hash_map<std::string, int> layers;
  for (const core::ComponentSpec& spec : event.components) layers[spec.name] = spec.layers.count();
  for (const core::Residency& residency : event.snapshot.components) {
    const auto found = layers.find(residency.component);
    checks->Require(found != layers.end(), "snapshot.components.component",
                    absl::StrCat("'", residency.component, "'"), "names of components are");
    if (!checks->ok()) return;
    checks->Range(absl::StrCat("snapshot.components.held_layers of '", residency.component, "'"),
                  residency.held, 0, found->second);
  }
  checks->Require(event.snapshot.components.size() == layers.size(), "snapshot.components",
                  absl::StrCat(event.snapshot.components.size(), " entries"),
                  absl::StrCat("one for each of the ", layers.size(), " components is"));
}

void ReadRunningUses(const v1::AttachRequest& request, core::AttachEvent* event, Checks* checks) {
  checks->Range("running_uses (count)", request.running_uses_size(), 0, kMaxComponents);
  absl::flat_hash_set<std::string> busy, ids;
  for (int i = 0; i < request.running_uses_size() && checks->ok(); ++i) {
    const v1::RunningUse& use = request.running_uses(i);
    const auto component =
        std::find_if(event->components.begin(), event->components.end(),
                     [&](const core::ComponentSpec& spec) { return spec.name == use.component(); });
    checks->SetPrefix(absl::StrCat("running_uses[", i, "]."));
    checks->RequestId("request_id", use.request_id());
    checks->Require(ids.insert(use.request_id()).second, "request_id", "one a second time",
                    "each once is");
    checks->Name("component", use.component());
    checks->Require(component != event->components.end(), "component",
                    absl::StrCat("'", use.component(), "'"), "names of components are");
    checks->Require(busy.insert(use.component()).second, "component",
                    absl::StrCat("'", use.component(), "' a second time"),
                    "one use a component is");
    checks->Bytes("window_bytes", use.window_bytes());
    checks->Bytes("activation_bytes", use.activation_bytes());
    if (!checks->ok()) return;
    checks->Range("granted_layers", use.granted_layers(), 0, component->layers.count());
    checks->Range("former_use_ids (count)", use.former_use_ids_size(), 0, kMaxFormerIds);
    std::vector<core::UseId> former;
    for (uint64_t id : use.former_use_ids()) {
      checks->Require(id >= 1 && id <= kMaxUseId, "former_use_ids", absl::StrCat(id),
                      "1 to 2^53 are");
      former.emplace_back(id);
    }
    checks->SetPrefix("");
    if (!checks->ok()) return;
    event->running_uses.push_back({use.request_id(), use.component(), use.granted_layers(),
                                   core::Bytes(use.window_bytes()),
                                   core::Bytes(use.activation_bytes()),
                                   core::Generation(use.generation()), std::move(former)});
  }
}

core::HostMemory ReadHostMemory(const v1::HostMemory& memory, Checks* checks) {
  checks->Bytes("host_memory.limit_bytes", memory.limit_bytes());
  const std::string& domain = memory.domain();
  const bool good = domain.size() <= kMaxDomainBytes &&
                    std::all_of(domain.begin(), domain.end(), [](unsigned char c) {
                      return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':';
                    });
  checks->Require(good, "host_memory.domain",
                  absl::StrCat("'", absl::CEscape(domain.substr(0, kMaxDomainBytes)), "' of ",
                               domain.size(), " bytes"),
                  "at most 128 of letters, digits, '.', '-', '_' and ':' are");
  if (!checks->ok()) return {};
  return {core::Bytes(memory.limit_bytes()), domain};
}

void CheckVersions(const v1::AttachRequest& request, Checks* checks) {
  const int low = request.min_version() == 0 ? 1 : request.min_version();
  const int high = request.max_version() == 0 ? 1 : request.max_version();
  checks->Range("min_version", low, 1, high < 1 ? 1 : high);
  checks->Require(low <= kProtocolVersion && kProtocolVersion <= high, "min_version, max_version",
                  absl::StrCat(low, " to ", high),
                  absl::StrCat("a range with version ", kProtocolVersion, " in it is"));
}

}  // namespace

core::ComponentSpec ReadComponent(const v1::Component& component, const std::string& prefix,
                                  Checks* checks) {
  core::ComponentSpec spec;
  checks->SetPrefix(prefix);
  checks->Name("name", component.name());
  checks->Length("device_uuid", component.device_uuid(), kMaxNameBytes);
  checks->Bytes("fixed_bytes", component.fixed_bytes());
  checks->Bytes("window_bytes", component.window_bytes());
  checks->Bytes("pin_host_bytes", component.pin_host_bytes());
  checks->Amount("pass_seconds", component.pass_seconds(), kMaxSeconds);
  checks->Amount("link_bytes_per_second", component.link_bytes_per_second(), kMaxRate);
  spec.lifetime = ReadLifetime(component, checks);
  spec.host_tier = ReadHostTier(component, checks);
  spec.layers = ReadLayers(component, checks);
  if (!checks->ok()) return spec;
  checks->SetPrefix("");
  spec.name = component.name();
  spec.fixed = core::Bytes(component.fixed_bytes());
  spec.window = core::Bytes(component.window_bytes());
  spec.no_host_copy = component.no_host_copy();
  spec.pass_seconds = component.pass_seconds();
  spec.link_rate = component.link_bytes_per_second();
  spec.pin_host = core::Bytes(component.pin_host_bytes());
  return spec;
}

core::Snapshot ReadSnapshot(bool present, const v1::Snapshot& snapshot, Checks* checks) {
  core::Snapshot result;
  if (!present) return result;
  checks->NotZero("snapshot.sequence", snapshot.sequence());
  checks->Range("snapshot.components (count)", snapshot.components_size(), 0, kMaxComponents);
  checks->Bytes("snapshot.pool_bytes", snapshot.pool_bytes());
  checks->Bytes("snapshot.pinned_host_bytes", snapshot.pinned_host_bytes());
  if (!checks->ok()) return result;
  result.components.reserve(static_cast<size_t>(snapshot.components_size()));
  for (const v1::ComponentResidency& one : snapshot.components()) {
    checks->Name("snapshot.components.component", one.component());
    checks->Range("snapshot.components.held_layers", one.held_layers(), 0, kMaxLayers);
    for (const core::Residency& before : result.components) {
      checks->Require(before.component != one.component(), "snapshot.components.component",
                      absl::StrCat("'", one.component(), "' a second time"),
                      "one entry for each component is");
    }
    if (!checks->ok()) return result;
    result.components.push_back({one.component(), one.held_layers(),
                                 core::Generation(one.completed_generation()), one.fixed_placed()});
  }
  result.sequence = snapshot.sequence();
  result.pool = core::Bytes(snapshot.pool_bytes());
  result.pinned_host = core::Bytes(snapshot.pinned_host_bytes());
  return result;
}

std::string ReadDevice(const google::protobuf::RepeatedPtrField<v1::Component>& components,
                       absl::string_view field, Checks* checks) {
  for (int i = 1; i < components.size(); ++i) {
    checks->Require(
        components[i].device_uuid() == components[0].device_uuid(),
        absl::StrCat(field, "[", i, "].device_uuid"),
        absl::StrCat("'", components[i].device_uuid(), "' beside '", components[0].device_uuid(),
                     "'"),
        "one device for all components of a session (attach one session for each device) is");
  }
  return components.empty() ? "" : components[0].device_uuid();
}

absl::StatusOr<core::AttachEvent> ReadAttach(const v1::AttachRequest& request) {
  core::AttachEvent event;
  Checks checks;
  checks.Name("worker", request.worker());
  checks.Range("pid", request.pid(), 0, INT32_MAX);
  checks.NotZero("attach_number", request.attach_number());
  CheckVersions(request, &checks);
  checks.Length("pod", request.pod(), kMaxPlaceBytes);
  checks.Length("namespace", request.namespace_(), kMaxPlaceBytes);
  checks.Length("container", request.container(), kMaxPlaceBytes);
  event.components = ReadComponents(request.components(), "components", &checks);
  event.device_uuid = ReadDevice(request.components(), "components", &checks);
  event.snapshot = ReadSnapshot(request.has_snapshot(), request.snapshot(), &checks);
  CheckAttachSnapshot(event, &checks);
  ReadRunningUses(request, &event, &checks);
  event.host = ReadHostMemory(request.host_memory(), &checks);
  if (!checks.ok()) return checks.status();
  event.worker = request.worker();
  event.place = {request.pod(), request.namespace_(), request.container()};
  event.process = {request.pid(), request.start_time_ticks()};
  event.attach_number = request.attach_number();
  event.version = kProtocolVersion;
  return event;
}

absl::StatusOr<core::UpdateComponentsEvent> ReadUpdate(const v1::UpdateComponentsRequest& request,
                                                       std::string* device_uuid) {
  core::UpdateComponentsEvent event;
  Checks checks;
  event.header = ReadHeader(request.session_id(), request.request_id(), &checks);
  event.upsert = ReadComponents(request.upsert(), "upsert", &checks);
  *device_uuid = ReadDevice(request.upsert(), "upsert", &checks);
  checks.Range("remove (count)", request.remove_size(), 0, kMaxComponents);
  absl::flat_hash_set<std::string> names;
  for (const core::ComponentSpec& spec : event.upsert) names.insert(spec.name);
  for (const std::string& name : request.remove()) {
    checks.Name("remove", name);
    checks.Require(names.insert(name).second, "remove",
                   absl::StrCat("'", name, "' a second time, or in upsert as well"),
                   "each component once is");
    if (!checks.ok()) return checks.status();
    event.remove.push_back(name);
  }
  event.snapshot = ReadSnapshot(request.has_snapshot(), request.snapshot(), &checks);
  if (!checks.ok()) return checks.status();
  event.header.fingerprint = Fingerprint(request);
  return event;
}

}  // namespace vrambroker::server
