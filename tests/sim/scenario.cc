#include "tests/sim/scenario.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace vrambroker::simulation {
namespace {

constexpr int64_t kMiB = 1 << 20;

ComponentPlan MakeComponent(Random* random, const std::string& name, int64_t capacity) {
  ComponentPlan c;
  c.name = name;
  const int runs = 1 + random->Below(2);
  const int64_t size = std::max(kMiB, capacity / random->Between(20, 120));
  for (int run = 0; run < runs; ++run) {
    const int64_t bytes = std::max(kMiB, size * random->Between(50, 150) / 100 / kMiB * kMiB);
    c.layers.insert(c.layers.end(), static_cast<size_t>(random->Between(2, 9)), bytes);
  }
  c.fixed = random->Chance(0.5) ? size * random->Between(0, 100) / 100 : 0;
  c.window = size * random->Between(0, 200) / 100;
  c.permanent = random->Chance(0.15);
  c.pass_seconds = random->Chance(0.3) ? 0 : random->Unit() * 0.2;
  return c;
}

core::Config MakeConfig(Random* random) {
  core::Config config;
  config.orphan_after = absl::Milliseconds(random->Between(500, 20000));
  config.grow_wait = absl::Milliseconds(random->Between(0, 1500));
  config.max_wait = absl::Milliseconds(random->Between(1000, 30000));
  config.settling_time = absl::Milliseconds(random->Between(1000, 5000));
  config.run_grace = absl::Milliseconds(random->Between(100, 5000));
  config.recovery_window = absl::Milliseconds(random->Between(50, 10000));
  config.load_ahead = random->Chance(0.4);
  config.horizon = random->Chance(0.3) ? 8 : 64;
  // Not fewer than come while a message is late: a repeat after its id is forgotten is a new use.
  config.max_request_ids = static_cast<int>(random->Between(512, 4096));
  return config;
}

Faults MakeFaults(Random* random) {
  Faults f;
  // Some runs are calm, so that what only shows without disturbance shows as well.
  if (random->Chance(0.15)) return f;
  auto some = [&](double most) { return random->Chance(0.6) ? random->Unit() * most : 0.0; };
  f.lose_stream = some(0.25);
  f.kill = some(0.08);
  f.pause = some(0.08);
  f.give_up = some(0.3);
  f.end_given_up = some(0.2);
  f.duplicate = some(0.15);
  f.call_fails = some(0.1);
  f.reorder = some(0.3);
  f.self_release = some(0.1);
  f.update = some(0.05);
  f.reading_fails = some(0.2);
  f.restart = some(0.02);
  return f;
}

core::DeviceSpec MakeDevice(Random* random, int number, bool has_probe) {
  core::DeviceSpec device;
  device.uuid = absl::StrCat("GPU-", number);
  device.capacity = core::Bytes(random->Between(4, 24) << 30);
  device.reserve = core::Bytes(random->Between(0, 512) * kMiB);
  device.link_rate = static_cast<double>(random->Between(2, 30)) * 1e9;
  device.has_probe = has_probe;
  return device;
}

// Two or three workers, each on a device of its own, which others share.
void AddGroup(Random* random, Scenario* s) {
  GroupPlan group;
  group.name = "shards";
  const int members = static_cast<int>(random->Between(2, 3));
  while (static_cast<int>(s->devices.size()) < members) {
    s->devices.push_back(
        MakeDevice(random, static_cast<int>(s->devices.size()), s->probe != Probe::kNone));
  }
  int64_t least = s->devices[0].capacity.count();
  for (const core::DeviceSpec& d : s->devices) least = std::min(least, d.capacity.count());
  ComponentPlan shard = MakeComponent(random, "shard", least);
  shard.permanent = false;
  group.layers = static_cast<int>(shard.layers.size());
  for (int i = 0; i < members; ++i) {
    WorkerPlan worker;
    worker.name = absl::StrCat("s", i);
    worker.device = s->devices[static_cast<size_t>(i)].uuid;
    worker.caching = random->Chance(0.4);
    worker.components.push_back(shard);
    group.members.emplace_back(worker.name, shard.name);
    s->workers.push_back(std::move(worker));
  }
  s->groups.push_back(std::move(group));
}

// Hosts that hold about half of what is wished, containers that have a part of that, and some of
// whose limits nothing is known.
void AddHostMemory(Random* random, Scenario* s) {
  int64_t wished = 0;
  for (WorkerPlan& worker : s->workers) {
    for (ComponentPlan& c : worker.components) {
      if (random->Chance(0.7)) c.pin_host = random->Between(1, 1000) * kMiB;
      wished += c.pin_host;
    }
  }
  s->config.host_memory = core::Bytes(wished + kMiB);
  s->config.host_pin_fraction = random->Chance(0.1) ? 0 : random->Unit();
  if (random->Chance(0.3)) s->config.host_pin_budget = core::Bytes(wished / 2 + 1);
  const int64_t limits[] = {wished / 2 + kMiB, random->Chance(0.3) ? 0 : wished / 3 + kMiB};
  for (WorkerPlan& worker : s->workers) {
    const int domain = random->Below(3);
    worker.host_domain = domain == 2 ? "" : absl::StrCat("cgroup:", domain);
    worker.host_limit = domain == 2 ? s->config.host_memory.count() : limits[domain];
  }
  if (random->Chance(0.3)) s->faults.refuse_pin = 0.2;
}

}  // namespace

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

