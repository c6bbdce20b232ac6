// For how long a use that could begin waits for more layers than it would get.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine_impl.h"
#include "broker/core/sizing.h"

namespace vrambroker::core {
namespace {

// A wait must gain so many times its length.
constexpr double kWaitMargin = 1;

// A use that runs: when it is over, how long its component's next uses would wait for its room, and
// the room.
struct RoomBack {
  double seconds = 0;
  double delays = 0;
  int64_t bytes = 0;
};

// Seconds that the uses of a component lose in all that come before `until` and have no room until
// then: one each `interval` seconds (0: none is known to come), the last one `ran` seconds ago. A
// use loses no more than `most` by beginning at once without.
double Delay(double interval, double ran, double until, double most) {
  const double first = std::max(0.0, interval - ran);
  if (interval <= 0 || first >= until) return 0;
  const double uses = std::floor((until - first) / interval) + 1;
  return uses * std::min(most, until - first - interval * (uses - 1) / 2);
}

}  // namespace

// Whether a use that would get few layers for many passes does better to wait for one that runs and
// is about to end: bytes that come back with it are on their way like others, for grow_wait at
// most.
bool Machine::Impl::WaitsForAnEnd(WaitingUse* w, const Component& c, int layers, int64_t limit,
                                  int64_t bytes) const {
  const Device& device = state.devices.at(state.sessions.at(c.session).device);
  const int most = Most(c, w->spec);
  const double sigma = Sigma(c, device);
  if (c.permanent() || layers >= most || sigma <= 0 || w->spec.passes <= 1) return false;
  if (w->end_until.has_value() && now >= *w->end_until) return false;
  const double own = UseSeconds(c, w->spec.passes, c.held, most, device);
  std::vector<RoomBack> ends;
  for (const auto& [id, other] : state.components) {
    if (!other.use.has_value() || other.pass_seconds() <= 0) continue;
    if (state.sessions.at(other.session).device != device.spec.uuid) continue;
    const double ran = absl::ToDoubleSeconds(now - other.use->began);
    const Bytes back = NeedsCharge(other) + (other.permanent() ? Bytes() : LayerCharge(other));
    const double end = SecondsLeft(other, device, now);
    const double again = absl::ToDoubleSeconds(device.habits.Interval(ComponentName(other)));
    const double all_streamed =
        Sigma(other, device) * (other.use->spec.passes - 1) * other.spec.layers.All().as_double();
    ends.push_back({end, Delay(again, ran, end + own, all_streamed), back.count()});
  }
  std::sort(ends.begin(), ends.end(),
            [](const RoomBack& a, const RoomBack& b) { return a.seconds < b.seconds; });
  double delayed = 0;
  const Sizing sizing(c, w->spec);
  for (const auto& [seconds, delays, back] : ends) {
    if (absl::Seconds(seconds) > config.max_wait) break;
    bytes += back;
    delayed += delays;
    int then = sizing.MostWithin(bytes, layers, most);
    while (then > layers && sizing.Total(then) > limit) --then;
    const Bytes more = c.spec.layers.Of(std::max(then, layers)) - c.spec.layers.Of(layers);
    const double gain = sigma * (w->spec.passes - 1) * more.as_double();
    if (gain <= kWaitMargin * seconds + delayed || gain <= 0) continue;
    if (!w->end_until.has_value()) {
      w->end_until = now + std::min(config.max_wait, absl::Seconds(gain));
    }
    w->blocked_by =
        absl::StrCat("a use that ends in about ",
                     absl::FormatDuration(absl::Milliseconds(static_cast<int64_t>(seconds * 1000))),
                     " and leaves room for ", then, " rather than ", layers, " layers");
    return now < *w->end_until;
  }
  return false;
}

// Whether a use loses so much by sharing the card with others that these do better to wait for its
// end: more than twice the time that it takes with all that it could have.
bool Machine::Impl::BetterAlone(const WaitingUse& w, const Component& c, int layers,
                                int alone) const {
  if (c.permanent() || c.pass_seconds() <= 0) return false;
  const Device& device = state.devices.at(state.sessions.at(c.session).device);
  const double sigma = Sigma(c, device);
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
