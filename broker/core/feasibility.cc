// What can never fit is said at once, with who holds what; it evicts nothing.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/core/machine_impl.h"
#include "broker/core/sizing.h"

namespace vrambroker::core {

// Least bytes that admit the use: its fewest layers beside a window, or all of them without one.
Bytes Machine::Impl::FewestBytes(const Component& c, const UseSpec& use) const {
  const Sizing sizing(c, use);
  int64_t least = sizing.Total(Fewest(c, use));
  if (Most(c, use) == c.count()) least = std::min(least, sizing.Total(c.count()));
  return Bytes(least);
}

// What is there for uses at best: all but reserve, fixed and permanent bytes.
Bytes Machine::Impl::Ceiling(const Device& device) const {
  const Ledger ledger = DeriveLedger(state, device);
  return MinusOrZero(ledger.capacity, ledger.reserve + ledger.permanent);
}

std::string Machine::Impl::Holders(const Device& device) const {
  std::vector<std::string> parts = {absl::StrCat(ToString(device.spec.capacity), " in all"),
                                    absl::StrCat(ToString(device.spec.reserve), " reserve")};
  for (const auto& [id, c] : state.components) {
    if (state.sessions.at(c.session).device != device.spec.uuid) continue;
    const Bytes held = FixedCharge(c) + (c.permanent() ? LayerCharge(c) : Bytes());
    if (held == Bytes()) continue;
    parts.push_back(absl::StrCat(ToString(held), c.permanent() ? " permanent of " : " fixed of ",
                                 ComponentName(c)));
    if (parts.size() >= 12) {
      parts.push_back("and others");
      break;
    }
  }
  return absl::StrJoin(parts, ", ");
}

void Machine::Impl::RefuseInfeasible(const Device& device) {
  const bool anybody = std::any_of(state.waiting.begin(), state.waiting.end(), [&](const auto& w) {
    return state.sessions.at(w.second.session).device == device.spec.uuid;
  });
  if (!anybody) return;
  std::vector<uint64_t> refused;
  const Bytes ceiling = Ceiling(device);
  for (auto& [order, w] : state.waiting) {
    const Component& c = state.components.at(w.component);
    if (state.sessions.at(c.session).device != device.spec.uuid) continue;
    // What was learned beyond what is declared refuses nobody.
    const Bytes over = MinusOrZero(FewestBytes(c, w.spec), ceiling);
    w.spec.activation -= std::min(over, MinusOrZero(w.spec.activation, w.ask.declared));
    if (state.draining || FewestBytes(c, w.spec) > ceiling) refused.push_back(order);
  }
  for (uint64_t order : refused) {
    if (!state.waiting.contains(order)) continue;  // went with its group
    const WaitingUse& w = state.waiting.at(order);
    const Component& c = state.components.at(w.component);
    if (state.draining) {
      Withdraw(order, absl::UnavailableError("the broker is draining and admits no use"));
      continue;
    }
    const std::string text =
        absl::StrCat(ComponentName(c), " cannot fit on ", device.spec.uuid, ": it needs at least ",
                     ToString(FewestBytes(c, w.spec)), " (", ToString(w.spec.activation),
                     " of it activation) and at most ", ToString(ceiling), " can be had (",
                     Holders(device), "). Shrink the use, or take another device.");
    Log(DecisionKind::kRefusal, Reason::kCannotFit, c, 0, Bytes(), text);
    Withdraw(order, absl::ResourceExhaustedError(text));
  }
}

}  // namespace vrambroker::core
