#include "broker/server/sessions.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {

void SessionTable::Put(core::SessionId session, SessionInfo info) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Key key = KeyOf(info.worker, info.process);
  if (owners_.find(key) == owners_.end()) MakeRoomForOwner();
  owners_[key] = {IdentityOf(info.owner), session.value()};
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
  const std::string why = WhyNotTheSame(IdentityOf(found->second.owner), IdentityOf(caller));
  if (why.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("session_id: ", session.value(), " ('", found->second.worker, "') ", why,
                   "; a process uses the session that it attached itself"));
}

void SessionTable::MakeRoomForOwner() {
  if (owners_.size() < kMaxOwners) return;
  auto oldest = owners_.end();
  for (auto one = owners_.begin(); one != owners_.end(); ++one) {
    if (sessions_.contains(one->second.session)) continue;
    if (oldest == owners_.end() || one->second.session < oldest->second.session) oldest = one;
  }
  if (oldest != owners_.end()) owners_.erase(oldest);
}

absl::Status SessionTable::CheckAttach(const std::string& worker, const core::Process& process,
                                       const Caller& caller) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = owners_.find(KeyOf(worker, process));
  if (found == owners_.end()) return absl::OkStatus();
  const std::string why = WhyNotTheSame(found->second.identity, IdentityOf(caller));
  if (why.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("worker: '", worker, "' of process ", process.pid, " ", why,
                   "; attach under another name, or as who attached it before"));
}

std::string SessionTable::DeviceOf(core::SessionId session) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(session.value());
  return found == sessions_.end() ? "" : found->second.device_uuid;
}

}  // namespace vrambroker::server
