// Charges once more, from the history of messages alone: what workers said, what was sent to them,
// what was granted. Knows nothing of the machine's state; whoever drives the machine compares.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broker/core/effects.h"
#include "broker/core/events.h"

namespace vrambroker::simulation {

class ReferenceLedger {
 public:
  struct Use {
    std::string request_id;
    uint64_t id = 0;
    uint64_t generation = 0;
    int granted = 0;
    int64_t needs = 0;
    // Place in the order of arrival.
    uint64_t order = 0;
    std::set<uint64_t> formerly;  // ids in earlier sessions
  };
  struct Component {
    core::ComponentSpec spec;
    bool admitted = false;
    bool fixed_placed = false;
    int held = 0;
    uint64_t completed = 0;
    std::map<uint64_t, int> targets;  // by generation
    std::optional<Use> use;

    int64_t LayerBytes(int layers) const { return spec.layers.Of(layers).count(); }
    int ChargedLayers() const;
    // The newest that was sent.
    int Target() const { return targets.empty() ? held : targets.rbegin()->second; }
    int64_t Charge() const;
  };
  struct Worker {
    std::string name;
    core::Process process;
    std::string device;  // empty: a driver
    uint64_t session = 0;
    bool died = false;
    uint64_t sequence = 0;
    int64_t pool = 0;
    int64_t recorded = 0;  // of an earlier broker, until it attaches again
    std::map<std::string, Component> components;

    int64_t Charge() const;
  };
  // A use that waits.
  struct Waiting {
    int32_t pid = 0;
    std::string request_id;
    core::UseSpec spec;
    absl::Time arrived;
    uint64_t order = 0;
  };

  // One step of the machine: what went in and what came out.
  void Note(const core::Event& event, const core::Effects& effects, absl::Time now);
  // The machine ends, and another begins that knows only these.
  void Restart(const std::vector<core::Owner>& owners);
  // The machine says that it has dropped this process.
  void Drop(int32_t pid) { workers_.erase(pid); }

  const std::map<int32_t, Worker>& workers() const { return workers_; }
  const Worker* FindSession(uint64_t session) const;
  const std::map<uint64_t, Waiting>& waiting() const { return waiting_; }  // by call
  // Those that waited while the last step decided.
  const std::map<uint64_t, Waiting>& waited() const { return waited_; }
  int64_t Charged(const std::string& device) const;
  // Fixed bytes, and permanent layers.
  int64_t Permanent(const std::string& device) const;

 private:
  void NoteAttach(const core::AttachEvent& e, const core::Welcome& welcome);
  void Book(const core::Snapshot& snapshot, Worker* worker);
  void NoteTarget(const core::Target& target, Worker* worker);
  void NoteEvent(const core::Event& event, const core::Effects& effects, absl::Time now);
  void NoteAnswer(const core::Answer& answer);
  Worker* Of(core::SessionId session);

  std::map<int32_t, Worker> workers_;          // by pid
  std::map<uint64_t, int32_t> by_session_;     // to pid
  std::map<uint64_t, int32_t> by_connection_;  // to pid
  std::map<uint64_t, uint64_t> session_of_call_;
  std::map<uint64_t, Waiting> waiting_;
  std::map<uint64_t, Waiting> waited_;
  uint64_t last_order_ = 0;
};

// Whether this call was answered in the step, and with what if it was refused.
const core::Answer* FindAnswer(const core::Effects& effects, core::CallId call);
bool IsError(const core::Answer& answer);

}  // namespace vrambroker::simulation
