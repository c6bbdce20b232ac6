#include "broker/sim/card.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "broker/core/units.h"

namespace vrambroker::sim {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
// Less than this of a phase or of a layer's bytes is none.
constexpr double kNothing = 1e-9;

}  // namespace

Card::Card(const Workload& w)
    : places_(w.components.size()),
      link_rate_(w.device.link_rate),
      room_(w.device.capacity_bytes - w.device.reserve_bytes) {
  for (const Component& c : w.components) {
    layers_.push_back(c.Layers());
    windows_.push_back(c.WindowBytes());
    pass_seconds_.push_back(c.pass_seconds);
    fixed_bytes_.push_back(c.fixed_bytes);
  }
}

void Card::PlaceFixed(int component) {
  const int64_t bytes = std::exchange(fixed_bytes_[static_cast<size_t>(component)], 0);
  fixed_ += bytes;
  room_ -= bytes;
}

void Card::Begin(int component, int request, int granted, int passes, int64_t activation) {
  Place& p = places_[static_cast<size_t>(component)];
  const core::LayerTable& layers = this->layers(component);
  VRAM_CHECK(!p.use.has_value());
  VRAM_CHECK(granted >= 0 && granted <= layers.count());
  const double all = layers.All().as_double();
  const double resident = layers.Of(granted).as_double();
  double there = layers.Of(p.loading ? p.held - 1 : p.held).as_double();
  if (p.loading) there += p.loaded;
  ActiveUse use;
  use.request = request;
  use.granted = granted;
  use.held_before = p.loading ? p.held - 1 : p.held;
  use.passes = passes;
  use.window = granted < layers.count() ? window(component) : 0;
  use.activation = activation;
  use.began = now_;
  use.order = ++last_order_;
  use.streamed[0] = all - std::min(there, resident);
  use.streamed[1] = all - resident;
  p = Place();
  p.held = granted;
  p.use = use;
  shared_ = false;
}

void Card::End(int component) {
  Place& p = places_[static_cast<size_t>(component)];
  VRAM_CHECK(p.use.has_value() && p.use->left <= 0);
  p.use.reset();
  shared_ = false;
}

void Card::Release(int component, int layers) {
  Place& p = places_[static_cast<size_t>(component)];
  VRAM_CHECK(!p.use.has_value() && !p.loading && layers <= p.held);
  p.held = layers;
  p.load_order = 0;
}

void Card::Load(int component, double pace) {
  Place& p = places_[static_cast<size_t>(component)];
  VRAM_CHECK(!p.use.has_value());
  shared_ = false;
  p.pace = pace;
  p.finishing = false;
  if (p.loading) return;
  VRAM_CHECK(p.held < layers(component).count());
  ++p.held;
  p.loading = true;
  p.loaded = 0;
  // Layer after layer of the same load keeps its place.
  if (p.load_order == 0) p.load_order = ++last_order_;
}

void Card::FinishLoad(int component) {
  Place& p = places_[static_cast<size_t>(component)];
  VRAM_CHECK(p.loading);
  p.finishing = true;
  shared_ = false;
}

int64_t Card::Layers(int component) const {
  return layers(component).Of(place(component).held).count();
}

int64_t Card::Needs(int component) const {
  const Place& p = place(component);
  return p.use.has_value() ? p.use->window + p.use->activation : 0;
}

int64_t Card::Occupied() const {
  int64_t bytes = 0;
  for (int c = 0; c < components(); ++c) bytes += Layers(c) + Needs(c);
  return bytes;
}

bool Card::InUse() const {
  return std::any_of(places_.begin(), places_.end(),
                     [](const Place& p) { return p.use.has_value(); });
}

bool Card::Streams(const Place& p) const {
  if (p.use.has_value()) return p.use->left > 0 && p.use->streamed[p.use->phase] > 0;
  return p.loading && p.finishing;
}

// Sets how fast everything goes from now on.
void Card::ShareLink() {
  if (shared_) return;
  shared_ = true;
  int streams = 0;
  for (const Place& p : places_) streams += Streams(p) ? 1 : 0;
  const double share = streams > 0 ? link_rate_ / streams : link_rate_;
  double left = link_rate_;
  std::vector<Place*> loads;
  for (size_t c = 0; c < places_.size(); ++c) {
    Place& p = places_[c];
    if (p.use.has_value()) {
      const double bytes = p.use->streamed[p.use->phase];
      const double seconds = pass_seconds_[c];
      const double sigma = std::max(0.0, 1 / share - seconds / layers_[c].All().as_double());
      const double pass = seconds + sigma * bytes;
      p.use->phase_seconds = p.use->PassesOf(p.use->phase) * pass;
      if (p.use->left > 0 && pass > 0) left -= bytes / pass;
    } else if (p.loading && p.finishing) {
      p.load_rate = share;
      left -= share;
    } else if (p.loading) {
      loads.push_back(&p);
    }
  }
  std::sort(loads.begin(), loads.end(),
            [](const Place* a, const Place* b) { return a->load_order < b->load_order; });
  for (Place* p : loads) {
    p->load_rate = std::max(0.0, p->pace > 0 ? std::min(p->pace, left) : left);
    if (p->load_rate < 1e-9 * link_rate_) p->load_rate = 0;  // what is left by rounding
    left -= p->load_rate;
  }
}

double Card::NextChange() {
  ShareLink();
  double soonest = kForever;
  for (size_t c = 0; c < places_.size(); ++c) {
    const Place& p = places_[c];
    if (p.use.has_value()) {
      soonest = std::min(soonest, p.use->left * p.use->phase_seconds);
    } else if (p.loading && p.load_rate > 0) {
      const double missing =
          layers_[c].Of(p.held).as_double() - layers_[c].Of(p.held - 1).as_double() - p.loaded;
      soonest = std::min(soonest, missing / p.load_rate);
    }
  }
  return std::max(0.0, soonest);
}

Card::Done Card::Advance(double dt) {
  ShareLink();
  now_ += dt;
  Done done;
  for (size_t c = 0; c < places_.size(); ++c) {
    Place& p = places_[c];
    if (p.use.has_value() && p.use->left > 0) {
      const double seconds = p.use->phase_seconds;
      p.use->left -= seconds > 0 ? dt / seconds : p.use->left;
      if (p.use->left * std::max(1.0, seconds) > kNothing) continue;
      shared_ = false;
      p.use->left = 0;
      if (p.use->phase == 0 && p.use->passes > 1) {
        p.use->phase = 1;
        p.use->left = 1;
      } else {
        done.uses.push_back(static_cast<int>(c));
      }
    } else if (p.loading) {
      const double layer =
          layers_[c].Of(p.held).as_double() - layers_[c].Of(p.held - 1).as_double();
      const double more = std::min(layer - p.loaded, dt * p.load_rate);
      p.loaded += more;
      bytes_ahead_ += more;
      if (layer - p.loaded > std::max(1.0, kNothing * p.load_rate)) continue;
      bytes_ahead_ += layer - p.loaded;
      shared_ = false;
      p.loading = p.finishing = false;
      p.loaded = 0;
      done.loaded.push_back(static_cast<int>(c));
    }
  }
  return done;
}

}  // namespace vrambroker::sim
