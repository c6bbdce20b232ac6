// A process with a session: a worker or a driver. Takes its own steps in virtual time, none while
// it is stopped, none once it is dead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/session.h"
#include "tests/sim/network.h"
#include "tests/sim/scenario.h"
#include "tests/sim/scheduler.h"

namespace vrambroker::simulation {

// What all processes share.
struct Surroundings {
  const Scenario& scenario;
  Scheduler& time;
  Random& random;
  Network& network;
  // Whether faults are switched on, and whether programs start anything new.
  bool faults = true;
  bool busy = true;
  std::function<void(const std::string&)> note;
  // Where the death of an attached process is noticed.
  std::function<void(core::Process)> watch;

  bool Fault(double p) const { return faults && random.Chance(p); }
};

class Peer {
 public:
  Peer(Surroundings* world, client::SessionOptions options);
  virtual ~Peer() = default;

  void Start() { Step(client::Connect{}); }
  void Step(const client::Event& event);
  // A step of the process: later where it is stopped, never where it is dead.
  void Later(absl::Duration delay, std::function<void()> run);
  void Stop() { stopped_ = true; }
  void Continue();
  virtual void Kill();
  // The machine has had its Attach: from now on its death is noticed.
  void Attached();

  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }
  const std::string& name() const { return options_.worker; }
  core::Process process() const {
    const uint64_t foreign =
        world_.scenario.pids_elsewhere ? uint64_t{options_.start_time_ticks} : 0;
    return {options_.pid, options_.start_time_ticks, foreign};
  }
  const client::Session& session() const { return session_; }

 protected:
  virtual void Do(const client::UseGranted&) {}
  virtual void Do(const client::UseRefused&) {}
  virtual void Do(const client::UseClosed&) {}
  virtual void Do(const client::WorkChanged&) {}
  virtual void Do(const client::PlaceFixed&) {}
  virtual void Do(const client::TrimPool&) {}
  virtual void Do(const client::SessionChanged&) {}
  void Do(const client::PinsChanged&) {}
  void Do(const client::OpenStream& e) { world_.network.Open(this, e.request); }
  void Do(const client::SendBegin& e);
  void Do(const client::SendEnd& e);
  void Do(const client::SendReport& e);
  void Do(const client::SendUpdate& e);
  void Do(const client::CancelBegin& e) { world_.network.Cancel(this, e.request_id); }
  void Do(const client::ConnectAt& e);
  void Do(const client::WakeAt& e);

  Surroundings& world_;

 private:
  const client::SessionOptions options_;
  client::Session session_;
  bool alive_ = true;
  bool stopped_ = false;
  uint64_t wake_ = 0;  // the newest time asked for, by number
  uint64_t connect_ = 0;
  std::vector<std::function<void()>> put_off_;
  std::vector<client::Effect> to_do_;
  bool doing_ = false;
};

}  // namespace vrambroker::simulation
