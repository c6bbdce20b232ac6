#include "broker/server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/server/server_parts.h"

namespace vrambroker::server {
namespace {

// Sessions are numbered on from the epoch: this many at least lie between two.
constexpr uint64_t kLeastBetweenEpochs = uint64_t{1} << 20;

constexpr absl::Duration kShutdownGrace = absl::Milliseconds(500);
// Broken certificates are logged this soon after they were written, even if nobody connects.
constexpr absl::Duration kLookAtCertificates = absl::Seconds(10);
constexpr int kMaxMessageBytes = 4 << 20;
constexpr int kMaxCallsPerConnection = 1024;

// Each connection takes a descriptor and a pidfd: the soft limit of 1,024 is for others.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65536);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Of the machine, whatever a container may use of it. 0: not known.
core::Bytes MachineMemory() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page = sysconf(_SC_PAGESIZE);
  return pages <= 0 || page <= 0 ? core::Bytes() : core::Bytes(pages * page);
}

void Configure(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  // Reflection is the one service that has threads of its own: one is enough.
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

}  // namespace

absl::Status Server::Parts::OpenListeners() {
  auto roles = UnixRoles::Create(options.admin_group);
  if (!roles.ok()) return roles.status();
  unix_roles = *roles;
  if (options.tls.all()) {
    auto opened = TlsListener::Open(options.tls, clock, &log);
    if (!opened.ok()) return opened.status();
    tls = *std::move(opened);
    tls_alarm = alarms.Add([this] {
      tls->Look();
      alarms.Set(tls_alarm, clock.Now() + kLookAtCertificates);
    });
    alarms.Set(tls_alarm, clock.Now() + kLookAtCertificates);
  }
  for (const Address& address : options.listen) {
    if (!address.is_unix()) continue;
    auto listener = UnixListener::Open(address.path, options.socket_mode, options.socket_group);
    if (!listener.ok()) return listener.status();
    listeners.push_back(*std::move(listener));
  }
  return absl::OkStatus();
}

EngineHooks Server::Parts::MakeHooks() {
  EngineHooks hooks;
  hooks.wake_at = [this](absl::Time time) { alarms.Set(tick_alarm, time); };
  hooks.want_reading = [this](const std::string& uuid) { readings->Want(uuid); };
  hooks.reading_began = [this](const core::ReadingBeganEvent& event) { readings->Began(event); };
  hooks.changed = [this] { feed->Changed(); };
  hooks.draining = [this] {
    log.Write(LogLine{clock.Now(), "draining", {}});
    if (auto* health = server->GetHealthCheckService()) health->SetServingStatus(false);
  };
  hooks.on_step = [this](const core::Event& event, absl::Duration took) {
    tally.Note(event, took);
    if (decision_log != nullptr) {
      recorder.Note(event, clock.Now());
      WriteRecorded();
    }
    if (extras.on_step != nullptr) extras.on_step(event, took);
  };
  hooks.on_effect = [this](const core::Effect& effect) {
    if (extras.on_effect != nullptr) extras.on_effect(effect);
    tally.Note(effect);
    if (const auto* decision = std::get_if<core::LogDecision>(&effect)) {
      decision_feed.Decided(decision->decision);
    }
    if (decision_log != nullptr) Record(effect);
  };
  return hooks;
}

// Above every earlier one, whatever the clock says.
core::Epoch Server::Parts::NewEpoch() {
  auto epoch = static_cast<uint64_t>(absl::ToUnixMicros(clock.Now()));
  for (const Device& device : devices) {
    epoch = std::max(epoch, device.record->newest_epoch() + kLeastBetweenEpochs);
  }
  for (const Device& device : devices) {
    device.record->PutEpoch(epoch);
    if (device.record->why().empty()) continue;
    log.Write(LogLine{clock.Now(),
                      "record_not_read",
                      {{"device", device.spec.uuid}, {"why", device.record->why()}}});
  }
  return core::Epoch(epoch);
}

absl::Status Server::Parts::StartEngine() {
  auto started = observe::ProcessWatch::Start();
  if (!started.ok()) return started.status();
  watch = *std::move(started);
  tick_alarm = alarms.Add([this] { engine->Post(core::TickEvent{}); });
  readings = std::make_unique<Readings>(
      clock, &alarms, [this](core::Event event) { engine->Post(std::move(event)); });
  feed = std::make_unique<PictureFeed>(clock, &alarms, [this] {
    engine->Inspect([this](const core::Machine& machine, absl::Time now) {
      auto picture = std::make_shared<v1::Picture>();
      Write(machine.GetPicture(now), picture.get());
      feed->Deliver(std::move(picture));
    });
  });
  std::vector<core::DeviceSpec> specs;
  for (const Device& device : devices) specs.push_back(device.spec);
  core::Config config = options.core;
  config.epoch = NewEpoch();
  config.host_memory = MachineMemory();
  if (absl::Status status = OpenDecisionLog(config); !status.ok()) return status;
  Engine::Records records;
  for (const Device& device : devices) records[device.spec.uuid] = device.record.get();
  engine = std::make_unique<Engine>(config, specs, clock, &log, watch.get(), std::move(records),
                                    MakeHooks());
  broker_service = std::make_unique<BrokerService>(
      engine.get(), &callers, specs.size() == 1 ? specs.front().uuid : std::string());
  admin_service =
      std::make_unique<AdminService>(engine.get(), feed.get(), &decision_feed, &callers);
  return absl::OkStatus();
}

absl::Status Server::Parts::StartServing() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(&builder);
  builder.RegisterService(broker_service.get());
  builder.RegisterService(admin_service.get());
  for (grpc::Service* service : extras.services) builder.RegisterService(service);
  std::vector<int> ports(options.listen.size(), 0);
  std::vector<std::string> tcp;
  for (size_t i = 0; i < options.listen.size(); ++i) {
    if (options.listen[i].is_unix()) continue;
    tcp.push_back(ToString(options.listen[i]));
    builder.AddListeningPort(
        tcp.back(), tls == nullptr ? grpc::InsecureServerCredentials() : tls->Credentials(),
        &ports[i]);
  }
  server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen at ", absl::StrJoin(tcp, ", "),
                     ": is a port taken, or not allowed? Give another --listen"));
  }
  for (size_t i = 0; i < options.listen.size(); ++i) {
    Address address = options.listen[i];
    if (!address.is_unix()) address.port = ports[i];
    addresses.push_back(ToString(address));
  }
  if (auto* health = server->GetHealthCheckService()) {
    // Draining and stopping then change all of them at once.
    for (const char* name :
         {"", v1::VramBroker::service_full_name(), v1::BrokerAdmin::service_full_name()}) {
      health->SetServingStatus(name, true);
    }
  }
  for (const auto& listener : listeners) {
    listener->Start(server.get(), &unix_roles, &peers, &log);
  }
  return absl::OkStatus();
}

