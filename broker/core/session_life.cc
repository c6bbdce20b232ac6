// What happens to sessions, as the table of session_life.h has it.
#include "broker/core/session_life.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {

void Machine::Impl::Happens(SessionEvent event, SessionId id, const std::string& why,
                            Session* heir) {
  Session& session = state.sessions.at(id);
  const SessionParty party = session.device.empty() ? SessionParty::kDriver : SessionParty::kWorker;
  const SessionRule* rule = RuleFor(session.phase, party, event);
  if (rule == nullptr) return;
  if (rule->actions & kCloseStream) {
    effects.push_back(CloseStream{session.connection, absl::AbortedError(why)});
  }
  if (rule->actions & kLetGo) LetGo(&session, why);
  if (rule->actions & kHandOver) HandOver(&session, heir);
  if (rule->actions & kAwaitProof) {
    session.gone_at = now;
    pins_changed = true;  // host memory goes with the process
    Stir(&DeviceOf(session));
  }
  if (rule->actions & kDrop) Drop(&session);
  if (!rule->next.has_value()) {
    state.sessions.erase(id);
    return;
  }
  session.phase = *rule->next;
  if (session.phase == SessionPhase::kLost) session.lost_at = now;
}

// Of what hangs on its stream.
void Machine::Impl::LetGo(Session* session, const std::string& why) {
  state.connections.erase(session->connection);
  session->connection = ConnectionId();
  std::vector<uint64_t> mine;
  for (const auto& [order, w] : state.waiting) {
    if (w.session == session->id) mine.push_back(order);
  }
  for (uint64_t order : mine) {
    if (!state.waiting.contains(order)) continue;  // went with its group
    Withdraw(order, absl::AbortedError(absl::StrCat("the session of ", session->worker,
                                                    " is lost: ", why, "; attach again")));
  }
  session->requests.clear();
  session->finished.clear();
  session->marks = 0;
  state.runs.EndAt(session->id, now + config.run_grace);
  if (!session->device.empty()) Stir(&DeviceOf(*session));
}

void Machine::Impl::HandOver(Session* old, Session* heir) {
  heir->on_record = old->on_record;
  heir->attach_on_record = old->attach_on_record;
  // What it says now takes the place of what an earlier broker knew.
  if (old->recorded > Bytes()) return;
  // The record goes on: what was sent and not completed still counts.
  heir->components = std::exchange(old->components, {});
  for (ComponentId id : heir->components) {
    Component& c = state.components.at(id);
    c.session = heir->id;
    c.may_pin &= old->host.domain == heir->host.domain;  // or it was allowed of another's memory
  }
  heir->sequence = old->sequence;
  heir->pool = old->pool;
  heir->pinned_host = old->pinned_host;
  heir->pin_budget = old->pin_budget;
  heir->machine_pin_budget = old->machine_pin_budget;
  heir->floor = old->floor;
  heir->next_floor = old->next_floor;
  heir->total_floor = old->total_floor;
  heir->raised_in_reading = old->raised_in_reading;
  heir->charge_when_reading_began = old->charge_when_reading_began;
  heir->learned_known = old->learned_known;
  heir->learned = old->learned;
  heir->residual_since = old->residual_since;
  heir->pipelines = old->pipelines;
  state.runs.HandOver(old->id, heir->id);
}

void Machine::Impl::Drop(Session* session) {
  for (ComponentId c : session->components) state.components.erase(c);
  ForgetCharge(*session);
  future_changed = pipelines_changed = true;
}

void Machine::Impl::On(const StreamClosedEvent& e) {
  const auto it = state.connections.find(e.connection);
  if (it == state.connections.end()) return;
  Happens(SessionEvent::kStreamEnded, it->second, "its stream ended");
}

void Machine::Impl::On(const ProcessDiedEvent& e) {
  if (!e.process.known()) return;
  std::vector<SessionId> dead;
  for (const auto& [id, s] : state.sessions) {
    if (s.process == e.process) dead.push_back(id);
  }
  for (SessionId id : dead) Happens(SessionEvent::kProcessDied, id, "the process has ended");
}

}  // namespace vrambroker::core
