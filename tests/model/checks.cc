#include "tests/model/checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/model/inspection.h"

namespace vrambroker::model {
namespace {

using core::MachineInspection;

int64_t Charge(const State& s, int worker) {
  return MachineInspection::Charge(*s.machine, ProcessOf(worker)).value_or(core::Bytes()).count();
}

}  // namespace

std::string WrongIn(const Scenario& scenario, const State& s) {
  if (!s.violation.empty()) return s.violation;
  int physical = 0;
  for (size_t i = 0; i < s.workers.size(); ++i) {
    const Worker& w = s.workers[i];
    physical += w.Physical();
    if (!w.alive) continue;
    const int64_t charge = Charge(s, static_cast<int>(i)) / kUnit;
    // A use that may begin any moment first gives up what is above its grant, then takes the rest.
    const bool may_begin = w.program == Program::kGranted;
    const int has =
        may_begin ? std::max(w.Physical(), w.fixed + w.granted + w.granted_needs) : w.Physical();
    if (has > charge) {
      return absl::StrCat("w", i, " has, or may take, ", has, " units and is charged with ",
                          charge);
    }
  }
  if (physical > scenario.capacity) {
    return absl::StrCat(physical, " units are on a card of ", scenario.capacity);
  }
  if (MachineInspection::RevokesARunningUse(*s.machine)) return "a use that runs is revoked";
  const core::Ledger ledger = MachineInspection::LedgerOf(*s.machine);
  const int64_t known = (ledger.Charged() + ledger.external).count() / kUnit;
  if (physical > known) {
    return absl::StrCat(physical, " units are on the card, and the ledger knows of ", known);
  }
  return "";
}

std::string Unsettled(const Scenario& scenario, const State& s) {
  const core::Picture picture = s.machine->GetPicture(s.now);
  size_t alive = scenario.declared_runs > 0 ? 1 : 0;  // the driver
  for (size_t i = 0; i < s.workers.size(); ++i) {
    const Worker& w = s.workers[i];
    const std::string name = absl::StrCat("w", i);
    if (!w.alive && w.Physical() > 0) return absl::StrCat(name, " is dead and has bytes");
    if (!w.alive) continue;
    ++alive;
    if (!w.session->attached()) return absl::StrCat(name, " is not attached");
    if (w.program != Program::kIdle) return absl::StrCat(name, " has an open use");
    if (w.copying || w.place_due || w.trim_due) return absl::StrCat(name, " is at work");
    if (!w.session->reported()) return absl::StrCat(name, " has not reported");
    const int64_t charge = Charge(s, static_cast<int>(i));
    if (charge != w.Physical() * kUnit) {
      return absl::StrCat(name, " has ", w.Physical(), " units and is charged with ",
                          charge / kUnit);
    }
  }
  if (!picture.waiting.empty()) {
    return absl::StrCat(picture.waiting[0].component, " waits: ", picture.waiting[0].blocked_by);
  }
  if (picture.sessions.size() != alive) {
    return absl::StrCat("the broker knows ", picture.sessions.size(), " workers, alive are ",
                        alive);
  }
  for (const core::SessionPicture& session : picture.sessions) {
    if (session.phase == core::SessionPhase::kAttached) continue;
    return absl::StrCat(session.worker, " is lost");
  }
  for (const core::DevicePicture& device : picture.devices) {
    const core::Ledger& l = device.ledger;
    if (l.draining + l.in_use + l.external + l.Overcommitted() > core::Bytes()) {
      return absl::StrCat(ToString(l.draining), " are draining, ", ToString(l.in_use), " in use, ",
                          ToString(l.external), " external, ", ToString(l.Overcommitted()),
                          " too much");
    }
    for (const core::ComponentPicture& c : device.components) {
      if (c.use) return absl::StrCat(c.id, " is in use for the broker");
      if (c.held == c.target || c.refused) continue;
      return absl::StrCat(c.id, " holds ", c.held, ", its target is ", c.target);
    }
  }
  return "";
}

}  // namespace vrambroker::model
