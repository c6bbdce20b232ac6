// TLS with client certificates for addresses of gRPC, from files that may be renewed at any time.
#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "broker/server/certificates.h"
#include "broker/server/clock.h"
#include "broker/server/log.h"

namespace vrambroker::server {

// Looks at its files at each handshake, and where somebody calls Look(): what has changed serves
// the connections from then on, if it can be read and belongs together; if not, the log says why
// and what served goes on serving. Connections that are open stay as they are. Thread-safe.
class TlsListener {
 public:
  // Errors as ReadCertificates. `clock` and `log` outlive it.
  static absl::StatusOr<std::unique_ptr<TlsListener>> Open(const TlsFiles& files,
                                                           const Clock& clock, Log* log);

  // Every client needs a certificate of the client CA. This outlives the servers that use them.
  std::shared_ptr<grpc::ServerCredentials> Credentials();
  // Logs where the files have changed.
  void Look();

 private:
  // Of one file: device, inode, size, times.
  using Stamp = std::array<int64_t, 7>;
  using Stamps = std::array<Stamp, 3>;

  TlsListener(TlsFiles files, const Clock& clock, Log* log)
      : files_(std::move(files)), clock_(clock), log_(log) {}

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* listener, grpc_ssl_server_certificate_config** config);

  Stamps ReadStamps() const;
  void LookLocked();
  void LogServing(const char* event) const;

  const TlsFiles files_;
  const Clock& clock_;
  Log* const log_;
  std::mutex mutex_;
  Stamps stamps_{};
  Certificates current_;
  // Which of the certificates that were good so far is current, and which gRPC has taken last.
  uint64_t version_ = 0;
  uint64_t fetched_ = 0;
};

}  // namespace vrambroker::server
