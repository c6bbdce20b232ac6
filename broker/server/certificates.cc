#include "broker/server/certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"

namespace vrambroker::server {
namespace {

template <auto F>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    F(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

absl::Status Fault(absl::string_view flag, const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("--", flag, ": ", path, ": ", what));
}

absl::StatusOr<std::string> ReadPem(absl::string_view flag, const std::string& path) {
  const std::unique_ptr<FILE, Free<std::fclose>> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return Fault(flag, path, std::strerror(errno));
  std::string text(kMaxPemBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return Fault(flag, path, std::strerror(errno));
  if (text.empty()) return Fault(flag, path, "is empty");
  if (text.size() <= kMaxPemBytes) return text;
  return Fault(flag, path, absl::StrCat("at most ", kMaxPemBytes, " bytes are allowed"));
}

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// An encrypted key is refused instead of asking a terminal for its password.
int NoPassword(char*, int, int, void*) { return -1; }

absl::StatusOr<std::vector<Certificate>> ParseCertificates(absl::string_view flag,
                                                           const std::string& path,
                                                           const std::string& pem) {
  std::vector<Certificate> all;
  const Bio bio = Open(pem);
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
    all.emplace_back(next);
  }
  // The end of the file is "no start line" too.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) {
    return Fault(flag, path, absl::StrCat("certificate ", all.size() + 1, " in it is damaged"));
  }
  if (all.empty()) return Fault(flag, path, "holds no certificate in PEM form");
  return all;
}

absl::StatusOr<Key> ParseKey(absl::string_view flag, const std::string& path,
                             const std::string& pem) {
  const Bio bio = Open(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return Fault(flag, path, "holds no private key in PEM form that can be read without a password");
}

std::string SubjectOf(const X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

// Rules of the library, such as the least length of a key. Empty: none is against it.
std::string WhyUnusable(X509* certificate) {
  const std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context(SSL_CTX_new(TLS_server_method()));
  ERR_clear_error();
  if (SSL_CTX_use_certificate(context.get(), certificate) == 1) return "";
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return absl::StrCat("is refused by OpenSSL: ", reason == nullptr ? "unknown" : reason);
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<Certificates> ReadCertificates(const TlsFiles& files, absl::Time now) {
  Certificates read;
  const struct {
    const char* flag;
    const std::string& path;
    std::string* pem;
  } wanted[] = {{"tls-cert", files.cert, &read.cert_pem},
                {"tls-key", files.key, &read.key_pem},
                {"tls-client-ca", files.client_ca, &read.client_ca_pem}};
  for (const auto& one : wanted) {
    auto pem = ReadPem(one.flag, one.path);
    if (!pem.ok()) return pem.status();
    *one.pem = *std::move(pem);
  }
  const auto chain = ParseCertificates("tls-cert", files.cert, read.cert_pem);
  if (!chain.ok()) return chain.status();
  const auto cas = ParseCertificates("tls-client-ca", files.client_ca, read.client_ca_pem);
  if (!cas.ok()) return cas.status();
  const auto key = ParseKey("tls-key", files.key, read.key_pem);
  if (!key.ok()) return key.status();
  const X509* own = chain->front().get();
  const bool matches = X509_check_private_key(own, key->get()) == 1;
  ERR_clear_error();
  if (!matches) {
    return Fault("tls-key", files.key,
                 absl::StrCat("is not the key of the first certificate in ", files.cert));
  }
  if (const std::string why = WhyUnusable(chain->front().get()); !why.empty()) {
    return Fault("tls-cert", files.cert, why);
  }
  read.subject = SubjectOf(own);
  read.not_after = ToTime(X509_get0_notAfter(own));
  const absl::Time not_before = ToTime(X509_get0_notBefore(own));
  if (now < not_before || now > read.not_after) {
    return Fault("tls-cert", files.cert,
                 absl::StrCat("is valid from ", absl::FormatTime(not_before, absl::UTCTimeZone()),
                              " to ", absl::FormatTime(read.not_after, absl::UTCTimeZone()),
                              ", now it is ", absl::FormatTime(now, absl::UTCTimeZone())));
  }
  return read;
}

}  // namespace vrambroker::server
