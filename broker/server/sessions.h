// The sessions whose stream is open: who opened them.
#pragma once

#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "broker/core/units.h"
#include "broker/server/callers.h"

namespace vrambroker::server {

struct SessionInfo {
  std::string worker;
  Caller owner;
  // Of its components. Empty: none named one.
  std::string device_uuid;
};

// Thread-safe.
class SessionTable {
 public:
  void Put(core::SessionId session, SessionInfo info);
  void Erase(core::SessionId session);

  // Whether this session may be used by this caller: PERMISSION_DENIED where the caller came
  // another way than the one that attached, or the kernel names another process, or the certificate
  // is of another identity. OK where the process is not known (of another pid namespace), and for
  // sessions that are not here, which the core knows to be stale.
  absl::Status CheckCaller(core::SessionId session, const Caller& caller) const;
  // The device of the session; empty where it has none or is not here.
  std::string DeviceOf(core::SessionId session) const;

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_map<uint64_t, SessionInfo> sessions_;
};

}  // namespace vrambroker::server
