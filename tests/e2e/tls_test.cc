// Broker, worker, driver and vramctl over TCP, with the certificates that README.md shows how to
// make.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/harness.h"
#include "tests/run_program.h"
#include "tests/test_ca.h"

namespace vrambroker::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TlsTest : public E2eTest {
 protected:
  TlsTest() : ca_(folder() + "/ca") {}

  // Beside its Unix socket, which the harness looks through.
  void StartTlsBroker(const TestCa& ca, const std::string& listen = "127.0.0.1:0") {
    StartTlsBroker(ca.Issue("broker", kBrokerNames), ca.cert(), listen);
  }
  void StartTlsBroker(const TestCertificate& own, const std::string& client_ca,
                      const std::string& listen = "127.0.0.1:0") {
    StartBroker({"--listen=" + listen, "--tls-cert=" + own.cert, "--tls-key=" + own.key,
                 "--tls-client-ca=" + client_ca});
    EXPECT_TRUE(WaitFor([&] { return broker().Log().find(" device=") != std::string::npos; }));
    const std::string log = broker().Log();
    const size_t begin = log.find(",127.0.0.1:");
    ASSERT_NE(begin, std::string::npos) << log;
    address_ = log.substr(begin + 1, log.find_first_of(" \n", begin) - begin - 1);
  }
  static std::vector<std::string> Flags(const TestCa& ca, const TestCertificate& own) {
    return {"--tls-ca=" + ca.cert(), "--tls-cert=" + own.cert, "--tls-key=" + own.key};
  }
  ProgramEnd Vramctl(const std::string& command, const std::vector<std::string>& flags) {
    std::vector<std::string> words = {Program("vramctl"), command, "--address=" + address_};
    words.insert(words.end(), flags.begin(), flags.end());
    return RunProgram(words);
  }

  const TestCa ca_;
  std::string address_;
};

TEST_F(TlsTest, VramctlSeesTheBrokerWithTheRightCertificateOnly) {
  ASSERT_NO_FATAL_FAILURE(StartTlsBroker(ca_));
  const TestCertificate viewer = ca_.IssueRole("viewer");
  const ProgramEnd seen = Vramctl("status", Flags(ca_, viewer));
  EXPECT_EQ(seen.status, 0) << seen.output;
  EXPECT_THAT(seen.output, HasSubstr(card_uuid()));
  EXPECT_THAT(Vramctl("health", Flags(ca_, viewer)).output, HasSubstr("serving"));
  std::vector<std::string> by_environment = {"VRAM_BROKER_TLS_CA=" + ca_.cert(),
                                             "VRAM_BROKER_TLS_CERT=" + viewer.cert,
                                             "VRAM_BROKER_TLS_KEY=" + viewer.key,
                                             "VRAM_BROKER_ADDRESS=" + address_,
                                             Program("vramctl"),
                                             "decisions"};
  EXPECT_EQ(RunProgram(by_environment).status, 0);

  const ProgramEnd other_role = Vramctl("status", Flags(ca_, ca_.IssueRole("worker")));
  EXPECT_EQ(other_role.status, 2);
  EXPECT_THAT(other_role.output,
              AllOf(HasSubstr("BrokerAdmin.GetPicture needs the role viewer or admin"),
                    HasSubstr("has: worker"), HasSubstr("URI:vram-broker:role/NAME")));
  const ProgramEnd plain = Vramctl("status", {});
  EXPECT_EQ(plain.status, 2);
  EXPECT_THAT(plain.output, AllOf(HasSubstr("without TLS"), HasSubstr("--tls-ca")));
  const TestCa stranger(folder() + "/stranger");
  const ProgramEnd strange = Vramctl("status", Flags(ca_, stranger.IssueRole("viewer")));
  EXPECT_EQ(strange.status, 2);
  EXPECT_THAT(strange.output, HasSubstr("must be of a CA in the broker's --tls-client-ca"));
  const ProgramEnd late =
      Vramctl("status", Flags(ca_, ca_.Issue("late", "URI:vram-broker:role/viewer", -1)));
  EXPECT_EQ(late.status, 2);
  EXPECT_THAT(late.output, HasSubstr("within its dates"));
  const ProgramEnd impostor = Vramctl("status", Flags(stranger, viewer));
  EXPECT_EQ(impostor.status, 2);
  EXPECT_THAT(impostor.output, Not(HasSubstr(card_uuid())));
  const ProgramEnd drain = RunProgram([&] {
    std::vector<std::string> words = {Program("vramctl"), "drain", "--yes",
                                      "--address=" + address_};
    for (const std::string& flag : Flags(ca_, viewer)) words.push_back(flag);
    return words;
  }());
  EXPECT_EQ(drain.status, 2);
  EXPECT_THAT(drain.output, HasSubstr("BrokerAdmin.Drain needs the role admin"));
  const ProgramEnd mixed_up =
      Vramctl("status", Flags(ca_, {viewer.cert, ca_.IssueRole("driver").key}));
  EXPECT_EQ(mixed_up.status, 2);
  EXPECT_THAT(mixed_up.output,
              AllOf(HasSubstr("vramctl: --tls-key: "),
                    HasSubstr("is not the key of the first certificate in " + viewer.cert)));
  EXPECT_EQ(mixed_up.output.find('\n'), mixed_up.output.size() - 1) << "one line, no log";
  const ProgramEnd in_part = Vramctl("status", {"--tls-ca=" + ca_.cert()});
  EXPECT_EQ(in_part.status, 2);
  EXPECT_THAT(in_part.output, HasSubstr("--tls-cert is missing"));
}

