// Driver readings, and the proof that a dead process's bytes are free.
#include <algorithm>
#include <vector>

#include "broker/core/machine_impl.h"

namespace vrambroker::core {
namespace {

// While somebody waits for the driver to show something, it is asked this often.
constexpr absl::Duration kReadAgain = absl::Milliseconds(50);

}  // namespace

void Machine::Impl::On(const ReadingBeganEvent& e) {
  const auto it = state.devices.find(e.device_uuid);
  if (it == state.devices.end()) return;
  Device& device = it->second;
  device.reading_begun = e.reading;
  for (auto& [id, s] : state.sessions) {
    if (s.device != e.device_uuid) continue;
    s.next_floor = s.charge_when_reading_began = SessionCharge(state, s);
    s.raised_in_reading = false;
    s.gone_before_reading = s.phase == SessionPhase::kGone;
    s.quiet_when_reading_began = Quiet(s);
  }
}

void Machine::Impl::On(const ReadingEvent& e) {
  const auto it = state.devices.find(e.device_uuid);
  if (it == state.devices.end() || it->second.reading_begun != e.reading) return;
  Device& device = it->second;
  device.reading_begun = 0;
  if (!e.status.ok()) {
    device.readings_fail_since = std::min(device.readings_fail_since, now);
    return;
  }
  device.readings_fail_since = absl::InfiniteFuture();
  device.reading_known = true;
  device.reading_total = e.total_used;
  device.pids_match |= e.by_process_known && NamesOneOfOurs(e);
  device.by_process_known = e.by_process_known && device.pids_match;
  if (!device.by_process_known) return TakeTotal(e.total_used, &device);

  device.unlisted = e.unlisted;

  std::map<int32_t, Bytes> shown;
  for (const auto& [pid, bytes] : e.by_process) shown[pid] += bytes;
  for (auto& [id, s] : state.sessions) {
    if (s.device != e.device_uuid) continue;
    if (s.raised_in_reading) {
      // It shows what came meanwhile as well: what was known of this worker stays.
      if (!s.process.named_by_pid()) continue;
      const auto before = device.by_process.find(s.process.pid);
      shown[s.process.pid] = before == device.by_process.end() ? Bytes() : before->second;
    } else {
      s.floor = s.next_floor;
    }
  }
  device.by_process = std::move(shown);
  for (auto& [id, s] : state.sessions) {
    if (s.device == e.device_uuid) LearnFrom(device, &s);
  }
  DropShownGone(device);
}

// Whether the driver's pids are those that we know our workers by.
bool Machine::Impl::NamesOneOfOurs(const ReadingEvent& e) const {
  for (const auto& [id, s] : state.sessions) {
    if (s.device != e.device_uuid || !s.process.named_by_pid()) continue;
    Bytes shown;
    for (const auto& [pid, bytes] : e.by_process) shown += pid == s.process.pid ? bytes : Bytes();
    if (shown > Bytes() && shown >= SessionHeld(state, s)) return true;
  }
  return false;
}

// A total says what others have only while nothing of ours is in motion. Other readings count where
// they bring the upper end down: what a worker in motion has is then all taken for external. Until
// one counts, the claims of the dead stand.
void Machine::Impl::TakeTotal(Bytes total, Device* device) {
  bool quiet = true;
  Bytes ours, claims;
  for (const auto& [id, s] : state.sessions) {
    if (s.device != device->spec.uuid) continue;
    if (s.gone_before_reading) {
      claims += SessionCharge(state, s);
    } else if (s.recorded > Bytes()) {
      continue;  // it may hold nothing of what is on record: all that is shown may be others'
    } else if (StayedQuiet(s)) {
      ours += s.next_floor;
    } else {
      quiet = false;
    }
  }
  const Bytes known = DeriveLedger(state, *device).external + claims;
  if (!quiet && !(device->quiet_total_known && MinusOrZero(total, ours) <= known)) return;
  device->quiet_total_known = true;
  device->quiet_total = total;
  for (auto& [id, s] : state.sessions) {
    if (s.device != device->spec.uuid) continue;
    s.total_floor = !s.gone_before_reading && StayedQuiet(s) ? s.next_floor : Bytes();
  }
  DropShownGone(*device);
}

bool Machine::Impl::StayedQuiet(const Session& s) const {
  return s.quiet_when_reading_began && Quiet(s) && !s.raised_in_reading &&
         s.next_floor == s.charge_when_reading_began;
}

// What a reading that began after the proof shows of the dead is external from now on.
void Machine::Impl::DropShownGone(const Device& device) {
  std::vector<SessionId> gone;
  for (const auto& [id, s] : state.sessions) {
    if (s.device == device.spec.uuid && s.gone_before_reading && s.phase == SessionPhase::kGone) {
      gone.push_back(id);
    }
  }
  for (SessionId id : gone) Happens(SessionEvent::kShownFree, id, "");
}

// Whether what is charged is what is held: nothing only on record, no use, every target reached,
// everything placed, no pool that was told to go.
bool Machine::Impl::Quiet(const Session& session) const {
  if (session.recorded > Bytes()) return false;
  if (session.pool > Bytes() && now - session.trim_sent < config.release_deadline) return false;
  for (ComponentId id : session.components) {
    const Component& c = state.components.at(id);
    if (c.use.has_value() || ChargedLayers(c) != c.held) return false;
    if (c.admitted && (c.target() != c.held || c.completed != c.generation)) return false;
    if (c.admitted && c.spec.fixed > Bytes() && !c.fixed_placed) return false;
  }
  return true;
}

// What a process has beyond what it holds, seen at rest. It may shrink at any time; growth beyond
// tolerance is not learned, so that a release that did not happen is not taken for overhead.
void Machine::Impl::LearnFrom(const Device& device, Session* session) {
  if (!device.by_process_known || !session->process.named_by_pid()) return;
  if (!Quiet(*session)) return;
  if (session->raised_in_reading || session->phase != SessionPhase::kAttached) return;
  const Bytes seen = ShownBeyondFloor(device, *session);
  // What has just gone may still be shown: that is lag, not overhead.
  const bool settled = now - session->charge_fell >= config.settling_time;
  const bool grows = !session->learned_known || seen > session->learned;
  if (grows && !settled) return;
  if (!session->learned_known || seen <= session->learned + config.unexplained_tolerance) {
    session->learned = seen;
    session->learned_known = true;
  }
}

Bytes Machine::Impl::ComingResidual(const Device& device) const {
  Bytes coming;
  for (const auto& [id, s] : state.sessions) {
    if (s.device != device.spec.uuid || s.phase != SessionPhase::kAttached) continue;
    if (now - s.residual_since >= config.settling_time) continue;
    coming += MinusOrZero(ShownBeyondFloor(device, s), s.learned);
  }
  return coming;
}

// Without a driver that can be read, proven death counts after the settling time.
void Machine::Impl::DropProvenGone(Device* device) {
  const bool blind =
      !device->spec.has_probe || now - device->readings_fail_since >= config.settling_time;
  if (!blind) return;
  std::vector<SessionId> gone;
  for (const auto& [id, s] : state.sessions) {
    if (s.device != device->spec.uuid || s.phase != SessionPhase::kGone) continue;
    if (now - s.gone_at >= config.settling_time) gone.push_back(id);
  }
  for (SessionId id : gone) Happens(SessionEvent::kShownFree, id, "");
}

bool Machine::Impl::MustComeToRest(const Device& device) const {
  if (!device.spec.has_probe || device.by_process_known) return false;
  return std::any_of(state.sessions.begin(), state.sessions.end(), [&](const auto& entry) {
    const Session& s = entry.second;
    return s.device == device.spec.uuid && s.phase == SessionPhase::kGone &&
           now - s.gone_at >= config.settling_time;
  });
}

bool Machine::Impl::ReadingWanted(const Device& device) const {
  bool wanted = state.recovering && !DeriveLedger(state, device).external_known;
  for (const auto& [id, s] : state.sessions) {
    wanted |= s.device == device.spec.uuid && s.phase == SessionPhase::kGone;
  }
  for (const auto& [order, w] : state.waiting) {
    wanted |= state.sessions.at(w.session).device == device.spec.uuid;
  }
  return device.spec.has_probe && wanted;
}

void Machine::Impl::WantReadings(Device* device) {
  if (device->reading_begun != 0) return;
  if (now < device->next_wanted_reading) return;
  if (!ReadingWanted(*device)) return;
  device->next_wanted_reading = now + kReadAgain;
  effects.push_back(WantReading{device->spec.uuid});
}

}  // namespace vrambroker::core