absl::Status Server::Parts::StartReadings() {
  std::vector<Readings::Source> sources;
  for (Device& device : devices) {
    sources.push_back({std::move(device.probe), device.outside_share});
  }
  return readings->Start(std::move(sources), options.reading_interval);
}

absl::Status Server::Parts::Open() {
  if (absl::Status status = CheckTransports(options); !status.ok()) return status;
  RaiseDescriptorLimit();
  auto opened = OpenDevices(options, ToString(options.listen.front()));
  if (!opened.ok()) return opened.status();
  devices = *std::move(opened);
  if (absl::Status status = OpenListeners(); !status.ok()) return status;
  if (absl::Status status = StartEngine(); !status.ok()) return status;
  if (absl::Status status = StartServing(); !status.ok()) return status;
  alarms.Start();
  if (absl::Status status = StartReadings(); !status.ok()) return status;
  engine->WatchRecorded();
  if (absl::Status status = StartMetrics(); !status.ok()) return status;
  if (absl::Status status = StartPage(); !status.ok()) return status;
  LogStart();
  return absl::OkStatus();
}

void Server::Parts::LogStart() {
  LogLine line{clock.Now(), "start", {{"listen", absl::StrJoin(addresses, ",")}}};
  for (const Device& device : devices) {
    line.fields.emplace_back(
        "device", absl::StrCat(device.spec.uuid, " ", core::ToString(device.spec.capacity),
                               ", reserve ", core::ToString(device.spec.reserve)));
  }
  if (metrics != nullptr) line.fields.emplace_back("metrics", metrics->address());
  if (page != nullptr) line.fields.emplace_back("page", absl::StrCat("http://", page->address()));
  log.Write(std::move(line));
}

void Server::Parts::Stop() {
  if (std::exchange(stopped, true)) return;
  if (server != nullptr) {
    log.Write(LogLine{clock.Now(), "stopping", {}});
    if (auto* health = server->GetHealthCheckService()) health->SetServingStatus(false);
  }
  metrics.reset();
  page.reset();
  for (const auto& listener : listeners) listener->Stop();
  if (readings != nullptr) readings->Stop();
  alarms.Stop();
  if (engine != nullptr) engine->Stop();
  const auto stopping = absl::UnavailableError("the broker is stopping; watch again with backoff");
  if (feed != nullptr) feed->Close(stopping);
  decision_feed.Close(stopping);
  if (server != nullptr) {
    server->Shutdown(absl::ToChronoTime(absl::Now() + kShutdownGrace));
    server->Wait();
    log.Write(LogLine{clock.Now(), "stop", {}});
  }
  watch.reset();
}

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Server::~Server() { Stop(); }

void Server::Stop() { parts_->Stop(); }

const std::vector<std::string>& Server::addresses() const { return parts_->addresses; }

std::string Server::metrics_address() const {
  return parts_->metrics == nullptr ? "" : parts_->metrics->address();
}

std::string Server::page_address() const {
  return parts_->page == nullptr ? "" : parts_->page->address();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options,
                                                      const ServerExtras& extras) {
  std::unique_ptr<Server> server(new Server(std::make_unique<Parts>(options, extras)));
  if (absl::Status status = server->parts_->Open(); !status.ok()) return status;
  return server;
}

}  // namespace vrambroker::server
