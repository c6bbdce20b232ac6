// Writing metric families, one sample after another.
#pragma once

#include <prometheus/metric_family.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "broker/observe/tally.h"

namespace vrambroker::observe {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

class FamilyBuilder {
 public:
  FamilyBuilder(prometheus::MetricType type, std::string name, std::string help) {
    family_.type = type;
    family_.name = std::move(name);
    family_.help = std::move(help);
  }

  void Add(MetricLabels labels, double value) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    (family_.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        value;
    family_.metric.push_back(std::move(metric));
  }

  template <typename Bounds>
  void Add(MetricLabels labels, const Distribution<Bounds>& distribution) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    uint64_t so_far = 0;
    for (size_t i = 0; i < Distribution<Bounds>::kBounds; ++i) {
      so_far += distribution.counts()[i];
      metric.histogram.bucket.push_back({so_far, Bounds::kUpper[i]});
    }
    metric.histogram.sample_count = so_far + distribution.counts().back();
    metric.histogram.sample_sum = distribution.sum();
    family_.metric.push_back(std::move(metric));
  }

  prometheus::MetricFamily Take() && { return std::move(family_); }

 private:
  prometheus::MetricFamily family_;
};

// The families of one kind of thing, in the order of their making.
class Families {
 public:
  // The reference is good until the next call.
  FamilyBuilder& Gauge(const char* name, const char* help) {
    return Make(prometheus::MetricType::Gauge, name, help);
  }
  FamilyBuilder& Counter(const char* name, const char* help) {
    return Make(prometheus::MetricType::Counter, name, help);
  }
  FamilyBuilder& Histogram(const char* name, const char* help) {
    return Make(prometheus::MetricType::Histogram, name, help);
  }
  std::vector<prometheus::MetricFamily> Take() && {
    std::vector<prometheus::MetricFamily> families;
    for (FamilyBuilder& builder : builders_) families.push_back(std::move(builder).Take());
    return families;
  }

 private:
  FamilyBuilder& Make(prometheus::MetricType type, const char* name, const char* help) {
    builders_.emplace_back(type, std::string("vram_broker_") + name, help);
    return builders_.back();
  }

  std::vector<FamilyBuilder> builders_;
};

}  // namespace vrambroker::observe