// The lines of a section of README.md that are commands and make certificates.
std::string CommandsOfReadme() {
  std::ifstream file(README_PATH);
  std::string commands;
  bool there = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("A CA and certificates for", 0) == 0) there = true;
    if (line.rfind("The broker (", 0) == 0) there = false;
    if (there && line.rfind("    ", 0) == 0) commands += line.substr(4) + "\n";
  }
  return commands;
}

TEST_F(TlsTest, TheCommandsOfTheReadmeMakeWhatIsNeeded) {
  const std::string made = folder() + "/made";
  std::filesystem::create_directories(made);
  std::ofstream(made + "/make.sh") << "set -eu\ncd " << made << "\n" << CommandsOfReadme();
  const ProgramEnd end = RunProgram({"bash", made + "/make.sh"});
  ASSERT_EQ(end.status, 0) << end.output;
  ASSERT_NO_FATAL_FAILURE(
      StartTlsBroker({made + "/broker.crt", made + "/broker.key"}, made + "/ca.crt"));
  const auto flags = [&made](const std::string& name) {
    return std::vector<std::string>{"--tls-ca=" + made + "/ca.crt",
                                    "--tls-cert=" + made + "/" + name + ".crt",
                                    "--tls-key=" + made + "/" + name + ".key"};
  };
  EXPECT_EQ(Vramctl("status", flags("operator")).status, 0);
  EXPECT_EQ(Vramctl("status", flags("driver")).status, 2);
  StageWorker& worker = StartWorker("worker", {.broker = address_, .flags = flags("worker")});
  EXPECT_TRUE(worker.Run(Stage()).brokered());
}

