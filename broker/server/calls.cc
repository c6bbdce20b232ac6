#include "broker/server/calls.h"

namespace vrambroker::server {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

bool CallTable::Add(UnaryCall* call) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return false;
  call->set_id(core::CallId(++last_id_));
  calls_.emplace(last_id_, call);
  return true;
}

UnaryCall* CallTable::Take(core::CallId call) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = calls_.find(call.value());
  if (found == calls_.end()) return nullptr;
  UnaryCall* taken = found->second;
  calls_.erase(found);
  return taken;
}

bool CallTable::Contains(core::CallId call) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_.contains(call.value());
}

std::vector<UnaryCall*> CallTable::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  std::vector<UnaryCall*> all;
  all.reserve(calls_.size());
  for (const auto& [id, call] : calls_) all.push_back(call);
  calls_.clear();
  return all;
}

size_t CallTable::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_.size();
}

}  // namespace vrambroker::server
