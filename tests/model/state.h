// A state of the small model: the real machine, the real session of each worker, what each worker
// truly has on the card, and every message on its way. A plain value: what does not change in a
// step is shared between copies.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/machine.h"
#include "client/cpp/session.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::model {

// All layers, windows, activations and fixed bytes are of this size.
constexpr int64_t kUnit = int64_t{1} << 30;

// How often each may still happen.
struct Faults {
  int duplicate = 0;    // a call arrives twice
  int fail = 0;         // a call, or its answer, is lost while the stream lives
  int lose = 0;         // a stream ends
  int give_up = 0;      // a caller stops waiting for its use
  int give_up_end = 0;  // a caller stops waiting for the answer to the end of its use
  int restart = 0;      // the broker is killed, in a step or between two, and another starts
  int die = 0;          // a worker dies
  int drop = 0;         // a worker drops its layers by itself
  int reading = 0;      // the driver is read though nobody asked
  int time = 0;         // time passes, up to what somebody has asked to be woken for
  auto operator<=>(const Faults&) const = default;
};

struct Scenario {
  std::string name;
  std::vector<int> uses = {1, 1};  // that each worker asks for
  int layers = 2;                  // of the one component of each worker
  int capacity = 3;                // in units
  // Not negative: all workers have attached, so many of them, from the first on, have had a use
  // already, and all is at rest.
  int warm = -1;
  int window = 0;           // in units
  int fixed = 0;            // in units
  bool permanent = false;   // the last worker's component
  bool caching = false;     // allocators keep what is freed
  bool by_process = false;  // the driver can be read, and lists processes
  // Runs that a driver has declared through all workers, which nobody starts: idle components are
  // loaded ahead for them.
  int declared_runs = 0;
  // Activation of each use, in units.
  int need = 1;
  // The first worker asks for no more layers than these, once it is warm by uses that need no
  // activation. 0: for all.
  int most_of_first = 0;
  // A use may be refused, as not everything fits.
  bool may_refuse = false;
  Faults faults;

  int last_worker() const { return static_cast<int>(uses.size()) - 1; }
};

enum class Program {
  kIdle,
  kAsked,
  kGranted,
  kRunning,
  kEnding,   // its end is said
  kClosing,  // and answered: what may not stay is still there
};

struct Worker {
  bool alive = true;
  bool noticed = false;  // its death, by the broker that runs now
  std::shared_ptr<const client::Session> session;
  // On the card, in units.
  int layers = 0;
  int fixed = 0;
  int needs = 0;
  int pool = 0;
  bool copying = false;  // the newest of the layers is on its way

  Program program = Program::kIdle;
  client::Ticket ticket = 0;
  int granted = 0;        // layers
  int granted_needs = 0;  // units
  int keep = 0;
  int uses_left = 0;
  bool connect_due = false;
  bool place_due = false;
  bool trim_due = false;
  uint64_t last_call = 0;

  int Physical() const { return layers + fixed + needs + pool; }
};

enum class CallKind { kBegin, kEnd, kReport };

// A unary call that the broker has not had yet, or (a copy) will have again.
struct Call {
  int worker = 0;
  uint64_t attach_number = 0;
  CallKind kind = CallKind::kBegin;
  uint64_t number = 0;  // of the worker's calls
  std::string request_id;
  // Its stream is lost: nobody waits for the answer, and it may never arrive.
  bool orphan = false;
  std::shared_ptr<const v1::BeginUseRequest> begin;
  std::shared_ptr<const v1::EndUseRequest> end;
  std::shared_ptr<const v1::ReportResidencyRequest> report;
};

// A call that the broker has had and not answered yet.
struct Pending {
  Call call;
  bool cancel_due = false;  // its caller has stopped waiting
};

// An answer on its way to the worker.
struct Reply {
  Call call;
  std::shared_ptr<const core::Answer> answer;
};

struct Connection {
  uint64_t id = 0;
  int worker = 0;
  std::shared_ptr<const v1::AttachRequest> attach;
  bool arrived = false;  // the Attach, at the broker
  bool lost = false;
  bool close_told = false;  // its end, to the broker
  bool end_due = false;     // and to the worker
  absl::Status end_status;
  std::deque<std::shared_ptr<const v1::Directive>> down;
};

struct Reading {
  enum class Stage { kNone, kBegun, kSampled };
  Stage stage = Stage::kNone;
  uint64_t number = 0;
  std::vector<int> shown;  // units, by worker
};

struct State {
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  std::shared_ptr<const core::Machine> machine;
  std::map<int32_t, core::Owner> record;  // by pid
  std::vector<Worker> workers;
  std::vector<Call> calls;
  std::map<uint64_t, Pending> pending;  // by call id
  std::vector<Reply> replies;
  std::vector<Connection> connections;
  bool reading_wanted = false;
  Reading reading;
  Faults left;
  uint64_t epoch = 1;
  uint64_t last_connection = 0;
  uint64_t last_call = 0;
  // What went wrong. Empty: nothing.
  std::string violation;
};

core::Process ProcessOf(int worker);
// Before anything has happened.
State Blank(const Scenario& scenario);
// The same for states that go on alike.
uint64_t DigestOf(const State& state);

}  // namespace vrambroker::model
