#include "client/cpp/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace vrambroker::client {
namespace {

// Seconds between two looks at the files.
constexpr unsigned kLookAtFiles = 10;

bool IsUnix(const std::string& address) {
  return absl::StartsWith(address, "unix:") || absl::StartsWith(address, "unix-abstract:");
}

bool AnyOf(const TlsFiles& files) {
  return !files.ca.empty() || !files.cert.empty() || !files.key.empty();
}

void SetFrom(const char* variable, std::string* file) {
  const char* value = std::getenv(variable);
  if (file->empty() && value != nullptr) *file = value;
}

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path, const char* kind) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " is missing: --tls-ca, --tls-cert and --tls-key go together"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": ", path, ": ",
                     errno != 0 ? std::strerror(errno) : "is empty or cannot be read"));
  }
  if (absl::StrContains(text, absl::StrCat(kind, "-----"))) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": ", path, ": holds no ", kind, " in PEM form"));
}

template <auto F>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    F(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// An encrypted key is refused instead of asking a terminal for its password.
int NoPassword(char*, int, int, void*) { return -1; }

// gRPC would find out at each connection, and say it in its log alone.
absl::Status CheckPair(const TlsFiles& files, const std::string& cert_pem,
                       const std::string& key_pem) {
  const std::unique_ptr<X509, Free<X509_free>> cert(
      PEM_read_bio_X509(Open(cert_pem).get(), nullptr, NoPassword, nullptr));
  const std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>> key(
      PEM_read_bio_PrivateKey(Open(key_pem).get(), nullptr, NoPassword, nullptr));
  const bool match =
      cert != nullptr && key != nullptr && X509_check_private_key(cert.get(), key.get()) == 1;
  ERR_clear_error();
  if (match) return absl::OkStatus();
  if (cert == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert: ", files.cert, ": its first certificate is damaged"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--tls-key: ", files.key,
      key == nullptr ? ": holds no private key in PEM form that can be read without a password"
                     : absl::StrCat(": is not the key of the first certificate in ", files.cert)));
}

}  // namespace

TlsFiles WithEnvironment(TlsFiles files) {
  SetFrom("VRAM_BROKER_TLS_CA", &files.ca);
  SetFrom("VRAM_BROKER_TLS_CERT", &files.cert);
  SetFrom("VRAM_BROKER_TLS_KEY", &files.key);
  return files;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const std::string& address, const TlsFiles& files) {
  if (IsUnix(address) || !AnyOf(files)) return grpc::InsecureChannelCredentials();
  const auto ca = ReadPem("tls-ca", files.ca, "CERTIFICATE");
  if (!ca.ok()) return ca.status();
  const auto cert = ReadPem("tls-cert", files.cert, "CERTIFICATE");
  if (!cert.ok()) return cert.status();
  const auto key = ReadPem("tls-key", files.key, "PRIVATE KEY");
  if (!key.ok()) return key.status();
  if (absl::Status status = CheckPair(files, *cert, *key); !status.ok()) return status;
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(files.key, files.cert,
                                                                           files.ca, kLookAtFiles));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

std::string WhyUnreachable(const std::string& address, const TlsFiles& files) {
  if (IsUnix(address)) return "does one run there?";
  if (!AnyOf(files)) {
    return "this was tried without TLS, which brokers ask for at TCP addresses: give --tls-ca, "
           "--tls-cert and --tls-key, or $VRAM_BROKER_TLS_CA, $VRAM_BROKER_TLS_CERT and "
           "$VRAM_BROKER_TLS_KEY. Does a broker run there?";
  }
  return absl::StrCat(
      "does one run there, with TLS? The certificate in ", files.cert,
      " must be of a CA in the broker's --tls-client-ca and within its dates; the broker's must be "
      "of a CA in ",
      files.ca, " and name the host of the address among its subject alternative names.");
}

}  // namespace vrambroker::client
