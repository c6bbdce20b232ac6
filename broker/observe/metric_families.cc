#include "broker/observe/metric_families.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "broker/observe/component_families.h"
#include "broker/observe/family_builder.h"

namespace vrambroker::observe {
namespace {

using core::DecisionKind;
using core::Reason;

// In the order of core::DecisionKind and of the canonical codes.
constexpr std::array<const char*, kDecisionKinds> kKindNames = {
    "unspecified", "grant", "refusal", "retention", "revocation", "load_ahead"};
constexpr std::array<const char*, kStatusCodes> kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// Decisions that are shown from the start, as 0.
constexpr std::pair<DecisionKind, Reason> kUsualDecisions[] = {
    {DecisionKind::kGrant, Reason::kFitsWhole},
    {DecisionKind::kGrant, Reason::kPlanned},
    {DecisionKind::kGrant, Reason::kGrowWaitEnded},
    {DecisionKind::kGrant, Reason::kPermanent},
    {DecisionKind::kRefusal, Reason::kCannotFit},
    {DecisionKind::kRetention, Reason::kKeptForNextUse},
    {DecisionKind::kRetention, Reason::kKeptByRecency},
    {DecisionKind::kRetention, Reason::kNoNextUse},
    {DecisionKind::kRetention, Reason::kWantedByOthers},
    {DecisionKind::kRevocation, Reason::kWantedByOthers},
    {DecisionKind::kRevocation, Reason::kOvercommitted},
    {DecisionKind::kRevocation, Reason::kNoNextUse},
    {DecisionKind::kLoadAhead, Reason::kLoadAhead},
};

bool IsUsual(size_t kind, size_t reason) {
  return std::any_of(std::begin(kUsualDecisions), std::end(kUsualDecisions), [&](const auto& d) {
    return static_cast<size_t>(d.first) == kind && static_cast<size_t>(d.second) == reason;
  });
}

MetricLabels Device(const std::string& uuid) { return {{"UUID", uuid}}; }

// What was counted of each device of the picture; nothing of those that nothing happened on.
using DeviceTallies = std::vector<std::pair<std::string, const DeviceTally*>>;

DeviceTallies TalliesOf(const Observation& seen) {
  static const DeviceTally nothing;
  DeviceTallies tallies;
  for (const core::DevicePicture& device : seen.picture.devices) {
    const auto found = seen.tally.devices().find(device.uuid);
    tallies.emplace_back(device.uuid,
                         found == seen.tally.devices().end() ? &nothing : &found->second);
  }
  return tallies;
}

void AddBroker(const Observation& seen, Families* out) {
  out->Gauge("build_info", "Always 1; what this broker is.")
      .Add({{"version", VRAM_BROKER_VERSION}}, 1);
  out->Gauge("start_time_seconds", "When this broker started, in seconds since 1970.")
      .Add({}, static_cast<double>(seen.picture.epoch.value()) * 1e-6);
  out->Gauge("draining", "1 while the broker drains and admits no use, else 0.")
      .Add({}, seen.picture.draining ? 1 : 0);
  out->Gauge("recovery_left_seconds",
             "For how long at most nothing grows yet after a restart. 0: no recovery.")
      .Add({}, absl::ToDoubleSeconds(seen.picture.recovery_left));
  out->Gauge("mailbox_waiting", "Calls and other events that wait to be decided; 4096 at most.")
      .Add({}, static_cast<double>(seen.mailbox_waiting));
  out->Counter("decision_log_dropped_total",
               "Lines of the decision log that could not be written as fast as decisions fell, or "
               "not at all.")
      .Add({}, static_cast<double>(seen.decision_log_dropped));
  FamilyBuilder& refused =
      out->Counter("refused_calls_total", "Calls that were answered with a status other than OK.");
  for (size_t code = 1; code < kStatusCodes; ++code) {
    refused.Add({{"code", kCodeNames[code]}}, static_cast<double>(seen.tally.refused()[code]));
  }
  FamilyBuilder& steps =
      out->Histogram("decision_seconds", "Time in which the core took an event and decided.");
  for (size_t event = 0; event < kEvents; ++event) {
    steps.Add({{"event", kEventNames[event]}}, seen.tally.steps()[event]);
  }
}

void AddLedgers(const core::Picture& picture, Families* out) {
  FamilyBuilder& bytes = out->Gauge(
      "device_bytes",
      "Bytes of a device by class; all classes but overcommitted, less that, are the capacity.");
  for (const core::DevicePicture& device : picture.devices) {
    const core::Ledger& ledger = device.ledger;
    const std::pair<const char*, core::Bytes> classes[] = {
        {"free", ledger.Free()},
        {"in_use", ledger.in_use},
        {"retained", ledger.retained},
        {"permanent", ledger.permanent},
        {"pooled", ledger.pooled},
        {"draining", ledger.draining},
        {"external", ledger.external},
        {"reserve", ledger.reserve},
        {"overcommitted", ledger.Overcommitted()}};
    for (const auto& [name, value] : classes) {
      bytes.Add({{"UUID", device.uuid}, {"class", name}}, value.as_double());
    }
  }
  FamilyBuilder& capacity =
      out->Gauge("device_capacity_bytes", "Bytes of a device, or of the broker's share of it.");
  for (const core::DevicePicture& device : picture.devices) {
    capacity.Add(Device(device.uuid), device.ledger.capacity.as_double());
  }
  FamilyBuilder& known = out->Gauge(
      "device_external_known", "1 where driver readings say what others have on a device, else 0.");
  for (const core::DevicePicture& device : picture.devices) {
    known.Add(Device(device.uuid), device.ledger.external_known ? 1 : 0);
  }
}

void AddWaiting(const core::Picture& picture, Families* out) {
  std::map<std::string, std::string> device_of;
  std::map<std::string, std::pair<int, absl::Duration>> waiting;
  for (const core::DevicePicture& device : picture.devices) {
    waiting[device.uuid] = {0, absl::ZeroDuration()};
    for (const core::ComponentPicture& c : device.components) device_of[c.id] = device.uuid;
  }
  for (const core::WaitingPicture& w : picture.waiting) {
    auto& [uses, oldest] = waiting[device_of[w.component]];
    ++uses;
    oldest = std::max(oldest, w.waited);
  }
  FamilyBuilder& uses = out->Gauge("waiting_uses", "Uses that wait to be admitted.");
  for (const auto& [uuid, w] : waiting) uses.Add(Device(uuid), w.first);
  FamilyBuilder& oldest =
      out->Gauge("oldest_wait_seconds", "For how long the oldest waiting use waits. 0: none does.");
  for (const auto& [uuid, w] : waiting) {
    oldest.Add(Device(uuid), absl::ToDoubleSeconds(w.second));
  }
}

struct WorkerSums {
  core::Place place;
  double recorded = 0;
  double pool = 0;
  double unexplained = 0;
  double under_released = 0;
  double overdue = 0;
  double pinned = 0;
  double pin_allowance = 0;
};

void AddSessions(const core::Picture& picture, Families* out) {
  std::array<int, 3> states{};
  std::map<std::string, WorkerSums> workers;
  for (const core::SessionPicture& s : picture.sessions) {
    ++states[static_cast<size_t>(s.phase) - 1];
    WorkerSums& sums = workers[s.worker];
    if (s.phase == core::SessionPhase::kAttached || sums.place.pod.empty()) sums.place = s.place;
    sums.recorded += s.recorded.as_double();
    sums.pool += s.pool.as_double();
    sums.unexplained += s.unexplained.as_double();
    sums.under_released = std::max(sums.under_released, s.under_released ? 1.0 : 0.0);
    sums.overdue += s.overdue.as_double();
    sums.pinned += s.pinned_host.as_double();
    sums.pin_allowance += s.pin_allowance.as_double();
  }
  FamilyBuilder& sessions = out->Gauge(
      "sessions", "Sessions: attached, lost (the stream has ended), gone (proven dead, charged).");
  constexpr std::array<const char*, 3> kStates = {"attached", "lost", "gone"};
  for (size_t i = 0; i < kStates.size(); ++i) sessions.Add({{"state", kStates[i]}}, states[i]);
  FamilyBuilder& info =
      out->Gauge("worker_info", "Always 1; where a worker or driver says that it runs.");
  for (const auto& [worker, sums] : workers) {
    info.Add({{"worker", worker},
              {"pod", sums.place.pod},
              {"namespace", sums.place.pod_namespace},
              {"container", sums.place.container}},
             1);
  }
  const auto add = [&](FamilyBuilder& family, double WorkerSums::*value) {
    for (const auto& [worker, sums] : workers) family.Add({{"worker", worker}}, sums.*value);
  };
  add(out->Gauge("worker_recorded_bytes",
                 "Bytes charged from the last broker's record until the worker attaches again."),
      &WorkerSums::recorded);
  add(out->Gauge("worker_pool_bytes", "Bytes that a worker's allocator keeps unused."),
      &WorkerSums::pool);
  add(out->Gauge("worker_unexplained_bytes",
                 "Bytes that the driver shows for a worker beyond its charge."),
      &WorkerSums::unexplained);
  add(out->Gauge("worker_under_released",
                 "1 where the driver still shows what a worker says it has released, else 0."),
      &WorkerSums::under_released);
  add(out->Gauge("worker_overdue_bytes",
                 "Bytes of layers that a worker holds above its targets past their deadline."),
      &WorkerSums::overdue);
  add(out->Gauge("host_pinned_bytes", "Host bytes that a worker has pinned, as it reports."),
      &WorkerSums::pinned);
  add(out->Gauge("host_pin_allowance_bytes", "Host bytes that a worker may pin."),
      &WorkerSums::pin_allowance);
  FamilyBuilder& budget = out->Gauge(
      "host_pin_budget_bytes",
      "Host bytes that workers of a domain (/: the machine) may pin. Nothing: not known.");
  for (const auto& [domain, pool] : picture.host_memory) {
    if (!pool.budget.has_value()) continue;
    budget.Add({{"domain", domain.empty() ? "/" : domain}}, pool.budget->as_double());
  }
}

void AddRuns(const core::Picture& picture, Families* out) {
  std::map<std::string, std::array<int, 2>> pipelines;
  for (const core::RunPicture& run : picture.runs) {
    const bool known = pipelines.contains(run.pipeline) || pipelines.size() < kMaxPipelines;
    ++pipelines[known ? run.pipeline : kOtherPipelines][run.started ? 1 : 0];
  }
  FamilyBuilder& runs = out->Gauge(
      "runs", "Runs of a pipeline that are declared and wait, or have started. Nothing: no runs.");
  for (const auto& [pipeline, counts] : pipelines) {
    runs.Add({{"pipeline", pipeline}, {"state", "declared"}}, counts[0]);
    runs.Add({{"pipeline", pipeline}, {"state", "started"}}, counts[1]);
  }
}

void AddDecisions(const DeviceTallies& tallies, Families* out) {
  const auto add = [&](FamilyBuilder& family, const auto& value) {
    for (const auto& [uuid, tally] : tallies) {
      for (size_t kind = 0; kind < kDecisionKinds; ++kind) {
        for (size_t reason = 0; reason < kReasons; ++reason) {
          const DeviceTally::Decided& decided = tally->decided[kind][reason];
          if (decided.count == 0 && !IsUsual(kind, reason)) continue;
          family.Add({{"UUID", uuid}, {"kind", kKindNames[kind]}, {"reason", kReasonNames[reason]}},
                     value(decided));
        }
      }
    }
  };
  add(out->Counter("decisions_total", "Decisions."),
      [](const DeviceTally::Decided& d) { return static_cast<double>(d.count); });
  add(out->Counter("decision_bytes_total",
                   "Bytes of layers granted, kept at the end of a use, asked back, or asked to be "
                   "loaded ahead."),
      [](const DeviceTally::Decided& d) { return d.bytes; });
}

// Given up at the end of a use, or asked back later.
double GoneFor(const DeviceTally& tally, Reason reason) {
  const auto r = static_cast<size_t>(reason);
  return tally.given_up[r] + tally.decided[static_cast<size_t>(DecisionKind::kRevocation)][r].bytes;
}

void AddGone(const DeviceTallies& tallies, Families* out) {
  FamilyBuilder& evicted = out->Counter(
      "evicted_bytes_total",
      "Bytes of layers given up for somebody else's need: asked back, or not kept after a use.");
  for (const auto& [uuid, tally] : tallies) {
    double all = 0;
    for (size_t r = 0; r < kReasons; ++r) all += GoneFor(*tally, static_cast<Reason>(r));
    evicted.Add(Device(uuid), all - GoneFor(*tally, Reason::kNoNextUse));
  }
  FamilyBuilder& released = out->Counter("released_bytes_total",
                                         "Bytes of layers let go because no use is known to come.");
  for (const auto& [uuid, tally] : tallies) {
    released.Add(Device(uuid), GoneFor(*tally, Reason::kNoNextUse));
  }
}

void AddUses(const DeviceTallies& tallies, Families* out) {
  const auto add = [&](const char* name, const char* help, const auto& value) {
    FamilyBuilder& family = out->Counter(name, help);
    for (const auto& [uuid, tally] : tallies) {
      family.Add(Device(uuid), static_cast<double>(value(*tally)));
    }
  };
  using T = DeviceTally;
  add("uses_begun_total", "Uses that were admitted.", [](const T& t) { return t.uses_begun; });
  add("uses_ended_total", "Uses that their workers ended.",
      [](const T& t) { return t.uses_ended; });
  add("partial_grants_total", "Uses that were admitted with fewer than all layers.",
      [](const T& t) { return t.partial_grants; });
  add("reused_bytes_total", "Bytes of granted layers that were on the device already.",
      [](const T& t) { return t.reused_bytes; });
  add("loaded_bytes_total", "Bytes copied to the device during uses, as workers report.",
      [](const T& t) { return t.loaded_bytes; });
  add("loaded_ahead_bytes_total", "Bytes of layers loaded ahead of uses, as workers report.",
      [](const T& t) { return t.loaded_ahead_bytes; });
  add("stall_seconds_total", "Time for which compute waited for copies, as workers report.",
      [](const T& t) { return t.stall_seconds; });
  add("stall_avoided_seconds_total",
      "Stall that copies of what was on the device already would have been, had every use "
      "released all.",
      [](const T& t) { return t.stall_saved_seconds; });
  add("revoked_bytes_total", "Bytes of layers that workers released after being asked.",
      [](const T& t) { return t.revoked_bytes; });
  add("long_waits_total",
      "Uses that had waited for long; again each time that it was twice as long.",
      [](const T& t) { return t.long_waits; });
  add("overdue_targets_total", "Targets that were not reached by their deadline.",
      [](const T& t) { return t.overdue; });
  add("under_released_bytes_total", "Bytes above those targets when the deadline passed.",
      [](const T& t) { return t.overdue_bytes; });
}

void AddReadings(const DeviceTallies& tallies, Families* out) {
  FamilyBuilder& readings =
      out->Counter("driver_readings_total", "Readings that the driver gave, or failed to give.");
  for (const auto& [uuid, tally] : tallies) {
    readings.Add({{"UUID", uuid}, {"result", "ok"}}, static_cast<double>(tally->readings));
    readings.Add({{"UUID", uuid}, {"result", "failed"}},
                 static_cast<double>(tally->failed_readings));
  }
}

void AddTimes(const DeviceTallies& tallies, Families* out) {
  const auto add = [&](const char* name, const char* help,
                       Distribution<WaitBounds> DeviceTally::*of) {
    FamilyBuilder& family = out->Histogram(name, help);
    for (const auto& [uuid, tally] : tallies) family.Add(Device(uuid), tally->*of);
  };
  add("wait_seconds", "For how long uses waited until they were admitted.", &DeviceTally::waits);
  add("revocation_seconds", "From asking layers back to the report that they are released.",
      &DeviceTally::revocations);
  add("shown_free_seconds",
      "For how long driver readings went on to show what a worker had released.",
      &DeviceTally::shown_free);
}

}  // namespace

std::vector<prometheus::MetricFamily> ToFamilies(const Observation& seen) {
  const DeviceTallies tallies = TalliesOf(seen);
  Families families;
  AddBroker(seen, &families);
  AddLedgers(seen.picture, &families);
  AddWaiting(seen.picture, &families);
  AddComponents(seen, &families);
  AddSessions(seen.picture, &families);
  AddRuns(seen.picture, &families);
  AddDecisions(tallies, &families);
  AddGone(tallies, &families);
  AddUses(tallies, &families);
  AddReadings(tallies, &families);
  AddTimes(tallies, &families);
  return std::move(families).Take();
}

}  // namespace vrambroker::observe
