// Which files of TLS a client takes, and what it says of those that it cannot use.
#include "client/cpp/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace vrambroker::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CredentialsTest : public testing::Test {
 protected:
  CredentialsTest() {
    std::string name = "/tmp/vb-credentials-XXXXXX";
    folder_ = mkdtemp(name.data());
    good_ = {File("ca", "-----BEGIN CERTIFICATE-----\n"),
             File("cert", "-----BEGIN CERTIFICATE-----\n"),
             File("key", "-----BEGIN EC PRIVATE KEY-----\n")};
  }
  ~CredentialsTest() override {
    std::filesystem::remove_all(folder_);
    for (const char* name : {"CA", "CERT", "KEY"}) {
      unsetenv(absl::StrCat("VRAM_BROKER_TLS_", name).c_str());
    }
  }

  std::string File(const std::string& name, const std::string& text) const {
    std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path) << text;
    return path;
  }
  static std::string Refusal(const TlsFiles& files) {
    const auto made = MakeCredentials("localhost:7", files);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  }

  std::string folder_;
  TlsFiles good_;
};

TEST_F(CredentialsTest, WithoutFilesAndForUnixSocketsThereIsNoTls) {
  EXPECT_TRUE(MakeCredentials("localhost:7", {}).ok());
  EXPECT_TRUE(MakeCredentials("unix:/b.sock", {"/nowhere", "", ""}).ok());
}

TEST_F(CredentialsTest, FilesThatAreMissingOrSomethingElseAreNamed) {
  EXPECT_THAT(Refusal({"", good_.cert, good_.key}), HasSubstr("--tls-ca is missing"));
  EXPECT_THAT(Refusal({good_.ca, "", good_.key}), HasSubstr("--tls-cert is missing"));
  EXPECT_THAT(Refusal({good_.ca, good_.cert, ""}), HasSubstr("--tls-key is missing"));
  EXPECT_THAT(Refusal({"/nowhere/ca", good_.cert, good_.key}),
              AllOf(HasSubstr("--tls-ca: /nowhere/ca"), HasSubstr("No such file")));
  EXPECT_THAT(Refusal({good_.ca, good_.key, good_.key}),
              HasSubstr("--tls-cert: " + good_.key + ": holds no CERTIFICATE in PEM form"));
  EXPECT_THAT(Refusal({good_.ca, good_.cert, good_.cert}),
              HasSubstr("--tls-key: " + good_.cert + ": holds no PRIVATE KEY in PEM form"));
  EXPECT_THAT(Refusal({File("empty", ""), good_.cert, good_.key}), HasSubstr("is empty"));
}

TEST_F(CredentialsTest, WhatIsNotGivenComesFromTheEnvironment) {
  setenv("VRAM_BROKER_TLS_CA", "/env/ca", 1);
  setenv("VRAM_BROKER_TLS_CERT", "/env/cert", 1);
  setenv("VRAM_BROKER_TLS_KEY", "/env/key", 1);
  const TlsFiles files = WithEnvironment({"", "/given/cert", ""});
  EXPECT_EQ(files.ca, "/env/ca");
  EXPECT_EQ(files.cert, "/given/cert");
  EXPECT_EQ(files.key, "/env/key");
}

TEST_F(CredentialsTest, AnUnreachableBrokerIsExplainedByHowItWasTried) {
  EXPECT_EQ(WhyUnreachable("unix:/b.sock", {}), "does one run there?");
  EXPECT_THAT(WhyUnreachable("localhost:7", {}),
              AllOf(HasSubstr("without TLS"), HasSubstr("--tls-ca")));
  EXPECT_THAT(WhyUnreachable("localhost:7", good_),
              AllOf(HasSubstr("--tls-client-ca"), HasSubstr(good_.cert), HasSubstr(good_.ca)));
}

}  // namespace
}  // namespace vrambroker::client
