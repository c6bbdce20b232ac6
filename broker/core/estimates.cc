#include "broker/core/estimates.h"

#include <algorithm>
#include <cmath>

namespace vrambroker::core {
namespace {

// More than the use can have taken, by more than clocks differ.
bool Within(double part, double whole) { return whole <= 0 || part <= whole * 1.05 + 1e-3; }

bool Between(double value, double least, double most) {
  return std::isfinite(value) && value >= least && value <= most;
}

std::optional<double> RateOf(const Measurements& m) {
  const double bytes = m.bytes_loaded.as_double();
  if (bytes < Estimates::kLeastLoaded) return std::nullopt;
  double busy = 0;
  if (m.copy_seconds > 0) {
    if (!Within(m.copy_seconds, m.seconds)) return std::nullopt;
    busy = m.copy_seconds;
  } else if (m.stall_seconds > 0 && m.compute_seconds >= 0 &&
             m.compute_seconds <= m.stall_seconds / 8) {
    busy = m.stall_seconds + m.compute_seconds / 2;
  }
  const double rate = bytes / busy;
  if (!Between(rate, Estimates::kLeastRate, Estimates::kMostRate)) return std::nullopt;
  return rate;
}

}  // namespace

void Samples::Add(double value) {
  VRAM_CHECK(std::isfinite(value));
  values_[static_cast<size_t>(next_)] = value;
  next_ = (next_ + 1) % kMost;
  count_ = std::min(count_ + 1, kMost);
}

double Samples::Median(double start, bool upper) const {
  std::array<double, kMost + 1> sorted{};
  int n = count_;
  std::copy_n(values_.begin(), n, sorted.begin());
  if (!settled() && start > 0) sorted[static_cast<size_t>(n++)] = start;
  if (n == 0) return 0;
  std::sort(sorted.begin(), sorted.begin() + n);
  return sorted[static_cast<size_t>(upper ? n / 2 : (n - 1) / 2)];
}

double Samples::Most() const {
  return count_ == 0 ? 0 : *std::max_element(values_.begin(), values_.begin() + count_);
}

std::optional<double> Estimates::Learn(const Measurements& m, Bytes capacity) {
  if (m.warm_up) return std::nullopt;
  bool learned = m.passes > 0 && m.peak_activation > Bytes() && m.peak_activation <= capacity;
  if (m.passes > 0 && Within(m.compute_seconds, m.seconds)) {
    const double pass = m.compute_seconds / m.passes;
    if (pass > 0 && Between(pass, 0, kMostSeconds)) {
      pass_seconds_.Add(pass);
      learned = true;
    }
  }
  const std::optional<double> rate = RateOf(m);
  if (rate.has_value()) {
    link_rate_.Add(*rate);
    learned = true;
  }
  if (m.bytes_loaded.count() >= kLeastLoaded && Between(m.stall_seconds, 0, kMostSeconds) &&
      Within(m.stall_seconds, m.seconds)) {
    stall_per_byte_.Add(m.stall_seconds / m.bytes_loaded.as_double());
  }
  uses_ += learned ? 1 : 0;
  return rate;
}

void Estimates::LearnActivation(const ActivationAsk& ask, const Measurements& m, Bytes capacity) {
  if (m.warm_up || m.passes <= 0) return;
  if (m.peak_activation == Bytes() || m.peak_activation > capacity) return;
  Shape& shape = FindOrAdd(ask);
  shape.used = ++last_used_;
  shape.peaks.Add(m.peak_activation.as_double());
}

const Estimates::Shape* Estimates::Find(const ActivationAsk& ask) const {
  for (const Shape& shape : shapes_) {
    if (shape.name != ask.shape) continue;
    if (!ask.shape.empty() || shape.declared == ask.declared) return &shape;
  }
  return nullptr;
}

Estimates::Shape& Estimates::FindOrAdd(const ActivationAsk& ask) {
  if (const Shape* found = Find(ask); found != nullptr) return const_cast<Shape&>(*found);
  if (shapes() >= kMaxShapes) {
    shapes_.erase(std::min_element(shapes_.begin(), shapes_.end(),
                                   [](const Shape& a, const Shape& b) { return a.used < b.used; }));
  }
  shapes_.push_back({ask.shape, ask.declared, {}, 0});
  return shapes_.back();
}

Bytes Estimates::ActivationNeed(const ActivationAsk& ask) const {
  const Shape* shape = ask.exact ? nullptr : Find(ask);
  if (shape == nullptr) return ask.declared;
  const double peak = shape->peaks.Most();
  const Bytes with_margin(static_cast<int64_t>(std::ceil(peak * kMargin)));
  if (peak > ask.declared.as_double()) return with_margin;
  return shape->peaks.settled() ? std::min(ask.declared, with_margin) : ask.declared;
}

Bytes Estimates::ActivationPeak() const {
  double most = 0;
  for (const Shape& shape : shapes_) most = std::max(most, shape.peaks.Most());
  return Bytes(static_cast<int64_t>(most));
}

std::vector<std::pair<int, int>> Regret::Note(int held, absl::Time now, absl::Duration residency) {
  std::erase_if(released_, [&](const Released& r) { return now - r.at >= residency; });
  std::vector<std::pair<int, int>> back;
  if (held < held_) released_.push_back({held, held_, now});
  if (held > held_) came_ = now;
  while (!released_.empty() && released_.back().first < held) {
    Released& lowest = released_.back();
    back.emplace_back(lowest.first, std::min(lowest.end, held));
    lowest.first = back.back().second;
    if (lowest.first == lowest.end) released_.pop_back();
  }
  held_ = held;
  return back;
}

}  // namespace vrambroker::core
