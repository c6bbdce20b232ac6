#include "tests/sim/worker_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/server/convert_attach.h"

namespace vrambroker::simulation {

client::SessionOptions OptionsOf(const WorkerPlan& plan, core::Process process) {
  client::SessionOptions options;
  options.worker = plan.name;
  options.pid = process.pid;
  options.start_time_ticks = process.start_time;
  options.host_memory.set_limit_bytes(plan.host_limit);
  options.host_memory.set_domain(plan.host_domain);
  for (const ComponentPlan& c : plan.components) {
    v1::Component component;
    component.set_name(c.name);
    component.set_device_uuid(plan.device);
    for (int64_t bytes : c.layers) {
      v1::LayerRun* run = component.add_layer_runs();
      run->set_count(1);
      run->set_layer_bytes(bytes);
    }
    component.set_fixed_bytes(c.fixed);
    component.set_window_bytes(c.window);
    component.set_lifetime(c.permanent ? v1::LIFETIME_PERMANENT : v1::LIFETIME_FORWARD);
    component.set_pass_seconds(c.pass_seconds);
    component.set_pin_host_bytes(c.pin_host);
    options.components.push_back(component);
  }
  return options;
}

WorkerProcess::WorkerProcess(Surroundings* world, const WorkerPlan& plan, core::Process process)
    : Peer(world, OptionsOf(plan, process)), plan_(plan) {
  for (const ComponentPlan& p : plan.components) {
    Component c;
    c.plan = p;
    c.before = {0};
    for (int64_t bytes : p.layers) c.before.push_back(c.before.back() + bytes);
    components_.emplace(p.name, std::move(c));
  }
}

int64_t WorkerProcess::Physical() const {
  int64_t sum = pool_ + hidden_;
  for (const auto& [name, c] : components_) sum += c.before[c.layers] + c.fixed + c.needs;
  return sum;
}

int64_t WorkerProcess::PinnedForCertain() const {
  int64_t sum = 0;
  for (const auto& [name, c] : components_) sum += c.pinned ? c.plan.pin_host : 0;
  return sum;
}

int64_t WorkerProcess::PinnedHost() const {
  int64_t sum = PinnedForCertain();
  for (const auto& [name, c] : components_) sum += c.pinning ? c.plan.pin_host : 0;
  return sum;
}

bool WorkerProcess::PinRefused() const {
  return std::any_of(components_.begin(), components_.end(),
                     [](const auto& entry) { return entry.second.pin_refused; });
}

int WorkerProcess::UsesOpen() const {
  size_t open = 0;
  for (const auto& [name, c] : components_) open += c.uses.size();
  return static_cast<int>(open);
}

std::string WorkerProcess::Describe() const {
  std::string text;
  for (const auto& [name, c] : components_) {
    absl::StrAppend(&text, ", ", name, c.locked ? " locked" : "", " holds ", c.layers);
    for (const auto& [ticket, use] : c.uses) {
      absl::StrAppend(&text, ", ticket ", ticket,
                      use.ending    ? " ends"
                      : use.granted ? " runs"
                                    : " waits",
                      " with ", use.layers);
      for (client::Ticket inner : use.inner) absl::StrAppend(&text, " around ", inner);
    }
  }
  return text;
}

void WorkerProcess::Allocate(int64_t bytes) { pool_ -= std::min(pool_, bytes); }

void WorkerProcess::Free(int64_t bytes) {
  if (plan_.caching) pool_ += bytes;
}

void WorkerProcess::TellHeld(const Component& c, int held, bool copying) {
  Step(client::HeldChanged{c.plan.name, held, copying, pool_});
}

void WorkerProcess::Kill() {
  Peer::Kill();
  // Runs that waited for it go on without.
  for (auto& [name, c] : components_) {
    for (auto& [ticket, use] : c.uses) {
      if (use.over) world_.time.After(absl::ZeroDuration(), use.over);
    }
    c.uses.clear();
  }
}

void WorkerProcess::Vanish() {
  for (auto& [name, c] : components_) {
    c.layers = 0;
    c.fixed = c.needs = 0;
  }
  pool_ = hidden_ = 0;
}

// ---- Asking ----

void WorkerProcess::Ask() {
  auto it = components_.begin();
  std::advance(it, world_.random.Below(static_cast<int>(components_.size())));
  Component& c = it->second;
  if (c.uses.size() >= 2 || session().refused().contains(c.plan.name)) return;
  Random& random = world_.random;
  Use use;
  use.request.set_passes(random.Chance(0.5) ? 1 : static_cast<int>(random.Between(1, 40)));
  const int64_t size = c.before.back() / c.count();
  use.request.set_activation_bytes(size * random.Between(0, 400) / 100);
  if (random.Chance(0.2)) use.request.set_window_bytes(size * random.Between(1, 3));
  if (random.Chance(0.2) && !c.plan.permanent) {
    const int most = static_cast<int>(random.Between(1, c.count()));
    use.request.set_max_resident_layers(most);
    use.request.set_min_resident_layers(random.Below(most + 1));
  } else if (random.Chance(0.2)) {
    use.request.set_min_resident_layers(random.Below(c.count() + 1));
  }
  if (random.Chance(0.3)) use.request.set_priority(static_cast<int>(random.Between(-3, 3)));
  if (random.Chance(world_.scenario.infeasible))
    use.request.set_activation_bytes(int64_t{30} << 30);
  Ask(&c, std::move(use));
}

void WorkerProcess::Ask(const std::string& component, const Wanted& wanted) {
  const auto it = components_.find(component);
  if (!alive() || it == components_.end()) {
    if (wanted.over) world_.time.After(absl::ZeroDuration(), wanted.over);
    return;
  }
  if (stopped()) {
    return world_.time.After(absl::Milliseconds(50),
                             [this, component, wanted] { Ask(component, wanted); });
  }
  Use use;
  use.request.set_run_id(wanted.run);
  use.request.set_stage(wanted.stage);
  use.request.set_passes(wanted.passes);
  use.request.set_activation_bytes(wanted.activation);
  use.over = wanted.over;
  if (wanted.group.empty()) return Ask(&it->second, std::move(use));
  use.request.mutable_shard_group()->set_name(wanted.group);
  use.request.mutable_shard_group()->set_size(wanted.members);
  use.request.set_min_resident_layers(wanted.min_resident);
  use.request.set_max_resident_layers(wanted.max_resident);
  Ask(&it->second, std::move(use));
  // Others of the group may never ask.
  GiveUpAfter(&it->second, last_ticket_, world_.random.Delay(absl::Seconds(1), absl::Seconds(30)));
}

void WorkerProcess::Ask(Component* c, Use use) {
  use.ticket = ++last_ticket_;
  use.request.set_component(c->plan.name);
  const client::Ticket ticket = use.ticket;
  const client::UseAsked asked{ticket, use.request};
  c->uses.emplace(ticket, std::move(use));
  Step(asked);
  if (!world_.Fault(world_.scenario.faults.give_up)) return;
  GiveUpAfter(c, ticket, world_.random.Delay(absl::Duration(), absl::Seconds(1)));
}

void WorkerProcess::GiveUpAfter(Component* c, client::Ticket ticket, absl::Duration patience) {
  Later(patience, [this, c, ticket] {
    const auto it = c->uses.find(ticket);
    if (it == c->uses.end() || it->second.granted) return;
    Forget(c, ticket);
    Step(client::UseGivenUp{ticket});
  });
}

WorkerProcess::Component* WorkerProcess::Of(client::Ticket ticket) {
  for (auto& [name, c] : components_) {
    if (c.uses.contains(ticket)) return &c;
  }
  return nullptr;
}

void WorkerProcess::Forget(Component* c, client::Ticket ticket) {
  const auto node = c->uses.extract(ticket);
  if (node.empty()) return;
  if (node.mapped().over) world_.time.After(absl::ZeroDuration(), node.mapped().over);
}

void WorkerProcess::Do(const client::UseRefused& e) {
  if (Component* c = Of(e.ticket); c != nullptr) Forget(c, e.ticket);
}

void WorkerProcess::Do(const client::UseGranted& e) {
  Component* c = Of(e.ticket);
  if (c == nullptr) return;
  Use& use = c->uses.at(e.ticket);
  use.granted = true;
  use.layers = e.resident_layers;
  use.id = e.use_id;
  const int64_t asked = use.request.window_bytes();
  use.window = use.layers == c->count() ? 0 : asked > 0 ? asked : c->plan.window;
  Pump(c->plan.name);
}

// ---- Between uses ----

void WorkerProcess::Do(const client::PlaceFixed& e) {
  components_.at(e.component).to_place = true;
  Pump(e.component);
}

void WorkerProcess::Do(const client::TrimPool&) {
  Later(Short(), [this] {
    // After what is about to go to it.
    for (const auto& [name, c] : components_) {
      if (session().releasing(name)) return Do(client::TrimPool{});
    }
    pool_ = 0;
    Step(client::PoolChanged{0, PinnedForCertain()});
  });
}

void WorkerProcess::Unlock(Component* c) {
  c->locked = false;
  Pump(c->plan.name);
}

void WorkerProcess::Pump(const std::string& name) {
  Component& c = components_.at(name);
  if (!alive() || c.locked) return;
  if (c.to_place) {
    c.to_place = false;
    return Place(&c);
  }
  for (auto& [ticket, use] : c.uses) {
    if (use.granted && !use.ending) return Run(&c, ticket);
  }
  const client::Work work = session().NextWork(name);
  if (work.kind == client::Work::Kind::kRelease) Release(&c, work.layers);
  if (work.kind == client::Work::Kind::kPin) Pin(&c);
  if (work.kind == client::Work::Kind::kLoad) Load(&c);
}

void WorkerProcess::Place(Component* c) {
  c->locked = true;
  Later(Short(), [this, c] {
    c->fixed = c->plan.fixed / 2;
    Later(Short(), [this, c] {
      Allocate(c->plan.fixed);
      c->fixed = c->plan.fixed;
      if (c->plan.permanent) {
        Allocate(c->before.back());
        c->layers = c->count();
        TellHeld(*c, c->layers, false);
      }
      Step(client::FixedPlaced{c->plan.name});
      Unlock(c);
    });
  });
}

void WorkerProcess::Release(Component* c, int layers) {
  c->locked = true;
  Later(Short() + Short(), [this, c, layers] {
    const int64_t bytes = c->before[std::max(c->layers, layers)] - c->before[layers];
    c->layers = std::min(c->layers, layers);
    if (plan_.liar && world_.Fault(world_.scenario.faults.lie)) {
      world_.note(absl::StrCat(name(), " lies about ", bytes, " bytes"));
      hidden_ += bytes;
    } else {
      Free(bytes);
    }
    TellHeld(*c, c->layers, false);
    Unlock(c);
  });
}

void WorkerProcess::Load(Component* c) {
  c->locked = true;
  TellHeld(*c, c->layers + 1, true);
  Allocate(c->before[c->layers + 1] - c->before[c->layers]);
  ++c->layers;
  Later(Short(), [this, c] {
    TellHeld(*c, c->layers, false);
    Unlock(c);
  });
}

void WorkerProcess::Pin(Component* c) {
  Step(client::PinBegins{c->plan.name});
  if (!session().pinning(c->plan.name)) return;
  c->locked = true;
  c->pinning = true;
  Later(Short(), [this, c] {
    c->pinning = false;
    c->pin_refused = world_.Fault(world_.scenario.faults.refuse_pin);
    c->pinned = !c->pin_refused;
    absl::Status status;
    if (c->pin_refused) status = absl::ResourceExhaustedError("no more may be locked");
    Step(client::PinEnded{c->plan.name, std::move(status), PinnedForCertain()});
    Unlock(c);
  });
}

void WorkerProcess::ReleaseAll() {
  for (auto& [name, c] : components_) {
    if (c.locked || c.layers == 0 || c.plan.permanent) continue;
    world_.note(absl::StrCat(plan_.name, " drops what it holds of ", name));
    c.locked = true;
    c.layers = world_.random.Chance(0.7) ? 0 : world_.random.Below(c.layers);
    TellHeld(c, c.layers, false);
    Unlock(&c);
    return;
  }
}

// The same components again, of which the worker knows no more than before.
void WorkerProcess::UpdateComponents() {
  if (!session().attached()) return;
  v1::UpdateComponentsRequest request;
  request.set_session_id(session().session_id());
  request.set_request_id(absl::StrCat("update-", ++last_request_));
  const client::SessionOptions options = OptionsOf(plan_, process());
  *request.add_upsert() = options.components[static_cast<size_t>(
      world_.random.Below(static_cast<int>(options.components.size())))];
  world_.network.Call(
      this, session().attach_number(), request.request_id(),
      [request](core::CallId call) -> absl::StatusOr<core::Event> {
        std::string device;
        auto event = server::ReadUpdate(request, &device);
        if (!event.ok()) return event.status();
        event->header.call = call;
        return core::Event(*std::move(event));
      },
      [](const core::Answer&) {});
}

}  // namespace vrambroker::simulation
