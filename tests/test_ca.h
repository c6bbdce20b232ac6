// Certificates for tests, made by the openssl program.
#ifndef VRAMBROKER_TESTS_TEST_CA_H_
#define VRAMBROKER_TESTS_TEST_CA_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/run_program.h"

namespace vrambroker {

struct TestCertificate {
  std::string cert;
  std::string key;
};

// Of a broker on this machine.
inline constexpr char kBrokerNames[] = "DNS:localhost,IP:127.0.0.1";

// A CA of its own, in a folder that is made.
class TestCa {
 public:
  explicit TestCa(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    Run({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=vram-broker CA", "-days", "3650", "-keyout", File("ca.key"), "-out",
         cert()});
  }

  std::string cert() const { return File("ca.crt"); }

  // `names`: subject alternative names, as "DNS:localhost,URI:vram-broker:role/worker". `days`
  // below 0: it has expired.
  TestCertificate Issue(const std::string& name, const std::string& names, int days = 90) const {
    TestCertificate made = {File(name + ".crt"), File(name + ".key")};
    Run({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
         "/CN=" + name, "-addext", "subjectAltName=" + names, "-keyout", made.key, "-out",
         File(name + ".csr")});
    Run({"x509", "-req", "-in", File(name + ".csr"), "-copy_extensions", "copy", "-CA", cert(),
         "-CAkey", File("ca.key"), "-days", std::to_string(days), "-out", made.cert});
    return made;
  }
  TestCertificate IssueRole(const std::string& role) const {
    return Issue(role, "URI:vram-broker:role/" + role);
  }

 private:
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  static void Run(std::vector<std::string> words) {
    words.insert(words.begin(), "openssl");
    const ProgramEnd end = RunProgram(words);
    EXPECT_EQ(end.status, 0) << end.output;
  }

  const std::string folder_;
};

}  // namespace vrambroker

#endif  // VRAMBROKER_TESTS_TEST_CA_H_
