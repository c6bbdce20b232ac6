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

absl::Status SessionTable::CheckCaller(core::SessionId session, const Caller& caller) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(session.value());
  if (found == sessions_.end()) return absl::OkStatus();
  const std::string why = WhyNotTheSame(found->second.owner, caller);
  if (why.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("session_id: ", session.value(), " ('", found->second.worker, "') ", why,
                   "; a process uses the session that it attached itself"));
}

std::string SessionTable::DeviceOf(core::SessionId session) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(session.value());
  return found == sessions_.end() ? "" : found->second.device_uuid;
}

}  // namespace vrambroker::server
