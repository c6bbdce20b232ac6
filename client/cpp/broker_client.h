// A worker's or driver's side of the broker: one session, kept alive and re-opened, with its
// components kept at their targets. Thread-safe.
//
//   auto client = BrokerClient::Create(options);             // attaches in the background
//   auto use = client->BeginUse("dit", {.passes = 40, .activation_bytes = need});
//   ... run with use->resident_layers() ...
//   use->End(measured);                                      // or let it go: its destructor ends
//   it
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/managed_component.h"
#include "vrambroker/v1/broker.pb.h"

namespace vrambroker::client {

// Paths of PEM files for TLS: the CA of the broker's certificate, the certificate that this process
// shows and its key. All or none of them.
struct TlsFiles {
  std::string ca = {};
  std::string cert = {};
  std::string key = {};
};

struct ClientOptions {
  // gRPC address: unix:PATH or HOST:PORT. Empty: $VRAM_BROKER_ADDRESS, else the default socket
  // (DefaultAddress()).
  std::string address;
  // For TCP; a Unix socket has no use for them. Empty ones are taken from $VRAM_BROKER_TLS_CA,
  // $VRAM_BROKER_TLS_CERT and $VRAM_BROKER_TLS_KEY.
  TlsFiles tls = {};
  // Name of this worker or driver: 1 to 128 of letters, digits, '.', '-', '_'. The broker's metrics
  // also say where it runs: $POD_NAME, $POD_NAMESPACE and $CONTAINER_NAME, where they are set.
  std::string worker;
  // The components, which must outlive the client. None: a driver.
  std::vector<ManagedComponent*> components;
  // Their allocator, which must outlive the client. Null: nothing is pooled.
  ManagedPool* pool = nullptr;
  // Resident layers of a use where no broker lives, by component name; others stream everything
  // (0).
  std::vector<std::pair<std::string, int>> configured_resident;
  // Where brokers lock their devices: a device whose lock is free has no broker. Empty:
  // DefaultLockDir().
  std::string lock_dir;
  // UUID of the device, to look for its lock. Empty: the broker is taken to live, and uses wait for
  // it.
  std::string device_uuid;
  // Once a session was lost, a device whose lock is free counts as one whose broker restarts for
  // this long, and uses wait for it: beside others of its workers they would run out of memory.
  absl::Duration restart_grace = absl::Seconds(5);
  // False: no thread applies targets; the program calls Poll() when poll_descriptor() is readable.
  bool apply_thread = true;
  // Pause before an attach is tried again, doubled up to ten times this.
  absl::Duration retry_interval = absl::Milliseconds(100);
  // Hears one line, without a line end, of what becomes of the session: attached, components
  // refused and admitted later, the broker lost, uses running without one. From threads of the
  // client, one line at a time; must not call the client. Empty: nobody hears.
  std::function<void(const std::string&)> notice = {};
};

// A session as drivers see it.
struct SessionInfo {
  // 0: none is open.
  uint64_t id = 0;
  // Of the broker that it is with; another one knows no run of this one.
  uint64_t epoch = 0;
};

// $VRAM_BROKER_ADDRESS; else broker.sock in the first of /run/vram-broker and
// $XDG_RUNTIME_DIR/vram-broker (not set: below /run/user/UID) that has one; where neither has, in
// that which a broker of this user would take.
std::string DefaultAddress();
// Directory of device locks: the one of the default socket.
std::string DefaultLockDir();

struct UseOptions {
  // A declared run and its stage, from 0. run_id 0: none.
  uint64_t run_id = 0;
  int stage = 0;
  // Passes over all layers, at least 1.
  int passes = 1;
  int64_t activation_bytes = 0;
  // What makes uses alike in the activation that they take, at most 64 bytes. Empty: those that ask
  // for the same bytes are.
  std::string shape = {};
  // Exactly activation_bytes are charged, whatever was measured.
  bool activation_is_exact = false;
  int min_resident_layers = 0;
  // 0: all.
  int max_resident_layers = 0;
  int priority = 0;
  std::vector<uint64_t> held_use_ids;
  // The stage is sharded over devices: so many members, of which this is one, ask under this name
  // (1 to 64 bytes) and begin together with the same layers. Empty: it is a stage of its own.
  std::string shard_group = {};
  int shard_group_size = 0;
  // The caller stops waiting then. Infinite: it waits.
  absl::Time deadline = absl::InfiniteFuture();
  // Asked every few milliseconds while it waits; true: the caller stops waiting. Empty: never.
  std::function<bool()> cancelled = {};
};

class BrokerClient;

// A use that is running. Holds the component's lock. Move-only; End() at the latest in the
// destructor.
class Use {
 public:
  Use(Use&&) noexcept;
  Use& operator=(Use&&) noexcept;
  ~Use();

