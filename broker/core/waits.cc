// For how long a use that could begin waits for more layers than it would get.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"
#include "broker/core/sizing.h"

namespace vrambroker::core {
namespace {

// A wait must gain so many times its length.
constexpr double kWaitMargin = 2;

}  // namespace

// Whether a use that would get few layers for many passes does better to wait for one that runs and
// is about to end: bytes that come back with it are on their way like others, for grow_wait at
// most.
bool Machine::Impl::WaitsForAnEnd(WaitingUse* w, const Component& c, int layers, int64_t limit,
                                  int64_t bytes) const {
  const Device& device = state.devices.at(state.sessions.at(c.session).device);
  const int most = Most(c, w->spec);
  const double sigma =
      ExposedSecondsPerByte(c.pass_seconds(), c.spec.layers.All(), LinkRate(c, device));
  if (c.permanent() || layers >= most || sigma <= 0 || w->spec.passes <= 1) return false;
  if (w->grow_until.has_value() && now >= *w->grow_until) return false;
  std::vector<std::pair<double, int64_t>> ends;  // seconds from now, bytes
  for (const auto& [id, other] : state.components) {
    if (!other.use.has_value() || other.pass_seconds() <= 0) continue;
    if (state.sessions.at(other.session).device != device.spec.uuid) continue;
    const double ran = absl::ToDoubleSeconds(now - other.use->began);
    const Bytes back = NeedsCharge(other) + (other.permanent() ? Bytes() : LayerCharge(other));
    ends.emplace_back(std::max(0.0, other.pass_seconds() * other.use->spec.passes - ran),
                      back.count());
  }
  std::sort(ends.begin(), ends.end());
  const Sizing sizing(c, w->spec);
  for (const auto& [seconds, back] : ends) {
    if (absl::Seconds(seconds) > config.grow_wait) break;
    bytes += back;
    int then = sizing.MostWithin(bytes, layers, most);
    while (then > layers && sizing.Total(then) > limit) --then;
    const Bytes more = c.spec.layers.Of(std::max(then, layers)) - c.spec.layers.Of(layers);
    const double gain = sigma * (w->spec.passes - 1) * more.as_double();
    if (gain <= kWaitMargin * seconds || gain <= 0) continue;
    if (!w->grow_until.has_value()) {
      w->grow_until = now + std::min(config.grow_wait, absl::Seconds(gain));
    }
    w->blocked_by =
        absl::StrCat("a use that ends in about ",
                     absl::FormatDuration(absl::Milliseconds(static_cast<int64_t>(seconds * 1000))),
                     " and leaves room for ", then, " rather than ", layers, " layers");
    return now < *w->grow_until;
  }
  return false;
}

// Whether a use loses so much by sharing the card with others that these do better to wait for its
// end: more than twice the time that it takes with all that it could have.
bool Machine::Impl::BetterAlone(const WaitingUse& w, const Component& c, int layers,
                                int alone) const {
  if (c.permanent() || c.pass_seconds() <= 0) return false;
  const Device& device = state.devices.at(state.sessions.at(c.session).device);
  const double sigma =
      ExposedSecondsPerByte(c.pass_seconds(), c.spec.layers.All(), LinkRate(c, device));
  const Bytes more = c.spec.layers.Of(alone) - c.spec.layers.Of(layers);
  return sigma * (w.spec.passes - 1) * more.as_double() >
         kWaitMargin * w.spec.passes * c.pass_seconds();
}

// A use waits for more layers than it could have at once only as long as they gain, and grow_wait
// at most.
bool Machine::Impl::GrowWaitIsOver(WaitingUse* w, const Component& c, double sigma, int layers,
                                   int at_once) const {
  if (!w->grow_until.has_value()) {
    const Bytes missing = c.spec.layers.Of(layers) - c.spec.layers.Of(at_once);
    const double gain = sigma * missing.as_double() * std::max(1, w->spec.passes - 1);
    w->grow_until = now + std::min(config.grow_wait, absl::Seconds(gain));
  }
  return now >= *w->grow_until;
}

}  // namespace vrambroker::core
