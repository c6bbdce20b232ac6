// A worker as the broker sees one, without a device: it says that it does what it is told, at once.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::bench {

class BenchWorker {
 public:
  // `component` empty (no name): a driver. The channel's calls and the stream share one connection.
  BenchWorker(std::shared_ptr<grpc::Channel> channel, const std::string& name,
              const v1::Component& component);
  // Ends the session.
  ~BenchWorker();

  // Attaches; returns when the welcome is here.
  absl::Status Start();

  uint64_t session() const { return session_; }
  v1::VramBroker::Stub* stub() { return stub_.get(); }
  const std::string& component() const { return component_.name(); }

  // The request of a use's end: holds what was granted.
  v1::EndUseRequest MakeEnd(const v1::BeginUseResponse& begun);
  // Releases down to what may stay, and reports it.
  void Apply(const v1::EndUseResponse& ended);
  void SetInUse(bool in_use);

 private:
  void ReadDirectives();
  void ApplyTarget(const v1::Target& target);
  void FillSnapshot(v1::Snapshot* snapshot);

  const std::unique_ptr<v1::VramBroker::Stub> stub_;
  const std::string name_;
  const v1::Component component_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Directive>> reader_;
  std::thread thread_;
  uint64_t session_ = 0;

  std::mutex mutex_;
  bool in_use_ = false;
  int held_ = 0;
  uint64_t completed_ = 0;
  uint64_t sequence_ = 0;
};

}  // namespace vrambroker::bench
