// What an earlier broker's record says was held, and what is to be on record for the next one.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

namespace {

bool IsMissing(const Session& s) { return s.phase == SessionPhase::kLost && s.recorded > Bytes(); }

// Whether what others hold of it is not known yet, and may be soon.
bool IsBlind(const State& state, const Device& device, const Config& config, absl::Time now) {
  if (!device.spec.has_probe || now - device.readings_fail_since >= config.settling_time) {
    return false;
  }
  return !DeriveLedger(state, device).external_known;
}

}  // namespace

// A broker that begins knows neither who holds what on record nor what others hold.
void Machine::Impl::Adopt(std::vector<Owner> recorded) {
  for (const auto& [uuid, device] : state.devices) state.recovering |= device.spec.has_probe;
  for (Owner& owner : recorded) {
    if (!state.devices.contains(owner.device) || owner.charge == Bytes()) continue;
    if (static_cast<int>(state.sessions.size()) >= config.max_sessions) break;
    Session session;
    session.id = SessionId(++last_session);
    session.worker = std::move(owner.worker);
    session.process = owner.process;
    session.attach_number = owner.attach_number;
    session.phase = SessionPhase::kLost;
    session.device = std::move(owner.device);
    session.recorded = session.on_record = session.last_charge = owner.charge;
    session.attach_on_record = owner.attach_number;
    // A reading shows no more of it than that; what is less is not known.
    session.floor = session.next_floor = owner.charge;
    session.provable = owner.provable;
    state.sessions.emplace(session.id, std::move(session));
    state.recovering = true;
  }
}

// Over once nobody on record is missing any more and each driver has been read, or after the
// window. Whose death nobody can tell is then taken to be gone: a reading begun after that shows
// what it still has, as external.
void Machine::Impl::NoteRecovery() {
  if (state.pins_open_at == absl::InfiniteFuture()) {
    state.pins_open_at = now + config.recovery_window;
  }
  if (!state.recovering) return;
  if (state.recovery_ends == absl::InfiniteFuture()) {
    state.recovery_ends = now + config.recovery_window;
  }
  const bool missing = std::any_of(state.sessions.begin(), state.sessions.end(),
                                   [](const auto& s) { return IsMissing(s.second); });
  const bool blind = std::any_of(state.devices.begin(), state.devices.end(), [&](const auto& d) {
    return IsBlind(state, d.second, config, now);
  });
  if ((missing || blind) && now < state.recovery_ends) return;
  state.recovering = false;
  for (auto& [id, s] : state.sessions) {
    if (!IsMissing(s) || s.provable) continue;
    Happens(SessionEvent::kPresumedDead, id, "");
  }
}

std::string Machine::Impl::RecoveryText() const {
  int missing = 0;
  Bytes bytes;
  std::string name;
  for (const auto& [id, s] : state.sessions) {
    if (!IsMissing(s)) continue;
    if (++missing == 1) name = s.worker;
    bytes += s.recorded;
  }
  const std::string left =
      absl::FormatDuration(absl::Ceil(state.recovery_ends - now, absl::Seconds(1)));
  if (missing == 0) {
    return absl::StrCat("the broker has just begun and the driver's first reading is not there; ",
                        "at most ", left, " more");
  }
  return absl::StrCat("recovery after a restart: ", missing, " workers on record (", name,
                      missing > 1 ? " and others" : "", ", ", ToString(bytes),
                      ") have not attached again; at most ", left, " more");
}

// Before the effects of this step that tell anybody of it.
void Machine::Impl::RecordCharges() {
  for (auto& [id, session] : state.sessions) {
    if (!session.device.empty()) RecordChargeOf(&session);
  }
  effects.insert(effects.begin(), std::make_move_iterator(records.begin()),
                 std::make_move_iterator(records.end()));
}

void Machine::Impl::RecordChargeOf(Session* session) {
  const bool attached_again =
      session->on_record > Bytes() && session->attach_on_record != session->attach_number;
  if (session->last_charge == session->on_record && !attached_again) return;
  session->on_record = session->last_charge;
  session->attach_on_record = session->attach_number;
  records.push_back(RecordCharge{{session->worker, session->process, session->attach_number,
                                  session->device, session->on_record, session->provable}});
}

void Machine::Impl::ForgetCharge(const Session& session) {
  if (session.on_record == Bytes()) return;
  records.push_back(RecordCharge{{session.worker, session.process, session.attach_number,
                                  session.device, Bytes(), session.provable}});
}

}  // namespace vrambroker::core