int64_t Random::Between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
}

double Random::Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

absl::Duration Random::Delay(absl::Duration low, absl::Duration high) {
  const double share = std::pow(Unit(), 4);
  return low + absl::Nanoseconds(std::floor(absl::ToDoubleNanoseconds(high - low) * share));
}

Scenario MakeScenario(uint64_t seed, int steps) {
  Random random(seed);
  Scenario s;
  s.seed = seed;
  s.steps = steps;
  s.config = MakeConfig(&random);
  s.probe = static_cast<Probe>(random.Below(3));
  const int devices = random.Chance(0.25) ? 2 : 1;
  for (int i = 0; i < devices; ++i) {
    s.devices.push_back(MakeDevice(&random, i, s.probe != Probe::kNone));
  }
  s.driver_lag =
      random.Chance(0.4) ? absl::Milliseconds(random.Between(1, 3000)) : absl::Duration();
  s.faults = MakeFaults(&random);
  const int workers = static_cast<int>(random.Between(1, 4));
  for (int i = 0; i < workers; ++i) {
    WorkerPlan worker;
    worker.name = absl::StrCat("w", i);
    const core::DeviceSpec& device = s.devices[static_cast<size_t>(random.Below(devices))];
    worker.device = device.uuid;
    worker.caching = random.Chance(0.4);
    const int components = static_cast<int>(random.Between(1, 3));
    for (int c = 0; c < components; ++c) {
      worker.components.push_back(
          MakeComponent(&random, absl::StrCat("c", i, c), device.capacity.count()));
    }
    s.workers.push_back(std::move(worker));
  }
  if (s.probe == Probe::kByProcess) s.pids_elsewhere = random.Chance(0.2);
  s.hidden_foreign = random.Chance(0.3);
  // Whose death cannot be told after a restart is taken for gone: that is the assumption.
  if (s.pids_elsewhere) s.faults.restart = 0;
  if (s.probe == Probe::kByProcess && !s.pids_elsewhere && random.Chance(0.25)) {
    s.workers.back().liar = true;
    s.faults.lie = 0.3;
  }
  if (s.probe != Probe::kNone && random.Chance(0.25)) s.faults.foreign = 0.3;
  s.drivers = random.Below(3);
  s.infeasible = random.Chance(0.3) ? 0.05 : 0;
  // By totals, a held use hides what others have until it ends: what it waits for may wait for
  // that.
  s.nested = random.Chance(0.3) && s.probe != Probe::kTotals && !s.pids_elsewhere ? 0.1 : 0;
  if (random.Chance(0.35)) AddGroup(&random, &s);
  AddHostMemory(&random, &s);
  return s;
}

}  // namespace vrambroker::simulation
