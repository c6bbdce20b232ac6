#include "broker/server/callers.h"

#include <grpc/grpc_security_constants.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "broker/observe/process_watch.h"

namespace vrambroker::server {
namespace {

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

absl::string_view First(const grpc::AuthContext& context, const char* property) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(property);
  return values.empty() ? absl::string_view() : View(values.front());
}

// Of a verified certificate: without one the handshake fails.
Caller OfCertificate(const grpc::AuthContext& context) {
  Caller caller;
  caller.transport = Transport::kTls;
  caller.certificate = std::string(First(context, GRPC_X509_SUBJECT_PROPERTY_NAME));
  for (const grpc::string_ref& name : context.FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
    absl::StrAppend(&caller.certificate, caller.certificate.empty() ? "" : " ", View(name));
  }
  for (const grpc::string_ref& uri : context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    const std::optional<Role> role = RoleOfUri(View(uri));
    if (role.has_value()) caller.roles.Add(*role);
  }
  return caller;
}

// The same for the same name, whichever broker asks: FNV-1a, in the upper half, where no inode is.
uint64_t IdOfName(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash | uint64_t{1} << 63;
}

absl::string_view HowRolesAreGiven(Transport transport) {
  switch (transport) {
    case Transport::kUnix:
      return "over the Unix socket --admin-group of vram-brokerd says who has the role admin, and "
             "everybody has the others";
    case Transport::kTls:
      return "a certificate gives the roles that its subject alternative names list as "
             "URI:vram-broker:role/NAME; get one that lists the role";
    case Transport::kPlain:
      return "use the Unix socket, or TLS with a certificate";
  }
  return "";
}

absl::string_view Way(Transport transport) {
  switch (transport) {
    case Transport::kUnix:
      return "over a Unix socket";
    case Transport::kTls:
      return "over TLS";
    case Transport::kPlain:
      return "over TCP without TLS";
  }
  return "";
}

}  // namespace

Identity IdentityOf(const Caller& caller) {
  Identity identity;
  identity.transport = caller.transport;
  identity.certificate = caller.certificate;
  if (caller.peer == nullptr) return identity;
  identity.pid = caller.peer->pid;
  identity.foreign_id = caller.peer->foreign_id;
  identity.uid = caller.peer->uid;
  return identity;
}

core::Process ProcessOf(const Caller& caller, const std::string& worker,
                        const core::Process& said) {
  const observe::Peer* peer = caller.peer.get();
  if (peer != nullptr && peer->pid != 0) return {peer->pid, peer->start_ticks};
  core::Process process = said;
  process.foreign_id = 0;
  if (peer != nullptr && peer->foreign_id > 1) {
    process.foreign_id = peer->foreign_id;
  } else if (peer != nullptr || !observe::IsProcessHere(said.pid, said.start_time)) {
    process.foreign_id = IdOfName(worker);
  }
  return process;
}

std::string Describe(const Identity& identity) {
  switch (identity.transport) {
    case Transport::kUnix:
      if (identity.pid == 0) {
        return absl::StrCat("a process of another pid namespace, of user ", identity.uid);
      }
      return absl::StrCat("process ", identity.pid, " of user ", identity.uid);
    case Transport::kTls:
      return absl::StrCat("the certificate '", identity.certificate, "'");
    case Transport::kPlain:
      return "a caller without TLS";
  }
  return "";
}

absl::Status CheckRole(const Caller& caller, const MethodRoles& method) {
  if (caller.roles.HasAnyOf(method.any_of)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(std::string(method.method), " needs the role ",
                   absl::StrReplaceAll(ToString(method.any_of), {{", ", " or "}}), "; ",
                   Describe(IdentityOf(caller)), " has: ", ToString(caller.roles), "; ",
                   HowRolesAreGiven(caller.transport)));
}

std::string WhyNotTheSame(const Identity& owner, const Identity& caller) {
  if (owner.transport != caller.transport) {
    return absl::StrCat("was attached ", Way(owner.transport), ", the call came ",
                        Way(caller.transport));
  }
  const bool told_apart = owner.pid != 0 || owner.foreign_id > 1;
  const bool same = owner.pid == caller.pid && owner.foreign_id == caller.foreign_id &&
                    (told_apart || owner.uid == caller.uid);
  if (same && owner.certificate == caller.certificate) return "";
  return absl::StrCat("is of ", Describe(owner), ", the caller is ", Describe(caller));
}

Caller Callers::Of(const grpc::ServerContextBase& context) const {
  const std::string address = context.peer();
  if (absl::StartsWith(address, "fd:")) {
    PeerTable::Known known = peers_->Find(address);
    return {Transport::kUnix, std::move(known.peer), "", known.roles};
  }
  const std::shared_ptr<const grpc::AuthContext> authenticated = context.auth_context();
  if (authenticated != nullptr &&
      First(*authenticated, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) ==
          GRPC_SSL_TRANSPORT_SECURITY_TYPE) {
    return OfCertificate(*authenticated);
  }
  return {Transport::kPlain, nullptr, "", plain_roles_};
}

}  // namespace vrambroker::server
