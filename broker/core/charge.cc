#include "broker/core/charge.h"

#include <algorithm>

namespace vrambroker::core {

int ChargedLayers(const Component& c) {
  int layers = c.held;
  if (c.use.has_value()) layers = std::max(layers, c.use->granted);
  for (const OpenTarget& t : c.open) layers = std::max(layers, t.layers);
  return layers;
}

Bytes LayerCharge(const Component& c) { return c.spec.layers.Of(ChargedLayers(c)); }

Bytes NeedsCharge(const Component& c) {
  return c.use.has_value() ? c.use->window + c.use->activation : Bytes();
}

Bytes FixedCharge(const Component& c) {
  return c.admitted || c.fixed_placed ? c.spec.fixed : Bytes();
}

Bytes ComponentCharge(const Component& c) {
  return FixedCharge(c) + LayerCharge(c) + NeedsCharge(c);
}

Bytes SessionCharge(const State& state, const Session& session) {
  Bytes sum = session.pool + session.recorded;
  for (ComponentId id : session.components) sum += ComponentCharge(state.components.at(id));
  return sum;
}

Bytes SessionHeld(const State& state, const Session& session) {
  Bytes sum = session.pool;
  for (ComponentId id : session.components) {
    const Component& c = state.components.at(id);
    sum += c.spec.layers.Of(c.held) + (c.fixed_placed ? c.spec.fixed : Bytes());
  }
  return sum;
}

void PushTarget(int layers, Component* c, Generation settled) {
  VRAM_CHECK(layers >= 0 && layers <= c->count());
  c->generation = c->generation.Next();
  // Of those that are settled, what is held is what was said since.
  settled = std::max(settled, c->completed);
  bool falls = layers < c->held;
  for (const OpenTarget& t : c->open) falls |= t.generation > settled && t.layers > layers;
  if (falls) c->fall = c->generation;
  std::erase_if(c->open, [&](const OpenTarget& t) { return t.layers <= layers; });
  c->open.push_back({c->generation, layers});
}

void Complete(Generation generation, Component* c) {
  if (generation <= c->completed) return;
  c->completed = generation;
  std::erase_if(c->open, [&](const OpenTarget& t) { return t.generation < generation; });
}

bool Falling(const Component& c) { return c.completed < c.fall; }

Bytes ShownBeyondFloor(const Device& device, const Session& session) {
  if (!device.by_process_known || !session.process.named_by_pid()) return Bytes();
  const auto it = device.by_process.find(session.process.pid);
  return it == device.by_process.end() ? Bytes() : MinusOrZero(it->second, session.floor);
}

Bytes UnexplainedBytes(const Device& device, const Session& session) {
  return std::max(ShownBeyondFloor(device, session), session.learned);
}

namespace {

void AddComponent(const Component& c, bool attached, Ledger* ledger) {
  ledger->permanent += FixedCharge(c);
  const Bytes layers = LayerCharge(c);
  if (c.permanent()) {
    ledger->permanent += layers;
    (attached ? ledger->in_use : ledger->draining) += NeedsCharge(c);
  } else if (!attached) {
    ledger->draining += layers + NeedsCharge(c);
  } else if (c.use.has_value()) {
    ledger->in_use += layers + NeedsCharge(c);
  } else {
    const Bytes wanted = std::min(layers, c.spec.layers.Of(c.target()));
    ledger->retained += wanted;
    ledger->draining += layers - wanted;
  }
}

// From totals: all but the least that our workers can have had of it. What they have given back
// since may have been taken by others before it was said.
Bytes ExternalInTotal(const State& state, const Device& device) {
  if (!device.quiet_total_known) return Bytes();
  Bytes ours;
  for (const auto& [id, session] : state.sessions) {
    if (session.device == device.spec.uuid) ours += session.total_floor;
  }
  return MinusOrZero(device.quiet_total, ours);
}

// What the driver shows for processes that are none of ours, for ours beyond their charge, and for
// nobody. Sessions of one process share what is shown for it.
Bytes External(const State& state, const Device& device) {
  if (!device.reading_known) return Bytes();
  if (!device.by_process_known) return ExternalInTotal(state, device);
  std::map<int32_t, std::pair<Bytes, Bytes>> ours;  // pid to floor and learned
  for (const auto& [id, session] : state.sessions) {
    if (session.device != device.spec.uuid || !session.process.named_by_pid()) continue;
    auto& [floor, learned] = ours[session.process.pid];
    floor += session.floor;
    learned = std::max(learned, session.learned);
  }
  Bytes sum = device.unlisted;
  for (const auto& [pid, bytes] : device.by_process) {
    const auto it = ours.find(pid);
    sum += it == ours.end() ? bytes
                            : std::max(MinusOrZero(bytes, it->second.first), it->second.second);
  }
  return sum;
}

}  // namespace

Ledger DeriveLedger(const State& state, const Device& device) {
  Ledger ledger;
  ledger.capacity = device.spec.capacity;
  ledger.reserve = device.spec.reserve;
  for (const auto& [id, session] : state.sessions) {
    if (session.device != device.spec.uuid) continue;
    const bool attached = session.phase == SessionPhase::kAttached;
    (attached ? ledger.pooled : ledger.draining) += session.pool;
    ledger.draining += session.recorded;
    for (ComponentId c : session.components) {
      AddComponent(state.components.at(c), attached, &ledger);
    }
  }
  ledger.external = External(state, device);
  ledger.external_known =
      device.reading_known && (device.by_process_known || device.quiet_total_known);
  return ledger;
}

Bytes SurelyOvercommitted(const Device& device, const Ledger& ledger) {
  if (device.by_process_known) return ledger.Overcommitted();
  const Bytes external = MinusOrZero(device.quiet_total, ledger.Charged());
  return MinusOrZero(ledger.reserve + ledger.Charged() + external, ledger.capacity);
}

}  // namespace vrambroker::core
