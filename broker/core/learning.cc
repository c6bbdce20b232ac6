// What the ends of uses teach, and what came back too soon.
#include <algorithm>

#include "broker/core/machine_impl.h"

namespace vrambroker::core {

double LinkRate(const Component& c, const Device& device) {
  double start = c.spec.link_rate > 0 ? c.spec.link_rate : device.spec.link_rate;
  if (const auto tier = device.link_rates.find(c.spec.host_tier);
      tier != device.link_rates.end() && tier->second.settled()) {
    start = tier->second.UpperMedian(0);
  }
  return c.estimates.LinkRate(start);
}

double Sigma(const Component& c, const Device& device) {
  return ExposedSecondsPerByte(c.pass_seconds(), c.spec.layers.All(), LinkRate(c, device));
}

double UseSeconds(const Component& c, int passes, int there, int resident, const Device& device) {
  if (c.pass_seconds() <= 0) return 0;
  const double compute = c.pass_seconds() * passes;
  if (c.permanent()) return compute;
  const LayerTable& layers = c.spec.layers;
  const Bytes first = layers.All() - layers.Of(std::min(there, resident));
  const Bytes later = layers.All() - layers.Of(resident);
  return compute + Sigma(c, device) * (first.as_double() + (passes - 1) * later.as_double());
}

double SecondsLeft(const Component& c, const Device& device, absl::Time now) {
  const RunningUse& use = *c.use;
  const double all = UseSeconds(c, use.spec.passes, use.held_at_begin, use.granted, device);
  return std::max(0.0, all - absl::ToDoubleSeconds(now - c.use->began));
}

void Machine::Impl::Learn(const Measurements& measured, Component* c) {
  VRAM_CHECK(c->use.has_value());
  Device& device = DeviceOf(SessionOf(*c));
  const std::optional<double> rate = c->estimates.Learn(measured, device.spec.capacity);
  if (rate.has_value() && c->spec.host_tier != HostTier::kUnknown) {
    device.link_rates[c->spec.host_tier].Add(*rate);
  }
  if (!c->use->ask.has_value()) return;
  c->estimates.LearnActivation(*c->use->ask, measured, device.spec.capacity);
  for (auto& [order, w] : state.waiting) {
    if (w.component == c->id) ChargeWhatIsKnown(&w);
  }
}

void Machine::Impl::ChargeWhatIsKnown(WaitingUse* w) {
  w->spec.activation = state.components.at(w->component).estimates.ActivationNeed(w->ask);
}

void Machine::Impl::NoteHeld(int layers, Component* c) {
  for (const auto& [first, end] : c->regret.Note(layers, now, config.minimum_residency)) {
    c->regret_bytes += c->spec.layers.Of(end) - c->spec.layers.Of(first);
  }
}

}  // namespace vrambroker::core
