#include "tests/e2e/prometheus.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/http_get.h"

namespace vrambroker::e2e {

std::string MetricsAddressIn(const std::string& broker_log) {
  const std::string mark = " metrics=";
  const size_t found = broker_log.find(mark);
  if (found == std::string::npos) return "";
  const size_t begin = found + mark.size();
  return broker_log.substr(begin, broker_log.find_first_of(" \n", begin) - begin);
}

std::string FreeAddress() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size), 0);
  close(fd);
  return absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
}

std::vector<std::string> PrometheusCommand(const std::string& folder, const std::string& address,
                                           const Scrape& scrape) {
  std::ofstream file(folder + "/prometheus.yml");
  file << "global: {scrape_interval: 1s, evaluation_interval: 1s}\n";
  if (!scrape.rules.empty()) file << "rule_files: ['" << scrape.rules << "']\n";
  file << "scrape_configs:\n"
          "  - job_name: vram-broker\n"
          "    static_configs:\n"
          "      - targets: ['"
       << scrape.target << "']\n";
  if (!scrape.labels.empty()) file << "        labels: " << scrape.labels << "\n";
  return {"/usr/bin/prometheus", "--config.file=" + folder + "/prometheus.yml",
          "--storage.tsdb.path=" + folder + "/tsdb", "--web.listen-address=" + address};
}

std::string AskPrometheus(const std::string& address, const std::string& query) {
  std::string escaped;
  for (const char c : query) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return BodyOf(HttpGet(address, "/api/v1/query?query=" + escaped));
}

}  // namespace vrambroker::e2e
