// Who opened the sessions: those whose stream is open, and those that may be attached again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "broker/core/events.h"
#include "broker/core/units.h"
#include "broker/server/callers.h"

namespace vrambroker::server {

struct SessionInfo {
  std::string worker;
  // As the session says it is; over a Unix socket as the kernel does.
  core::Process process;
  Caller owner;
  // Of its components. Empty: none named one.
  std::string device_uuid;
};

// Thread-safe.
class SessionTable {
 public:
  // Workers and drivers that have attached at some time, by name and process; past it those whose
  // stream is closed are forgotten, the one that attached first before the others.
  static constexpr size_t kMaxOwners = 4096;

  void Put(core::SessionId session, SessionInfo info);
  void Erase(core::SessionId session);

  // Whether this session may be used by this caller: PERMISSION_DENIED where the caller came
  // another way than the one that attached, or the kernel names another process (of another pid
  // namespace: another user), or the certificate has other names. OK for sessions that are not
  // here, which the core knows to be stale.
  absl::Status CheckCaller(core::SessionId session, const Caller& caller) const;
  // Whether this caller may attach as this worker and process, and so go on with what that had:
  // PERMISSION_DENIED where another caller attached so before, by the rules of CheckCaller.
  absl::Status CheckAttach(const std::string& worker, const core::Process& process,
                           const Caller& caller) const;
  // The device of the session; empty where it has none or is not here.
  std::string DeviceOf(core::SessionId session) const;

 private:
  using Key = std::pair<std::string, core::Process>;
  struct Owner {
    Identity identity;
    uint64_t session = 0;
  };

  static Key KeyOf(const std::string& worker, const core::Process& process) {
    return {worker, process};
  }
  void MakeRoomForOwner();

  mutable std::mutex mutex_;
  std::map<Key, Owner> owners_;
  absl::flat_hash_map<uint64_t, SessionInfo> sessions_;
};

}  // namespace vrambroker::server
