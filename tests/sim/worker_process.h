// A worker process: what really is on the device for it, byte by byte, and the program that uses
// its components. Layers come and go one at a time, a use's window and activation in parts, and
// what is told is told when it is true: before a copy, after a release.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/peer.h"

namespace vrambroker::simulation {

// A use that somebody else wants of a worker's component, and what to do when it is over.
struct Wanted {
  uint64_t run = 0;
  int stage = 0;
  int passes = 1;
  int64_t activation = 0;
  std::function<void()> over;
  // As a member of a shard group of so many, with these layers at least and at most. Empty: of
  // none.
  std::string group;
  int members = 0;
  int min_resident = 0;
  int max_resident = 0;
};

class WorkerProcess : public Peer {
 public:
  WorkerProcess(Surroundings* world, const WorkerPlan& plan, core::Process process);

  struct Use {
    client::Ticket ticket = 0;
    v1::BeginUseRequest request;
    bool granted = false;
    bool ending = false;
    int layers = 0;
    uint64_t id = 0;
    int64_t window = 0;
    std::vector<client::Ticket> inner;  // asked for while this one runs
    std::function<void()> over;
  };
  struct Component {
    ComponentPlan plan;
    std::vector<int64_t> before;  // bytes of the first k layers
    int layers = 0;               // on the device
    int64_t fixed = 0;            // on the device
    int64_t needs = 0;            // on the device
    bool locked = false;          // by a use, or by whoever applies its target
    bool to_place = false;
    bool pinning = false;
    bool pinned = false;
    bool pin_refused = false;
    std::map<client::Ticket, Use> uses;

    int count() const { return static_cast<int>(plan.layers.size()); }
  };

  // Asks for a use as the program likes it, or as a run wants it.
  void Ask();
  void Ask(const std::string& component, const Wanted& wanted);
  // A full reset of a component that nobody uses.
  void ReleaseAll();
  void UpdateComponents();
  void Kill() override;
  // What is left of a dead process goes.
  void Vanish();
  // What it said it had released.
  void FreeHidden() { hidden_ = 0; }

  const WorkerPlan& plan() const { return plan_; }
  const std::map<std::string, Component>& components() const { return components_; }
  // Bytes on the device now.
  int64_t Physical() const;
  // Host bytes that are pinned, those that are about to be included.
  int64_t PinnedHost() const;
  bool PinRefused() const;
  int64_t hidden() const { return hidden_; }
  int64_t pool() const { return pool_; }
  // Uses asked for, running or ending.
  int UsesOpen() const;
  // Those uses, for people.
  std::string Describe() const;

 private:
  void Do(const client::UseGranted& e) override;
  void Do(const client::UseRefused& e) override;
  void Do(const client::UseClosed& e) override;
  void Do(const client::WorkChanged& e) override { Pump(e.component); }
  void Do(const client::PlaceFixed& e) override;
  void Do(const client::TrimPool& e) override;

  void Ask(Component* c, Use use);
  // Waits no longer than this.
  void GiveUpAfter(Component* c, client::Ticket ticket, absl::Duration patience);
  Component* Of(client::Ticket ticket);
  void Forget(Component* c, client::Ticket ticket);
  // Whoever may have the component's lock next.
  void Pump(const std::string& name);
  void Unlock(Component* c);
  void Place(Component* c);
  void Release(Component* c, int layers);
  void Load(Component* c);
  void Pin(Component* c);
  int64_t PinnedForCertain() const;
  // A running use.
  void Run(Component* c, client::Ticket ticket);
  void LoadForUse(Component* c, client::Ticket ticket, int layers);
  void MaybeNest(Component* c, client::Ticket ticket);
  void End(Component* c, client::Ticket ticket);
  v1::UseMeasurements Measured(const Component& c, const Use& use);
  void TellHeld(const Component& c, int held, bool copying);

  void Allocate(int64_t bytes);
  void Free(int64_t bytes);
  absl::Duration Short() {
    return world_.random.Delay(absl::Microseconds(10), absl::Milliseconds(5));
  }

  const WorkerPlan plan_;
  std::map<std::string, Component> components_;
  int64_t pool_ = 0;
  int64_t hidden_ = 0;
  client::Ticket last_ticket_ = 0;
  uint64_t last_request_ = 0;
};

client::SessionOptions OptionsOf(const WorkerPlan& plan, core::Process process);

}  // namespace vrambroker::simulation
