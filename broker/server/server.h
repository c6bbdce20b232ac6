// A broker: opens its devices, listens, decides, stops.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/core/events.h"
#include "broker/server/options.h"

namespace vrambroker::server {

// What only tests and measurements ask for.
struct ServerExtras {
  // Registered beside our own; they outlive the server.
  std::vector<grpc::Service*> services;
  // Called with each event and the time that deciding it took, in the order of decisions.
  std::function<void(const core::Event&, absl::Duration)> on_step;
  // Called with each effect before it is carried out, in the same order.
  std::function<void(const core::Effect&)> on_effect;
  // Where the log goes; below 0: nowhere.
  int log_descriptor = 2;
};

class Server {
 public:
  // Takes all locks before it listens anywhere. Serves when it returns. Errors as OpenDevices and
  // UnixListener::Open; FAILED_PRECONDITION for an address of TCP, metrics or page that cannot be
  // had.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options,
                                                       const ServerExtras& extras);
  // As Stop().
  ~Server();

  // Answers waiting calls and ends streams with UNAVAILABLE, closes connections, removes socket
  // files. Takes 2 s at most.
  void Stop();

  // As given; a TCP port of 0 as the one that was free.
  const std::vector<std::string>& addresses() const;
  // Where metrics are served, HOST:PORT; empty: nowhere.
  std::string metrics_address() const;
  // Where the page is served, HOST:PORT; empty: nowhere.
  std::string page_address() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace vrambroker::server
