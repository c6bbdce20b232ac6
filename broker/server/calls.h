// Unary calls that wait for their answer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "broker/core/effects.h"
#include "broker/server/convert_answers.h"

namespace vrambroker::server {

grpc::Status ToGrpc(const absl::Status& status);

// Somebody who hears of calls whose caller stopped waiting.
class CallListener {
 public:
  virtual ~CallListener() = default;
  virtual void CallCancelled(core::CallId call) = 0;
};

// One call: answered exactly once, by Complete or Refuse; deletes itself when it is over.
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  using Result = decltype(core::Answer::result);

  // `listener` outlives the server's calls.
  explicit UnaryCall(CallListener* listener) : listener_(listener) {}

  virtual void Complete(const Result& result) = 0;
  virtual void Refuse(const absl::Status& status) { Finish(ToGrpc(status)); }

  core::CallId id() const { return id_; }
  // Before it can be cancelled or answered.
  void set_id(core::CallId id) { id_ = id; }
  // As the caller names it, for the log. Empty: it has no name.
  const std::string& request_id() const { return request_id_; }
  void set_request_id(std::string id) { request_id_ = std::move(id); }

 private:
  void OnCancel() override {
    if (id_) listener_->CallCancelled(id_);
  }
  void OnDone() override { delete this; }

  CallListener* const listener_;
  core::CallId id_;
  std::string request_id_;
};

// A call that the core answers.
template <typename CoreAnswer, typename Response>
class TypedCall final : public UnaryCall {
 public:
  TypedCall(CallListener* listener, Response* response)
      : UnaryCall(listener), response_(response) {}

  void Complete(const Result& result) override {
    if (const auto* answer = std::get_if<CoreAnswer>(&result)) {
      Write(*answer, response_);
      Finish(grpc::Status::OK);
    } else if (const auto* status = std::get_if<absl::Status>(&result)) {
      Finish(ToGrpc(*status));
    } else {
      Finish(grpc::Status(grpc::StatusCode::INTERNAL, "answer of another call's kind"));
    }
  }

 private:
  Response* const response_;
};

// The calls that are open. Whoever takes a call out answers it, so that there is one answer however
// many have a reason to give one. Thread-safe.
class CallTable {
 public:
  // Numbers the call and keeps it. False: closed, nothing was kept.
  bool Add(UnaryCall* call);
  // Null: not there (any more).
  UnaryCall* Take(core::CallId call);
  bool Contains(core::CallId call) const;
  // All of them; takes none from then on.
  std::vector<UnaryCall*> Close();
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  uint64_t last_id_ = 0;
  bool closed_ = false;
  absl::flat_hash_map<uint64_t, UnaryCall*> calls_;
};

}  // namespace vrambroker::server
