// Sessions of a broker by raw stubs: they say to it what a check wants said, right or wrong.
#pragma once

#include <grpcpp/grpcpp.h>

#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/ctl/conformance_report.h"
#include "vrambroker/v1/admin.grpc.pb.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::ctl {

inline constexpr int kTestLayers = 4;
inline constexpr int64_t kTestLayerBytes = 4096;

using BrokerStub = v1::VramBroker::Stub;

// One unary call with a deadline; `method` is of a stub.
template <typename Stub, typename Request, typename Response>
grpc::Status Ask(Stub* stub,
                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                 const Request& request, Response* response, absl::Duration within) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + within));
  return (stub->*method)(&context, request, response);
}

// What the checks share.
struct ConformanceBed {
  BrokerStub* broker;
  v1::BrokerAdmin::Stub* admin;
  // For one call.
  absl::Duration timeout;
  // In every name, so that nothing here is anybody else's.
  std::string suffix;
  // The device of all components.
  std::string device;
  // Of this process. 0: not known.
  uint64_t start_time_ticks;
  ConformanceReport* report;
  int last_id = 0;

  std::string Name(const std::string& what) const { return "conformance-" + suffix + "-" + what; }
  std::string NewId();
  // A component of kTestLayers small layers.
  v1::Component Component(const std::string& name) const;
  v1::AttachRequest Attach(const std::string& worker, uint64_t number,
                           const std::vector<v1::Component>& components) const;

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (BrokerStub::*method)(grpc::ClientContext*, const Request&,
                                                       Response*),
                    const Request& request, Response* response) const {
    return Ask(broker, method, request, response, timeout);
  }
};

// The stream of an attach. It ends with this.
class SessionStream {
 public:
  SessionStream(const ConformanceBed& bed, const v1::AttachRequest& request);
  ~SessionStream();
  SessionStream(const SessionStream&) = delete;
  SessionStream& operator=(const SessionStream&) = delete;

  // OK where a first directive came in time; else how the stream ended.
  const grpc::Status& opened() const { return opened_; }
  const v1::Directive& first() const { return first_; }
  // How the broker ends it. CANCELLED where it does not in time.
  grpc::Status End();

 private:
  const absl::Duration timeout_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Directive>> reader_;
  v1::Directive first_;
  grpc::Status opened_;
  bool finished_ = false;
};

// A worker that holds what its checks say: as a rule nothing.
class TestWorker {
 public:
  TestWorker(ConformanceBed* bed, const std::string& name,
             const std::vector<v1::Component>& components);
  // Ends what runs, removes its components, detaches.
  ~TestWorker();
  TestWorker(const TestWorker&) = delete;
  TestWorker& operator=(const TestWorker&) = delete;

  // Attaches (again) under the next number; the stream before it is kept until the next time.
  grpc::Status Attach(const std::vector<v1::RunningUse>& running = {});
  const v1::Directive& first() const { return stream_->first(); }
  SessionStream& former_stream() { return *former_; }
  SessionStream& stream() { return *stream_; }
  uint64_t session() const { return session_; }
  const v1::AttachRequest& request() const { return request_; }

  // Holds so many layers of a component from the next snapshot on.
  void Hold(const std::string& component, int layers) { held_[component].layers = layers; }
  // The worker has reached this generation.
  void Complete(const std::string& component, uint64_t generation);
  // All that is held, under a new number.
  v1::Snapshot Snapshot();
  // Reports until the newest targets are reached; the targets of the last answer in `response`.
  grpc::Status Report(v1::ReportResidencyResponse* response);

  // Requests with a new request_id.
  v1::BeginUseRequest Use(const std::string& component) const;
  v1::EndUseRequest End(uint64_t use_id);
  v1::EndUseRequest End(const std::string& begin_request_id);
  v1::UpdateComponentsRequest Update();

  grpc::Status Begin(const v1::BeginUseRequest& request, v1::BeginUseResponse* response);
  grpc::Status Finish(const v1::EndUseRequest& request, v1::EndUseResponse* response);
  // BeginUse on a thread of its own.
  std::future<grpc::Status> BeginLater(const v1::BeginUseRequest& request, absl::Duration within);

 private:
  struct Held {
    int layers = 0;
    uint64_t completed = 0;
  };

  ConformanceBed* const bed_;
  v1::AttachRequest request_;
  std::unique_ptr<SessionStream> stream_, former_;
  uint64_t session_ = 0;
  uint64_t sequence_ = 0;
  std::map<std::string, Held> held_;
};

}  // namespace vrambroker::ctl
