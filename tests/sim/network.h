// Streams and calls between processes and the machine, none of them to be relied on: what is sent
// is late, out of order, twice, or lost with its stream. Keeps the one promise that the machine and
// the shell rest on: each call is answered exactly once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/core/effects.h"
#include "broker/core/events.h"
#include "tests/sim/scenario.h"
#include "tests/sim/scheduler.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::simulation {

class Peer;

class Network {
 public:
  // What the client hears of a call: a status, or what the machine answered.
  using Reply = std::function<void(const core::Answer&)>;
  // A call as an event, its number filled in; or a refusal at the edge.
  using MakeEvent = std::function<absl::StatusOr<core::Event>(core::CallId)>;

  struct Hooks {
    std::function<void(const core::Event&)> step;
    std::function<void(const std::string&)> fail;
  };

  Network(const Scenario* scenario, Scheduler* scheduler, Random* random, Hooks hooks)
      : scenario_(*scenario), time_(*scheduler), random_(*random), hooks_(std::move(hooks)) {}

  // Faults come only while they are switched on.
  void SwitchFaults(bool on) { faults_ = on; }

  void Open(Peer* peer, const v1::AttachRequest& request);
  void Call(Peer* peer, uint64_t attach_number, const std::string& request_id, MakeEvent event,
            Reply reply);
  // The caller's own cancel: the machine hears of it, sooner or later.
  void Cancel(Peer* peer, const std::string& request_id);
  // The stream of this process breaks, for both ends.
  void Lose(Peer* peer);
  // The machine ends, and another begins: all streams break, and what is on its way to the old one
  // never arrives.
  void Restart();

  // The machine's side.
  void Deliver(const core::SendDirective& directive);
  void Deliver(const core::CloseStream& close);
  void Deliver(const core::Answer& answer);
  // Calls that the machine has not answered.
  size_t unanswered() const { return unanswered_; }

 private:
  struct Connection {
    uint64_t id = 0;
    Peer* peer = nullptr;
    uint64_t attach_number = 0;
    bool lost = false;
    bool dead = false;          // it was to a machine that has ended
    bool arrived = false;       // the machine has had its Attach
    bool close_told = false;    // and its end
    bool client_ended = false;  // the client has had its StreamEnded, or wants none
    absl::Time last_directive = absl::InfinitePast();
  };
  struct PendingCall {
    std::shared_ptr<Connection> connection;
    std::string request_id;
    std::shared_ptr<bool> replied;
    Reply reply;
    bool arrived = false;
    bool answered = false;
  };

  absl::Duration Delay();
  bool Fault(double p) { return faults_ && random_.Chance(p); }
  std::shared_ptr<Connection> Of(const Peer* peer, uint64_t attach_number);
  void Break(const std::shared_ptr<Connection>& connection, bool tell_client);
  void FailCalls(const std::shared_ptr<Connection>& connection);
  void TellClosed(const std::shared_ptr<Connection>& connection);
  void Send(const std::shared_ptr<Connection>& connection, const std::string& request_id,
            const MakeEvent& make, std::shared_ptr<bool> replied, Reply reply);
  void Answer(PendingCall* call, const core::Answer& answer);

  const Scenario& scenario_;
  Scheduler& time_;
  Random& random_;
  Hooks hooks_;
  bool faults_ = true;
  uint64_t last_connection_ = 0;
  uint64_t last_call_ = 0;
  size_t unanswered_ = 0;
  std::map<const Peer*, std::shared_ptr<Connection>> newest_;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_;
  std::map<uint64_t, std::shared_ptr<PendingCall>> calls_;
};

}  // namespace vrambroker::simulation
