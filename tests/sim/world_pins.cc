// Whether what is pinned of the host's memory has come to rest.
#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace vrambroker::simulation {

// Whoever is allowed to pin has done so, as far as whole components go, and whoever could be is
// allowed to.
std::string World::UnsettledPins(const core::Picture& picture) const {
  if (checks_.restarted()) return "";  // what is pinned already may be too much
  for (const auto& worker : workers_) {
    if (!worker->alive() || worker->PinRefused()) continue;
    int64_t left = 0;  // allowed, and not pinned: too little for any of its other components
    for (const core::SessionPicture& s : picture.sessions) {
      if (s.pid == worker->process().pid) left = s.pin_allowance.count() - worker->PinnedHost();
    }
    if (left < 0) return absl::StrCat(worker->name(), " has pinned more than it may");
    const auto fits = [&](const std::string& domain, int64_t bytes) {
      return bytes <= checks_.PinBudget(domain) - picture.host_memory.at(domain).charged.count();
    };
    for (const auto& [name, c] : worker->components()) {
      const int64_t wish = c.plan.pin_host;
      if (wish == 0 || c.pinned) continue;
      if (wish <= left) return absl::StrCat(worker->name(), "/", name, " may be pinned and is not");
      if (left > 0) continue;  // another than this was pinned in its place
      if (!fits("", wish) || !fits(worker->plan().host_domain, wish)) continue;
      return absl::StrCat(worker->name(), "/", name, " may not pin ", wish, " though that fits");
    }
  }
  return "";
}

}  // namespace vrambroker::simulation
