// What is charged for whom. For a component: its fixed bytes, and the bytes of the most layers
// among those held, those granted to its running use, and every target sent from the last completed
// generation on, that one included. For a running use, its window and activation. For a worker, its
// pool. A charge rises when the broker decides and falls only when a snapshot says so, or the owner
// is proven gone: it is never on the low side.
#pragma once

#include <string>

#include "broker/core/ledger.h"
#include "broker/core/state.h"

namespace vrambroker::core {

// Layers charged: 0 to all.
int ChargedLayers(const Component& c);
Bytes LayerCharge(const Component& c);
// Window and activation of the running use. 0 where none.
Bytes NeedsCharge(const Component& c);
// Fixed bytes, once admitted or, whoever allowed it, placed.
Bytes FixedCharge(const Component& c);
Bytes ComponentCharge(const Component& c);
Bytes SessionCharge(const State& state, const Session& session);
// What its newest snapshot says is there: fixed bytes, layers and pool, needs of a use not.
Bytes SessionHeld(const State& state, const Session& session);

// Books a target: it counts from now on. Earlier ones that it covers are dropped. Nobody acts any
// more on targets up to `settled`: those of a use that has ended, with what it then held.
void PushTarget(int layers, Component* c, Generation settled = Generation());
// Books that the worker converged on `generation`: targets before it no longer count.
void Complete(Generation generation, Component* c);

// Whether the worker may still release down to a target. What it releases may stay in its pool,
// whose size only its next snapshot tells: until then nothing of the component grows above that
// target, or the same bytes would be there twice, in the pool and in the layers loaded anew.
bool Falling(const Component& c);

// Bytes that the newest reading shows for a session's process beyond the least that it was charged
// since that reading began.
Bytes ShownBeyondFloor(const Device& device, const Session& session);
// The same, or what was learned of it at rest (context, libraries), whichever is more.
Bytes UnexplainedBytes(const Device& device, const Session& session);
Ledger DeriveLedger(const State& state, const Device& device);
// Overcommitment by the least that can be external: what is asked back for it must be needed. While
// the ledger itself shows any, nothing grows.
Bytes SurelyOvercommitted(const Device& device, const Ledger& ledger);

}  // namespace vrambroker::core
