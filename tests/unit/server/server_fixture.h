// A broker in this process on an emulated card of its own, and sessions of it over its Unix socket.
#ifndef VRAMBROKER_TESTS_UNIT_SERVER_SERVER_FIXTURE_H_
#define VRAMBROKER_TESTS_UNIT_SERVER_SERVER_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "broker/server/server.h"
#include "vrambroker/v1/admin.grpc.pb.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::server {

inline constexpr int64_t kMiB = 1 << 20;

// Component "c" with `layers` of 1 MiB.
v1::Component MakeComponent(const std::string& name, int layers);

// An attached session. Its stream ends with it.
class Session {
 public:
  // Attaches and reads the first directive.
  Session(const std::shared_ptr<grpc::Channel>& channel, const v1::AttachRequest& request);
  ~Session();

  // What came first; empty where the attach was refused.
  const v1::Directive& first() const { return first_; }
  uint64_t id() const { return first_.welcome().session_id(); }
  bool Read(v1::Directive* directive) { return reader_->Read(directive); }
  // Of a stream that the broker ended.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

  grpc::Status BeginUse(const std::string& request_id, v1::BeginUseResponse* response,
                        int64_t activation_bytes = 0);
  // Holds `held` layers of "c" at its end.
  grpc::Status EndUse(const std::string& request_id, uint64_t use_id, int held,
                      uint64_t completed_generation, v1::EndUseResponse* response);

 private:
  std::unique_ptr<v1::VramBroker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Directive>> reader_;
  v1::Directive first_;
  uint64_t sequence_ = 1;
  bool finished_ = false;
};

class ServerTest : public testing::Test {
 protected:
  static constexpr int64_t kCapacity = 64 * kMiB;

  ServerTest();
  ~ServerTest() override;

  // With a card of kCapacity bytes, no reserve, in a folder of the test's own.
  Options MakeOptions() const;
  void Start(const Options& options);
  void Start() { Start(MakeOptions()); }

  std::string socket_path() const { return folder_ + "/broker.sock"; }
  std::string card() const { return card_; }
  // A channel with a connection of its own.
  std::shared_ptr<grpc::Channel> Connect() const;
  v1::AttachRequest MakeAttach(const std::string& worker, int layers) const;
  v1::Picture GetPicture() const;
  // State of the worker's session; UNSPECIFIED where there is none.
  v1::SessionState StateOf(const std::string& worker) const;

  std::unique_ptr<Server> server_;

 private:
  std::string folder_;
  std::string card_;
};

// A process that connects to a Unix socket; its descriptor is shared with this process, which
// speaks through it in the other's name. Killed at the latest when this goes.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& socket_path);
  ~OtherProcess();

  // To be used once.
  std::shared_ptr<grpc::Channel> channel();
  int pid() const { return pid_; }
  void Kill();

 private:
  int descriptor_ = -1;
  int pid_ = -1;
};

}  // namespace vrambroker::server

#endif  // VRAMBROKER_TESTS_UNIT_SERVER_SERVER_FIXTURE_H_
