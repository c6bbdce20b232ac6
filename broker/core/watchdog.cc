// Uses that wait long, named with who holds what: a wait that nobody looks at is a hang.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/core/machine_impl.h"

namespace vrambroker::core {
namespace {

// Components that are named; the rest are added up.
constexpr size_t kNamed = 8;

}  // namespace

void Machine::Impl::NameLongWaits(const Device& device) {
  for (auto& [order, w] : state.waiting) {
    const Component& c = state.components.at(w.component);
    if (now < w.named_at || state.sessions.at(c.session).device != device.spec.uuid) continue;
    const absl::Duration waited = now - w.arrived;
    w.named_at = now + waited;
    effects.push_back(LongWait{ComponentName(c), device.spec.uuid, w.request_id, waited,
                               w.blocked_by, WhoHolds(device)});
  }
}

// The largest first.
std::string Machine::Impl::WhoHolds(const Device& device) const {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (const auto& [id, c] : state.components) {
    if (state.sessions.at(c.session).device != device.spec.uuid) continue;
    const Bytes charge = ComponentCharge(c);
    if (charge == Bytes()) continue;
    const std::string how =
        c.use.has_value()
            ? absl::StrCat(" in use for ",
                           absl::FormatDuration(absl::Trunc(now - c.use->began, absl::Seconds(1))))
        : c.permanent() ? " permanent"
                        : " without a use";
    parts.emplace_back(-charge.count(), absl::StrCat(ComponentName(c), " ", ToString(charge), how));
  }
  std::sort(parts.begin(), parts.end());
  Bytes rest;
  std::vector<std::string> texts;
  for (const auto& [charge, text] : parts) {
    if (texts.size() < kNamed) {
      texts.push_back(text);
    } else {
      rest += Bytes(-charge);
    }
  }
  if (rest > Bytes()) {
    texts.push_back(absl::StrCat(parts.size() - kNamed, " more ", ToString(rest)));
  }
  const Ledger ledger = DeriveLedger(state, device);
  texts.push_back(absl::StrCat("pooled ", ToString(ledger.pooled)));
  texts.push_back(absl::StrCat("draining ", ToString(ledger.draining)));
  texts.push_back(ledger.external_known ? absl::StrCat("external ", ToString(ledger.external))
                                        : "external not known");
  texts.push_back(absl::StrCat("free ", ToString(ledger.Free())));
  return absl::StrJoin(texts, ", ");
}

}  // namespace vrambroker::core
