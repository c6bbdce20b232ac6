// What must hold after every step, whatever happened: the guarantees of the protocol, checked
// against what really is on the devices and against the reference ledger.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broker/core/machine.h"
#include "tests/sim/reference_ledger.h"
#include "tests/sim/scenario.h"
#include "tests/sim/worker_process.h"

namespace vrambroker::simulation {

class Checks {
 public:
  using Fail = std::function<void(const std::string&)>;

  // `machine` may be replaced by another, if Restart is told.
  Checks(const Scenario& scenario, const std::unique_ptr<core::Machine>& machine, Fail fail)
      : scenario_(scenario), machine_(machine), fail_(std::move(fail)) {}

  void Before();
  // After a step of the machine.
  void After(const core::Event& event, const core::Effects& effects, absl::Time now);
  // Another machine goes on from what is on record.
  void Restart(const std::vector<core::Owner>& owners);
  // After anything that may have changed what is on a device.
  void Physical(const std::vector<std::shared_ptr<WorkerProcess>>& workers);

  const ReferenceLedger& ledger() const { return ledger_; }
  // Host bytes that workers of a domain, or of the machine (""), may pin together.
  int64_t PinBudget(const std::string& domain) const;
  // Whether the broker has restarted: what then was pinned already may be more than may be.
  bool restarted() const { return restarted_; }

 private:
  // A component of a process.
  using Key = std::pair<int32_t, std::string>;
  // A use that has begun in this step.
  struct Granted {
    ReferenceLedger::Waiting asked;
    int resident = 0;
  };
  // A shard group that waits while the step decides.
  struct Group {
    ReferenceLedger::Waiting first;  // its oldest member
    std::set<Key> members;
    bool complete() const { return static_cast<int>(members.size()) == first.spec.group_size; }
  };
  struct Death {
    absl::Time noticed;
    uint64_t reading_begun_after = 0;  // newest reading that had begun before it was noticed
  };

  void Compare(const core::Picture& picture);
  void CheckNothingGrew(const core::Event& event, const core::Picture& picture);
  void CheckRunningUses(const core::Picture& picture, const core::Effects& effects);
  void CheckAnswers(const core::Effects& effects, absl::Time now);
  // checks_groups.cc
  void NoteGroups();
  void CheckGroupGrants(const std::vector<Granted>& granted);
  void CheckLevels(const core::Picture& picture);
  void CheckGrant(const ReferenceLedger::Waiting& granted, const std::set<uint64_t>& later,
                  absl::Time now);
  uint64_t HolderOrder(const core::UseSpec& use, const std::set<uint64_t>& later) const;
  void CheckRefusal(const ReferenceLedger::Waiting& refused, const absl::Status& status);
  // checks_pins.cc
  void CheckAllowances(const core::Picture& picture);
  void CheckPinned(const std::vector<std::shared_ptr<WorkerProcess>>& workers);
  void CheckDrops(const core::Event& event, const core::Picture& picture, absl::Time now);
  int64_t Fewest(const ReferenceLedger::Component& c, const core::UseSpec& use) const;
  const core::DeviceSpec& Device(const std::string& uuid) const;
  bool IsLiar(const std::string& worker) const;

  const Scenario& scenario_;
  const std::unique_ptr<core::Machine>& machine_;
  Fail fail_;
  ReferenceLedger ledger_;
  std::map<std::string, int64_t> charges_before_;         // by component id and pid
  std::map<uint64_t, ReferenceLedger::Waiting> waiting_;  // as the step decides
  std::map<std::string, Group> groups_;
  // Of components, the others of their newest shard group.
  std::map<Key, std::set<Key>> peers_;
  uint64_t newest_use_ = 0;
  bool restarted_ = false;
  // Host bytes that count against the budgets, by pid; none on record only.
  std::map<int32_t, int64_t> pin_charges_;
  std::map<int32_t, Death> deaths_;
  std::map<std::string, uint64_t> newest_reading_;  // begun, by device
};

}  // namespace vrambroker::simulation
