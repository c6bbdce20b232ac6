// A worker as the broker sees one, without a device: it says that it does what it is told, at once.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::bench {

class BenchWorker {
 public:
  // No components: a driver. The channel's calls and the stream share one connection.
  BenchWorker(std::shared_ptr<grpc::Channel> channel, const std::string& name,
              std::vector<v1::Component> components);
  // Ends the session.
  ~BenchWorker();

  // Attaches; returns when the welcome is here.
  absl::Status Start();

  uint64_t session() const { return session_; }
  v1::VramBroker::Stub* stub() { return stub_.get(); }

  // The request of a use's end: holds what was granted.
  v1::EndUseRequest MakeEnd(const std::string& component, const v1::BeginUseResponse& begun);
  // Releases down to what may stay, and reports it.
  void Apply(const std::string& component, const v1::EndUseResponse& ended);
  void SetInUse(const std::string& component, bool in_use);

 private:
  struct Residency {
    bool in_use = false;
    int held = 0;
    uint64_t completed = 0;
  };

  void ReadDirectives();
  void ApplyTarget(const v1::Target& target);
  void FillSnapshot(v1::Snapshot* snapshot);

  const std::unique_ptr<v1::VramBroker::Stub> stub_;
  const std::string name_;
  const std::vector<v1::Component> components_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Directive>> reader_;
  std::thread thread_;
  uint64_t session_ = 0;

  std::mutex mutex_;
  std::map<std::string, Residency> residency_;
  uint64_t sequence_ = 0;
};

}  // namespace vrambroker::bench