TEST_F(TlsTest, WorkerAndDriverRunOverTls) {
  ASSERT_NO_FATAL_FAILURE(StartTlsBroker(ca_));
  StageWorker& worker =
      StartWorker("worker", {.broker = address_, .flags = Flags(ca_, ca_.IssueRole("worker"))});
  EXPECT_EQ(Session("worker").state(), v1::SESSION_STATE_ATTACHED);
  const v1::RunStageResponse alone = worker.Run(Stage());
  EXPECT_TRUE(alone.brokered());
  EXPECT_EQ(alone.kept_layers(), 8);

  const std::string workload = folder() + "/workload.json";
  std::ofstream(workload)
      << R"({"name": "one", "device": {"capacityBytes": 20971520, "h2dBytesPerSecond": 1e9},
             "components": [{"name": "worker",
                             "layerGroups": [{"count": 8, "layerBytes": 1048576}]}],
             "pipelines": [{"name": "p", "stages": [{"component": "worker"}]}],
             "runs": [{"pipeline": "p"}, {"pipeline": "p"}]})";
  std::vector<std::string> command = {Program("vram-pipeline"), "run", "--workload=" + workload,
                                      "--workers=worker=" + worker.address(),
                                      "--broker=" + address_};
  const std::vector<std::string> driver = Flags(ca_, ca_.IssueRole("driver"));
  command.insert(command.end(), driver.begin(), driver.end());
  const ProgramEnd run = RunProgram(command);
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(WaitFor([&] { return broker().Log().find("CN=driver") != std::string::npos; }));
}

TEST_F(TlsTest, AWorkerWithADriversCertificateIsToldWhy) {
  ASSERT_NO_FATAL_FAILURE(StartTlsBroker(ca_));
  StageWorker& worker =
      BeginWorker("worker", {.broker = address_, .flags = Flags(ca_, ca_.IssueRole("driver"))});
  EXPECT_TRUE(Eventually([&] {
    return worker.Log().find("Attach with components needs the role worker") != std::string::npos;
  })) << worker.Log();
}

TEST_F(TlsTest, ARenewedCertificateOfAWorkerServesItsNextSession) {
  ASSERT_NO_FATAL_FAILURE(StartTlsBroker(ca_));
  const std::string own = folder() + "/own/";
  std::filesystem::create_directories(own);
  const auto take = [&own](const TestCa& ca) {
    const TestCertificate issued = ca.IssueRole("worker");
    const auto replace = std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy_file(ca.cert(), own + "ca.crt", replace);
    std::filesystem::copy_file(issued.cert, own + "tls.crt", replace);
    std::filesystem::copy_file(issued.key, own + "tls.key", replace);
  };
  take(ca_);
  StageWorker& worker = StartWorker(
      "worker", {.broker = address_,
                 .flags = {"--tls-ca=" + own + "ca.crt", "--tls-cert=" + own + "tls.crt",
                           "--tls-key=" + own + "tls.key"}});
  EXPECT_TRUE(worker.GetStatus().attached());
  const TestCa renewed(folder() + "/renewed");
  take(renewed);
  broker().Kill();
  ASSERT_NO_FATAL_FAILURE(StartTlsBroker(renewed, address_));
  EXPECT_TRUE(Eventually([&] { return Session("worker").state() == v1::SESSION_STATE_ATTACHED; },
                         absl::Seconds(30)));
  EXPECT_TRUE(worker.Run(Stage()).brokered());
}

TEST_F(TlsTest, ConformanceProvokesTheRolesThatItsCertificateLacks) {
  ASSERT_NO_FATAL_FAILURE(StartTlsBroker(ca_));
  const ProgramEnd both = Vramctl(
      "conformance",
      Flags(ca_, ca_.Issue("both", "URI:vram-broker:role/worker,URI:vram-broker:role/driver")));
  EXPECT_EQ(both.status, 0) << both.output;
  EXPECT_THAT(both.output,
              AllOf(HasSubstr("ListRuns without the role for it"), Not(HasSubstr("WRONG")),
                    HasSubstr("a second certificate would be needed")));
  const ProgramEnd worker = Vramctl("conformance", Flags(ca_, ca_.IssueRole("worker")));
  EXPECT_EQ(worker.status, 2);
  EXPECT_THAT(worker.output, HasSubstr("VramBroker.DeclarePipeline needs the role driver"));
}

}  // namespace
}  // namespace vrambroker::e2e
