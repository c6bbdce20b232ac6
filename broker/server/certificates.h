// The files of TLS, read and checked before anything is done with them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace vrambroker::server {

// Paths of PEM files. None: TCP without TLS.
struct TlsFiles {
  // The server's certificate, then those between it and its CA.
  std::string cert;
  // Its private key, not encrypted.
  std::string key;
  // The CAs that issue the certificates of clients.
  std::string client_ca;

  bool any() const { return !cert.empty() || !key.empty() || !client_ca.empty(); }
  bool all() const { return !cert.empty() && !key.empty() && !client_ca.empty(); }
};

// A file at most.
inline constexpr size_t kMaxPemBytes = 1 << 20;

// What the files say. The key is never shown to anybody.
struct Certificates {
  std::string cert_pem;
  std::string key_pem;
  std::string client_ca_pem;
  // Of the server's certificate.
  std::string subject;
  absl::Time not_after;
};

// Reads and checks them: the certificate is within its dates at `now`, the key is its own, every
// certificate can be read. FAILED_PRECONDITION names the flag, the file and what is wrong with it,
// and nothing of what is in a key.
absl::StatusOr<Certificates> ReadCertificates(const TlsFiles& files, absl::Time now);

}  // namespace vrambroker::server
