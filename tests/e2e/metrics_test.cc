// Metrics of a real broker with real workers: against its own picture, by a real Prometheus,
// against the table in the README.
#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/prometheus.h"
#include "tests/http_get.h"
#include "tests/run_program.h"

namespace vrambroker::e2e {
namespace {

using testing::HasSubstr;

using Samples = std::map<std::string, double>;

class MetricsTest : public E2eTest {
 protected:
  void StartMeasured() { StartBroker({"--metrics-address=127.0.0.1:0", "--load-ahead=false"}); }

  // HOST:PORT, as the broker's log says.
  std::string Address() {
    std::string address;
    EXPECT_TRUE(Eventually([&] { return !(address = MetricsAddressIn(broker().Log())).empty(); }));
    return address;
  }
  std::string Text() { return BodyOf(HttpGet(Address(), "/metrics")); }
  std::string Of(const std::string& name, const std::string& labels = "") {
    return absl::StrCat("vram_broker_", name, "{UUID=\"", card_uuid(), "\"", labels, "}");
  }
  static std::string Class(const std::string& name) {
    return absl::StrCat(",class=\"", name, "\"");
  }
  static std::string Decided(const std::string& kind, const std::string& reason) {
    return absl::StrCat(",kind=\"", kind, "\",reason=\"", reason, "\"");
  }
  // Of all decisions of a kind.
  static double Sum(const Samples& samples, const std::string& name, const std::string& part) {
    double sum = 0;
    for (const auto& [key, value] : samples) {
      if (absl::StartsWith(key, name) && absl::StrContains(key, part)) sum += value;
    }
    return sum;
  }
};

TEST_F(MetricsTest, WhatIsScrapedAgreesWithThePictureAndTheDecisions) {
  StartMeasured();
  StageWorker& a = StartWorker("a");
  StageWorker& b = StartWorker("b");
  a.Run(Stage());
  a.Run(Stage());
  // 20 MiB: makes room for itself by taking layers from the other.
  b.Run(Stage(6 * kMiB));
  ASSERT_TRUE(Eventually([&] {
    return Device().draining_bytes() == 0 && Device().in_use_bytes() == 0 &&
           Device().external_known();
  }));
  const Samples samples = SamplesIn(Text());
  const auto at = [&](const std::string& key) {
    const auto found = samples.find(key);
    EXPECT_NE(found, samples.end()) << key;
    return found == samples.end() ? -1 : found->second;
  };
  const v1::DevicePicture device = Device();
  EXPECT_EQ(at(Of("device_capacity_bytes")), device.capacity_bytes());
  EXPECT_EQ(at(Of("device_bytes", Class("free"))), device.free_bytes());
  EXPECT_EQ(at(Of("device_bytes", Class("retained"))), device.retained_bytes());
  EXPECT_EQ(at(Of("device_bytes", Class("pooled"))), device.pooled_bytes());
  EXPECT_EQ(at(Of("device_external_known")), 1);
  EXPECT_EQ(at("vram_broker_sessions{state=\"attached\"}"), 2);
  const std::string of_a = ",worker=\"a\",component=\"a\"";
  EXPECT_EQ(at(Of("component_held_bytes", of_a)), Component("a/a").held_layers() * kMiB);
  EXPECT_EQ(at(Of("component_in_use", of_a)), 0);

  EXPECT_EQ(at(Of("uses_begun_total")), 3);
  EXPECT_EQ(at(Of("uses_ended_total")), 3);
  EXPECT_EQ(at(Of("wait_seconds_count")), 3);
  EXPECT_EQ(at(Of("loaded_bytes_total")), 16 * kMiB);
  EXPECT_EQ(at(Of("reused_bytes_total")), 8 * kMiB);
  EXPECT_GT(at(Of("stall_avoided_seconds_total")), 0);
  EXPECT_GT(at(Of("driver_readings_total", ",result=\"ok\"")), 0);
  for (const auto& [name, kind] : {std::pair("grant", v1::DECISION_KIND_GRANT),
                                   {"retention", v1::DECISION_KIND_RETENTION},
                                   {"revocation", v1::DECISION_KIND_REVOCATION}}) {
    EXPECT_EQ(Sum(samples, "vram_broker_decisions_total", absl::StrCat("kind=\"", name, "\"")),
              static_cast<double>(Decisions(kind).size()))
        << name;
  }
  EXPECT_EQ(at(Of("revoked_bytes_total")),
            Sum(samples, "vram_broker_decision_bytes_total", "kind=\"revocation\""));
  EXPECT_EQ(at(Of("evicted_bytes_total")), (8 - Component("a/a").held_layers()) * kMiB);
  EXPECT_GE(at(Of("revocation_seconds_count")), 1);
}

TEST_F(MetricsTest, PromtoolFindsNothingToSayAgainstTheText) {
  StartMeasured();
  StartWorker("a").Run(Stage());
  std::string ours;
  for (const auto& line : absl::StrSplit(Text(), '\n')) {
    if (absl::StrContains(line, "vram_broker_")) absl::StrAppend(&ours, line, "\n");
  }
  const std::string path = folder() + "/metrics.txt";
  std::ofstream(path) << ours;
  const ProgramEnd end = RunProgram({"sh", "-c", absl::StrCat("promtool check metrics <", path)});
  EXPECT_EQ(end.status, 0) << end.output;
  EXPECT_EQ(end.output, "");
}

// Names in backquotes in the first column of a table.
std::set<std::string> NamesInReadme() {
  std::set<std::string> names;
  std::ifstream file(README_PATH);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "| `vram_broker_")) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, '`');
    names.insert(parts[1]);
  }
  return names;
}

TEST_F(MetricsTest, TheReadmeListsWhatABrokerExposes) {
  StartMeasured();
  std::set<std::string> names;
  for (const auto& line : absl::StrSplit(Text(), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() > 2 && words[1] == "TYPE" && absl::StartsWith(words[2], "vram_broker_")) {
      names.insert(words[2]);
    }
  }
  EXPECT_GT(names.size(), 20u);
  EXPECT_EQ(names, NamesInReadme());
}

TEST_F(MetricsTest, ARealPrometheusScrapesIt) {
  StartMeasured();
  StartWorker("a").Run(Stage());
  const std::string address = FreeAddress();
  const std::unique_ptr<Process> prometheus =
      StartProgram("prometheus", PrometheusCommand(folder(), address, {Address()}));
  std::string answer;
  EXPECT_TRUE(Eventually(
      [&] {
        answer = AskPrometheus(address, "vram_broker_device_bytes{class=\"retained\"}");
        return absl::StrContains(answer, absl::StrCat("\"", 8 * kMiB, "\""));
      },
      absl::Seconds(40)))
      << answer << prometheus->Log();
  EXPECT_THAT(answer, HasSubstr(absl::StrCat("\"UUID\":\"", card_uuid(), "\"")));
  EXPECT_THAT(AskPrometheus(address, "up{job=\"vram-broker\"}"), HasSubstr(",\"1\"]"));
  EXPECT_THAT(AskPrometheus(address, "vram_broker_uses_begun_total"), HasSubstr(",\"1\"]"));
  EXPECT_TRUE(prometheus->Terminate(absl::Seconds(20)).ok());
}

}  // namespace
}  // namespace vrambroker::e2e
