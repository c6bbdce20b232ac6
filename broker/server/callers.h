// Who makes a call, how that is known, and what he may do.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "broker/core/specs.h"
#include "broker/server/method_roles.h"
#include "broker/server/peers.h"
#include "broker/server/roles.h"

namespace vrambroker::server {

enum class Transport {
  kUnix,   // the kernel says who
  kTls,    // a certificate says who
  kPlain,  // nobody does
};

struct Caller {
  Transport transport = Transport::kPlain;
  // Null but over a Unix socket.
  PeerTable::PeerPtr peer;
  // Over TLS the certificate's subject and alternative names, which stay the same when it is
  // renewed; else empty.
  std::string certificate;
  RoleSet roles;
};

// What tells callers apart from one connection to the next.
struct Identity {
  Transport transport = Transport::kPlain;
  // Over a Unix socket, by the kernel's word. pid 0: of another pid namespace, where foreign_id is
  // that of observe::Peer.
  int32_t pid = 0;
  uint32_t uid = 0;
  // Over TLS.
  std::string certificate;
  uint64_t foreign_id = 0;
};
Identity IdentityOf(const Caller& caller);

// "process 42 of user 1000", "the certificate 'CN=dit'", "a caller without TLS".
std::string Describe(const Identity& identity);

// OK, or PERMISSION_DENIED naming the roles of which one is needed, and those of the caller.
absl::Status CheckRole(const Caller& caller, const MethodRoles& method);

// The process that a caller who attaches as `worker` is. `said`: by its own word, which counts
// where the kernel does not name it, and is not taken for a process of this namespace unless there
// is one with both that pid and that start time. Where nothing tells it apart from one elsewhere,
// its name does.
core::Process ProcessOf(const Caller& caller, const std::string& worker, const core::Process& said);

// Whether a session of `owner` may be used by `caller`: that came the same way and is the same
// process (of another pid namespace, where the kernel does not tell processes apart: the same
// user), or has a certificate of the same names. The
// reason against it; empty: it may.
std::string WhyNotTheSame(const Identity& owner, const Identity& caller);

class Callers {
 public:
  // `peers` outlives this. `plain_roles`: of whoever calls over TCP without TLS.
  Callers(const PeerTable* peers, RoleSet plain_roles) : peers_(peers), plain_roles_(plain_roles) {}

  // Of a call under way. Over a connection that is closed: without any role.
  Caller Of(const grpc::ServerContextBase& context) const;

 private:
  const PeerTable* const peers_;
  const RoleSet plain_roles_;
};

}  // namespace vrambroker::server
