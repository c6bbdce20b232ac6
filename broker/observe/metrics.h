// What Prometheus asks a broker for, over HTTP.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "broker/observe/metric_families.h"

namespace vrambroker::observe {

// Each scrape takes one look between two decisions, which copies a picture and the counts; the text
// is made from these copies, while decisions go on.
class Metrics : public prometheus::Collectable {
 public:
  using Take = std::function<void(Observation)>;
  // Calls its argument once, soon, on any thread, with what is so at one moment between two
  // decisions. It may do so before it returns, or never where the broker stops.
  using Ask = std::function<void(Take)>;

  // A scrape waits this long for its look; then it has no sample of ours.
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  explicit Metrics(Ask ask) : ask_(std::move(ask)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Ask ask_;
};

// Serves GET /metrics, and 405 to other methods; one scrape at a time, a client that does not ask
// is dropped after half a second.
class MetricsEndpoint {
 public:
  // `address`: as ParseHostAndPort takes it, else INVALID_ARGUMENT. FAILED_PRECONDITION where it
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Open(
      const std::string& address, std::shared_ptr<prometheus::Collectable> metrics);

  // Ends within a second.
  ~MetricsEndpoint();

  // HOST:PORT as it is reached.
  const std::string& address() const { return address_; }

 private:
  MetricsEndpoint(std::shared_ptr<prometheus::Collectable> metrics,
                  std::unique_ptr<prometheus::Exposer> exposer, std::string address)
      : metrics_(std::move(metrics)), exposer_(std::move(exposer)), address_(std::move(address)) {}

  const std::shared_ptr<prometheus::Collectable> metrics_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  const std::string address_;
};

}  // namespace vrambroker::observe
