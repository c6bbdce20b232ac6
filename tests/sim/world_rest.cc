// The end of a run: all comes to rest, then the broker drains.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace vrambroker::simulation {

void World::Converge() {
  Note("---- faults are off, programs start nothing new ----");
  surroundings_.faults = surroundings_.busy = false;
  network_.SwitchFaults(false);
  observer_.ForeignGoes();
  for (const auto& worker : workers_) worker->FreeHidden();
  if (Until([this] { return Settled(); }, absl::Seconds(300))) return;
  Fail(absl::StrCat("it does not converge: ", Unsettled()));
}

bool World::Settled() const { return Unsettled().empty(); }

// What keeps the world from being at rest. Empty: nothing.
std::string World::Unsettled() const {
  const core::Picture picture = machine_->GetPicture(time_.now());
  for (const auto& worker : workers_) {
    if (worker->stopped()) return absl::StrCat(worker->name(), " is stopped");
    if (!worker->alive() && worker->Physical() > 0) return "bytes of the dead";
    if (!worker->alive()) continue;
    if (!worker->session().attached()) return absl::StrCat(worker->name(), " is not attached");
    if (worker->UsesOpen() > 0) {
      std::string text = absl::StrCat(worker->name(), " has ", worker->UsesOpen(), " open uses");
      absl::StrAppend(&text, worker->Describe());
      for (const auto& w : picture.waiting) {
        absl::StrAppend(&text, "; ", w.component, " ", w.request_id, " waits: ", w.blocked_by);
      }
      return text;
    }
  }
  for (const auto& driver : drivers_) {
    if (driver->alive() && driver->open_runs() > 0) return "a run goes on";
  }
  if (!picture.waiting.empty()) {
    return absl::StrCat(picture.waiting[0].component, " waits: ", picture.waiting[0].blocked_by);
  }
  if (network_.unanswered() > 0) return absl::StrCat(network_.unanswered(), " calls unanswered");
  size_t alive = 0;
  for (const auto& worker : workers_) alive += worker->alive() ? 1 : 0;
  for (const auto& driver : drivers_) alive += driver->alive() ? 1 : 0;
  if (picture.sessions.size() != alive) {
    return absl::StrCat(picture.sessions.size(), " sessions of ", alive, " live processes");
  }
  for (const core::SessionPicture& s : picture.sessions) {
    if (s.phase != core::SessionPhase::kAttached) return absl::StrCat(s.worker, " is lost");
    if (s.overdue_targets > 0) return absl::StrCat(s.worker, " has overdue targets");
  }
  for (const auto& [pid, worker] : checks_.ledger().workers()) {
    for (const auto& process : workers_) {
      if (process->process().pid != pid) continue;
      if (process->Physical() == worker.Charge()) continue;
      return absl::StrCat(worker.name, " is charged with ", worker.Charge(), " and has ",
                          process->Physical());
    }
  }
  if (const std::string text = UnsettledPins(picture); !text.empty()) return text;
  for (const core::DevicePicture& device : picture.devices) {
    const core::Ledger& l = device.ledger;
    if (l.draining > core::Bytes()) return absl::StrCat(ToString(l.draining), " are draining");
    if (l.external > core::Bytes()) {
      std::string text = absl::StrCat(ToString(l.external), " are external");
      for (const core::ComponentPicture& c : device.components) {
        absl::StrAppend(&text, "; ", c.id, " holds ", c.held, " of target ", c.target, " g",
                        c.generation.value(), " done g", c.completed.value(),
                        c.refused ? ", refused" : "");
      }
      return text;
    }
    if (l.in_use > core::Bytes()) return absl::StrCat(ToString(l.in_use), " are in use");
    if (l.Overcommitted() > core::Bytes()) return "overcommitted";
    for (const core::ComponentPicture& c : device.components) {
      if (c.held > c.target || (c.held < c.target && c.lifetime == core::Lifetime::kForward)) {
        return absl::StrCat(c.id, " holds ", c.held, ", its target is ", c.target);
      }
      if (!c.refused) continue;
      for (const auto& worker : scenario_.workers) {
        for (const ComponentPlan& plan : worker.components) {
          if (absl::StrCat(worker.name, "/", plan.name) != c.id) continue;
          int64_t need = plan.fixed;
          for (int64_t bytes : plan.layers) need += plan.permanent ? bytes : 0;
          if (need <= (l.Free() + l.retained + l.pooled).count()) {
            return absl::StrCat(c.id, " is refused though it fits");
          }
        }
      }
    }
  }
  return "";
}

void World::Drain() {
  Note("---- drain ----");
  Step(core::DrainEvent{kDrainCall});
  const int64_t before = grants_;
  for (const auto& worker : workers_) {
    if (worker->alive()) worker->Ask();
  }
  const auto released = [this] {
    const core::Picture picture = machine_->GetPicture(time_.now());
    return std::all_of(picture.devices.begin(), picture.devices.end(), [](const auto& device) {
      return device.ledger.retained == core::Bytes() && device.ledger.draining == core::Bytes();
    });
  };
  if (!Until(released, absl::Seconds(60))) Fail("a drained broker still has retained sets");
  if (grants_ != before) Fail("a drained broker has admitted a use");
}

}  // namespace vrambroker::simulation
