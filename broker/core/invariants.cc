#include "broker/core/machine_impl.h"

namespace vrambroker::core {
namespace {

void CheckComponent(const Component& c) {
  VRAM_CHECK(c.held >= 0 && c.held <= c.count());
  VRAM_CHECK(c.completed <= c.generation);
  Generation last;
  int layers = c.count() + 1;
  for (const OpenTarget& t : c.open) {
    VRAM_CHECK(t.generation > last);  // oldest first
    VRAM_CHECK(t.layers < layers);    // a later one that is as large covers the earlier
    VRAM_CHECK(t.generation >= c.completed && t.generation <= c.generation);
    last = t.generation;
    layers = t.layers;
  }
  if (c.admitted) VRAM_CHECK(!c.open.empty());
  if (!c.use.has_value()) return;
  VRAM_CHECK(c.use->granted >= 0 && c.use->granted <= c.count());
  VRAM_CHECK(ChargedLayers(c) >= c.use->granted);
}

}  // namespace

void Machine::Impl::CheckInvariants() const {
  size_t components = 0;
  for (const auto& [id, s] : state.sessions) {
    VRAM_CHECK(s.id == id);
    components += s.components.size();
    for (ComponentId c : s.components) VRAM_CHECK(state.components.at(c).session == id);
    VRAM_CHECK((s.phase == SessionPhase::kAttached) == static_cast<bool>(s.connection));
    if (s.phase == SessionPhase::kAttached) {
      VRAM_CHECK(state.connections.at(s.connection) == id);
    } else {
      VRAM_CHECK(s.requests.empty());
    }
    VRAM_CHECK(s.floor <= SessionCharge(state, s) || s.device.empty());
    VRAM_CHECK(s.recorded == Bytes() || (s.components.empty() && !s.connection));
    VRAM_CHECK(s.device.empty() || s.on_record == SessionCharge(state, s));
    VRAM_CHECK(static_cast<int>(s.finished.size()) <= config.max_request_ids);
    for (const auto& [request, record] : s.requests) {
      if (record.state != RequestRecord::State::kWaiting) continue;
      bool found = false;
      for (const auto& [order, w] : state.waiting) {
        found |= w.session == id && w.request_id == request;
      }
      VRAM_CHECK(found);
    }
  }
  VRAM_CHECK(components == state.components.size());
  for (const auto& [id, c] : state.components) CheckComponent(c);
  VRAM_CHECK(state.waiting.size() == state.waiting_calls.size());
  for (const auto& [order, w] : state.waiting) {
    VRAM_CHECK(state.waiting_calls.at(w.call) == order);
    VRAM_CHECK(state.sessions.at(w.session).phase == SessionPhase::kAttached);
    VRAM_CHECK(state.components.at(w.component).session == w.session);
  }
  CheckPins();
  for (const auto& [uuid, device] : state.devices) {
    const Ledger l = DeriveLedger(state, device);
    VRAM_CHECK(l.capacity + l.Overcommitted() == l.Free() + l.Sum());
    Bytes charged;
    for (const auto& [id, s] : state.sessions) {
      if (s.device == uuid) charged += SessionCharge(state, s);
    }
    VRAM_CHECK(charged == l.Charged());
  }
}

}  // namespace vrambroker::core
