#include "broker/server/sessions.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {

void SessionTable::Put(core::SessionId session, SessionInfo info) {
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_[session.value()] = std::move(info);
}

void SessionTable::Erase(core::SessionId session) {
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.erase(session.value());
}

absl::Status SessionTable::CheckCaller(core::SessionId session,
                                       const PeerTable::PeerPtr& caller) const {
  if (caller == nullptr || caller->pid == 0) return absl::OkStatus();
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(session.value());
  if (found == sessions_.end() || found->second.peer == nullptr) return absl::OkStatus();
  const observe::Peer& owner = *found->second.peer;
  if (owner.pid == 0 || owner.pid == caller->pid) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("session_id: ", session.value(), " is the session of process ", owner.pid, " ('",
                   found->second.worker, "'), the caller is process ", caller->pid,
                   "; a process uses the session that it attached itself"));
}

bool SessionTable::ChecksCaller(core::SessionId session) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(session.value());
  return found != sessions_.end() && found->second.peer != nullptr && found->second.peer->pid != 0;
}

std::string SessionTable::DeviceOf(core::SessionId session) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(session.value());
  return found == sessions_.end() ? "" : found->second.device_uuid;
}

}  // namespace vrambroker::server
