// A use, from its grant to its end.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/worker_process.h"

namespace vrambroker::simulation {

void WorkerProcess::Run(Component* c, client::Ticket ticket) {
  c->locked = true;
  const Use& use = c->uses.at(ticket);
  if (c->layers > use.layers) {
    Free(c->before[c->layers] - c->before[use.layers]);
    c->layers = use.layers;
  }
  // Some uses end without having loaded all they may.
  const bool short_of = world_.random.Chance(0.1);
  const int layers =
      short_of ? static_cast<int>(world_.random.Between(c->layers, use.layers)) : use.layers;
  Later(Short(), [this, c, ticket, layers] {
    const Use& running = c->uses.at(ticket);
    Allocate(running.window);
    c->needs = running.window;
    Later(Short(), [this, c, ticket, layers] {
      Allocate(c->uses.at(ticket).request.activation_bytes());
      c->needs += c->uses.at(ticket).request.activation_bytes();
      LoadForUse(c, ticket, layers);
    });
  });
}

void WorkerProcess::LoadForUse(Component* c, client::Ticket ticket, int layers) {
  if (c->layers < layers) {
    Allocate(c->before[c->layers + 1] - c->before[c->layers]);
    ++c->layers;
    return Later(Short(), [this, c, ticket, layers] { LoadForUse(c, ticket, layers); });
  }
  MaybeNest(c, ticket);
  const absl::Duration runs = world_.random.Delay(absl::Milliseconds(1), absl::Milliseconds(400));
  Later(runs, [this, c, ticket] { End(c, ticket); });
}

// Another use, asked for while this one is held.
void WorkerProcess::MaybeNest(Component* c, client::Ticket ticket) {
  if (!world_.busy || !world_.random.Chance(world_.scenario.nested)) return;
  Use& outer = c->uses.at(ticket);
  if (outer.id == 0) return;
  for (auto& [name, other] : components_) {
    if (&other == c || other.uses.size() >= 2 || session().refused().contains(name)) continue;
    Use inner;
    inner.request.set_passes(1);
    inner.request.set_activation_bytes(other.before.back() / other.count());
    *inner.request.mutable_held_use_ids() = outer.request.held_use_ids();
    inner.request.add_held_use_ids(outer.id);
    outer.inner.push_back(last_ticket_ + 1);
    return Ask(&other, std::move(inner));
  }
}

// What a use says it measured: what it took of activation, and times that may be anything.
v1::UseMeasurements WorkerProcess::Measured(const Component& c, const Use& use) {
  v1::UseMeasurements measured;
  measured.set_passes(use.request.passes());
  measured.set_warm_up(world_.random.Chance(0.1));
  if (world_.random.Chance(0.3)) return measured;
  measured.set_peak_activation_bytes(use.request.activation_bytes());
  measured.set_bytes_loaded(c.before[use.layers]);
  measured.set_compute_seconds(1e-3 * static_cast<double>(world_.random.Between(0, 5000)));
  measured.set_copy_seconds(1e-3 * static_cast<double>(world_.random.Between(0, 5000)));
  measured.set_stall_seconds(1e-3 * static_cast<double>(world_.random.Between(0, 5000)));
  return measured;
}

void WorkerProcess::End(Component* c, client::Ticket ticket) {
  Use& use = c->uses.at(ticket);
  for (client::Ticket inner : use.inner) {
    if (Of(inner) == nullptr) continue;
    return Later(absl::Milliseconds(20), [this, c, ticket] { End(c, ticket); });
  }
  Free(std::exchange(c->needs, 0));
  // What a use has given up of its grant goes to the device: the grant counts until its end is
  // answered and done with.
  if (c->layers < use.layers) pool_ = 0;
  use.ending = true;
  Step(client::UseOver{ticket, c->layers, Measured(*c, use), pool_});
  if (!world_.Fault(world_.scenario.faults.end_given_up)) return;
  Later(world_.random.Delay(absl::Duration(), absl::Seconds(1)), [this, c, ticket] {
    if (c->uses.contains(ticket)) Step(client::EndGivenUp{ticket});
  });
}

void WorkerProcess::Do(const client::UseClosed& e) {
  Component* c = Of(e.ticket);
  if (c == nullptr) return;
  const int keep = std::min(e.keep, c->layers);
  Later(Short(), [this, c, ticket = e.ticket, keep] {
    Free(c->before[c->layers] - c->before[keep]);
    c->layers = keep;
    TellHeld(*c, keep, false);
    Forget(c, ticket);
    Unlock(c);
  });
}

}  // namespace vrambroker::simulation
