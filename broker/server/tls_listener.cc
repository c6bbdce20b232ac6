#include "broker/server/tls_listener.h"

#include <grpcpp/security/server_credentials.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::server {
namespace {

// Credentials of the C library, whose certificates are fetched anew for each handshake: gRPC's C++
// interface has none that keep the old ones where new ones are broken.
class FetchedCredentials final : public grpc::ServerCredentials {
 public:
  FetchedCredentials(grpc_ssl_server_certificate_config_callback fetch, void* argument)
      : credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, argument))) {}
  ~FetchedCredentials() override { grpc_server_credentials_release(credentials_); }

  // None is used here.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TlsListener>> TlsListener::Open(const TlsFiles& files,
                                                               const Clock& clock, Log* log) {
  std::unique_ptr<TlsListener> listener(new TlsListener(files, clock, log));
  listener->stamps_ = listener->ReadStamps();
  auto read = ReadCertificates(files, clock.Now());
  if (!read.ok()) return read.status();
  listener->current_ = *std::move(read);
  listener->version_ = 1;
  listener->LogServing("tls");
  return listener;
}

std::shared_ptr<grpc::ServerCredentials> TlsListener::Credentials() {
  return std::make_shared<FetchedCredentials>(&TlsListener::Fetch, this);
}

void TlsListener::Look() {
  std::lock_guard<std::mutex> lock(mutex_);
  LookLocked();
}

grpc_ssl_certificate_config_reload_status TlsListener::Fetch(
    void* listener, grpc_ssl_server_certificate_config** config) {
  auto* self = static_cast<TlsListener*>(listener);
  std::lock_guard<std::mutex> lock(self->mutex_);
  self->LookLocked();
  if (std::exchange(self->fetched_, self->version_) == self->version_) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  const grpc_ssl_pem_key_cert_pair pair = {self->current_.key_pem.c_str(),
                                           self->current_.cert_pem.c_str()};
  *config =
      grpc_ssl_server_certificate_config_create(self->current_.client_ca_pem.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

TlsListener::Stamps TlsListener::ReadStamps() const {
  Stamps stamps{};
  const std::string* const paths[] = {&files_.cert, &files_.key, &files_.client_ca};
  for (size_t i = 0; i < stamps.size(); ++i) {
    struct stat info {};
    if (stat(paths[i]->c_str(), &info) != 0) continue;
    stamps[i] = {static_cast<int64_t>(info.st_dev),
                 static_cast<int64_t>(info.st_ino),
                 info.st_size,
                 info.st_mtim.tv_sec,
                 info.st_mtim.tv_nsec,
                 info.st_ctim.tv_sec,
                 info.st_ctim.tv_nsec};
  }
  return stamps;
}

// The stamps are read before the files: what changes meanwhile is seen the next time.
void TlsListener::LookLocked() {
  const Stamps stamps = ReadStamps();
  if (stamps == stamps_) return;
  stamps_ = stamps;
  auto read = ReadCertificates(files_, clock_.Now());
  if (!read.ok()) {
    log_->Write(LogLine{clock_.Now(),
                        "tls_not_renewed",
                        {{"error", std::string(read.status().message())},
                         {"still_serving", current_.subject},
                         {"until", absl::FormatTime(current_.not_after, absl::UTCTimeZone())}}});
    return;
  }
  current_ = *std::move(read);
  ++version_;
  LogServing("tls_renewed");
}

void TlsListener::LogServing(const char* event) const {
  log_->Write(LogLine{clock_.Now(),
                      event,
                      {{"certificate", current_.subject},
                       {"until", absl::FormatTime(current_.not_after, absl::UTCTimeZone())}}});
}

}  // namespace vrambroker::server