  // 0 where it runs without a broker.
  uint64_t use_id() const;
  int resident_layers() const;
  // What is set aside for its activation, in bytes: what was asked for, or what uses like it took.
  // As asked for where it runs without a broker.
  int64_t activation_bytes() const;
  // Whether the broker granted it; else the configured count applies and all is released at the
  // end.
  bool brokered() const;
  // From asking to the answer.
  absl::Duration waited() const;
  v1::Reason reason() const;

  // Frees window and activation, tells the broker, releases down to what it lets stay, reports,
  // gives up the lock. Returns the layers kept. Waits for a lost broker no longer than `patience`,
  // then releases all.
  int End(const v1::UseMeasurements& measured, absl::Duration patience = absl::Seconds(10));

 private:
  friend class BrokerClient;
  struct State;
  explicit Use(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class BrokerClient {
 public:
  // INVALID_ARGUMENT where the options are out of range or files of TLS cannot be used. Attaches in
  // the background.
  static absl::StatusOr<std::unique_ptr<BrokerClient>> Create(ClientOptions options);
  ~BrokerClient();

  // Waits until a session is open and all admitted components are placed, or no broker lives.
  // Errors: DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED where fixed bytes were refused, naming what is
  // missing; or the broker's own refusal.
  absl::Status WaitReady(absl::Time deadline);

  // Waits for admission, across lost streams and restarts of the broker. Errors: the broker's;
  // DEADLINE_EXCEEDED past options.deadline; CANCELLED by options.cancelled; FAILED_PRECONDITION
  // where the component is not one of ours.
  absl::StatusOr<Use> BeginUse(const std::string& component, const UseOptions& options);

  // A full reset of all components that have no use now: waits for the running ones. Then reports.
  absl::Status ReleaseAll();

  // What WaitReady would wait for now, in words: a session, the broker's refusal of a component,
  // placing. Empty: nothing.
  std::string WaitingFor() const;

  // Why the copy of a component on the host is pageable though its pin_host_bytes wish otherwise,
  // in words. Empty: it is pinned, or nothing was wished.
  std::string WhyPageable(const std::string& component) const;

  // Drivers. Without a session these are UNAVAILABLE at once, or a quarter of a second after it was
  // lost (before the first one: ten seconds after the client was created); a call that a living
  // broker leaves unanswered is given up after five seconds. Pipelines are declared again in each
  // new session. Run ids are the broker's own: after its restart older ones name nothing, and uses
  // that carry them count as undeclared.
  absl::Status DeclarePipeline(const v1::DeclarePipelineRequest& pipeline);
  absl::StatusOr<uint64_t> DeclareRun(const std::string& pipeline);
  absl::Status FinishRun(uint64_t run_id);

  // For programs with one thread: applies targets that are due. poll_descriptor() becomes readable
  // when there is something to do. Only where apply_thread is false.
  void Poll();
  int poll_descriptor() const;

  // Whether a session is open now, and which.
  bool attached() const;
  SessionInfo session() const;

 private:
  friend class Use;
  class Impl;
  explicit BrokerClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vrambroker::client
