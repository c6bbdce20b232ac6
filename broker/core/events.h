// What can happen to the broker. The shell turns calls, streams, process deaths, driver readings
// and time into these, checked against the documented ranges; Machine::Step takes them one at a
// time.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "broker/core/specs.h"
#include "broker/core/units.h"

namespace vrambroker::core {

// A stream was opened. Answered by a SendDirective with a welcome, or CloseStream.
struct AttachEvent {
  ConnectionId connection;
  std::string worker;
  Place place;
  Process process;
  uint64_t attach_number = 0;
  int version = 1;
  // UUID of the device of all components. Empty: the only one.
  std::string device_uuid;
  // None: a driver.
  std::vector<ComponentSpec> components;
  Snapshot snapshot;
  std::vector<ResumedUseSpec> running_uses;
  HostMemory host = {};
};

// A stream ended, whoever ended it.
struct StreamClosedEvent {
  ConnectionId connection;
};

// Of every unary call: `call` is answered exactly once, by an Answer effect, now or later.
// `request_id` names the request within the session, `fingerprint` is a hash of its payload: an id
// that comes again with another fingerprint is refused.
struct CallHeader {
  CallId call;
  SessionId session;
  std::string request_id;
  uint64_t fingerprint = 0;
};

struct BeginUseEvent {
  CallHeader header;
  UseSpec use;
};

// The caller stopped waiting (cancel, deadline, connection). What is decided stays decided.
struct CallCancelledEvent {
  CallId call;
};

struct EndUseEvent {
  CallHeader header;
  // One of the two.
  UseId use;
  std::string begin_request_id;
  Snapshot snapshot;
  Measurements measured;
};

// Without request_id: a snapshot is its own.
struct ReportEvent {
  CallHeader header;
  Snapshot snapshot;
};

struct UpdateComponentsEvent {
  CallHeader header;
  std::vector<ComponentSpec> upsert;
  std::vector<std::string> remove;
  Snapshot snapshot;
};

struct DeclarePipelineEvent {
  CallHeader header;
  std::string pipeline;
  std::vector<StageSpec> stages;
};

struct DeclareRunEvent {
  CallHeader header;
  std::string pipeline;
  absl::Duration starts_in;
};

struct FinishRunEvent {
  CallHeader header;
  RunId run;
};

// The process of a worker or driver is proven dead (pidfd, or pid with start time).
struct ProcessDiedEvent {
  Process process;
};

// A driver reading starts now: the shell takes its sample only after this step. `reading` rises.
struct ReadingBeganEvent {
  std::string device_uuid;
  uint64_t reading = 0;
};

// The reading that began under this number. Only the newest begun counts.
struct ReadingEvent {
  std::string device_uuid;
  uint64_t reading = 0;
  // Not OK: the driver gave none; the picture keeps what it knew and says so.
  absl::Status status;
  Bytes total_used;
  // Whether `by_process` lists every process that computes on the device with its bytes, by pid. It
  // is believed once it has listed one of ours with no less than it holds: in a container a driver
  // may name processes by pids of the host, or none.
  bool by_process_known = false;
  std::vector<std::pair<int32_t, Bytes>> by_process;
  // Where it lists processes: bytes in use that are nobody's on the list, the driver's own
  // included.
  Bytes unlisted;
};

// A time asked for by WakeAt has come (or any other: nothing is due then).
struct TickEvent {};

// No more uses; retained sets are released.
struct DrainEvent {
  CallId call;
};

using Event = std::variant<AttachEvent, StreamClosedEvent, BeginUseEvent, CallCancelledEvent,
                           EndUseEvent, ReportEvent, UpdateComponentsEvent, DeclarePipelineEvent,
                           DeclareRunEvent, FinishRunEvent, ProcessDiedEvent, ReadingBeganEvent,
                           ReadingEvent, TickEvent, DrainEvent>;

}  // namespace vrambroker::core
