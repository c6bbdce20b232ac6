// What a server is made of. Everything after something may use it, so that destruction runs against
// the order of use.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "broker/observe/metrics.h"
#include "broker/observe/tally.h"
#include "broker/server/admin_service.h"
#include "broker/server/broker_service.h"
#include "broker/server/callers.h"
#include "broker/server/decision_feed.h"
#include "broker/server/decision_log.h"
#include "broker/server/decision_recorder.h"
#include "broker/server/devices.h"
#include "broker/server/engine.h"
#include "broker/server/page_source.h"
#include "broker/server/picture_feed.h"
#include "broker/server/readings.h"
#include "broker/server/server.h"
#include "broker/server/tls_listener.h"
#include "broker/server/unix_listener.h"
#include "broker/server/unix_roles.h"

namespace vrambroker::server {

struct Server::Parts {
  Parts(const Options& given, const ServerExtras& wanted)
      : options(given),
        extras(wanted),
        log(wanted.log_descriptor, given.log_format, given.log_level),
        callers(&peers, given.plain_loopback ? RoleSet::All() : RoleSet()),
        alarms(clock) {}

  absl::Status Open();
  absl::Status OpenListeners();
  absl::Status OpenDecisionLog(const core::Config& config);
  void Record(const core::Effect& effect);
  void WriteRecorded();
  absl::Status StartEngine();
  core::Epoch NewEpoch();
  EngineHooks MakeHooks();
  absl::Status StartServing();
  absl::Status StartReadings();
  absl::Status StartMetrics();
  absl::Status StartPage();
  void LogStart();
  void Stop();

  // Everything after something may use it, so that destruction runs against the order of use.
  const Options options;
  const ServerExtras extras;
  const Clock clock;
  Log log;
  std::vector<Device> devices;
  std::vector<std::unique_ptr<UnixListener>> listeners;
  std::unique_ptr<TlsListener> tls;
  UnixRoles unix_roles;
  PeerTable peers;
  Callers callers;
  Alarms alarms;
  size_t tick_alarm = 0;
  size_t tls_alarm = 0;
  std::unique_ptr<Readings> readings;
  std::unique_ptr<PictureFeed> feed;
  DecisionFeed decision_feed;
  // Null: none is wanted. The recorder and the tally are used in the order of decisions.
  std::unique_ptr<DecisionLog> decision_log;
  DecisionRecorder recorder;
  observe::Tally tally;
  std::unique_ptr<Engine> engine;
  // Its callbacks post to the engine.
  std::unique_ptr<observe::ProcessWatch> watch;
  std::unique_ptr<BrokerService> broker_service;
  std::unique_ptr<AdminService> admin_service;
  std::unique_ptr<grpc::Server> server;
  std::vector<std::string> addresses;
  // Its scrapes ask the engine.
  std::unique_ptr<observe::MetricsEndpoint> metrics;
  // Asks the engine, and watches the feed.
  std::unique_ptr<PageSource> page_source;
  std::unique_ptr<page::Page> page;
  bool stopped = false;
};

}  // namespace vrambroker::server
