// A real Prometheus that scrapes a broker of a test.
#ifndef VRAMBROKER_TESTS_E2E_PROMETHEUS_H_
#define VRAMBROKER_TESTS_E2E_PROMETHEUS_H_

#include <string>
#include <vector>

namespace vrambroker::e2e {

// HOST:PORT where a broker with this log serves its metrics. Empty: the log does not say yet.
std::string MetricsAddressIn(const std::string& broker_log);

// HOST:PORT that nobody listens at, for a program that does not say which port it found.
std::string FreeAddress();

struct Scrape {
  // HOST:PORT of the metrics.
  std::string target;
  // YAML of labels that the scrape adds, such as "{cluster: c1}". Empty: none.
  std::string labels = {};
  // Path of a file of rules, evaluated each second. Empty: none.
  std::string rules = {};
};

// Writes the configuration of a Prometheus that scrapes each second, as the job "vram-broker",
// below `folder`, which is to exist; the answer is its command line, serving at `address`.
std::vector<std::string> PrometheusCommand(const std::string& folder, const std::string& address,
                                           const Scrape& scrape);

// The body of its answer to an instant query; characters that a URL may not have are escaped here.
std::string AskPrometheus(const std::string& address, const std::string& query);

}  // namespace vrambroker::e2e

#endif  // VRAMBROKER_TESTS_E2E_PROMETHEUS_H_
