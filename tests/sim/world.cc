#include "tests/sim/world.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/describe.h"

namespace vrambroker::simulation {
namespace {

// How many events a failure tells of. VRAM_SIM_STORY changes it.
size_t StoryLines() {
  static const char* text = std::getenv("VRAM_SIM_STORY");
  return text == nullptr ? 40 : std::strtoull(text, nullptr, 10);
}

// Restarts in the middle of a step, for each that comes between two steps.
constexpr double kKilledInStep = 0.2;

// The machine stops the process where its state contradicts itself: say which run it was.
const World* running = nullptr;
void TellStory(int) {
  if (running != nullptr) std::fputs(running->Story().c_str(), stderr);
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

}  // namespace

World::World(Scenario scenario)
    : scenario_(std::move(scenario)),
      random_(scenario_.seed ^ 0x5eed),
      machine_(std::make_unique<core::Machine>(scenario_.config, scenario_.devices)),
      checks_(scenario_, machine_, [this](const std::string& text) { Fail(text); }),
      network_(&scenario_, &time_, &random_,
               {[this](const core::Event& e) { Step(e); },
                [this](const std::string& text) { Fail(text); }}),
      surroundings_{scenario_,
                    time_,
                    random_,
                    network_,
                    true,
                    true,
                    [this](const std::string& text) { Note(text); },
                    [this](core::Process process) { NoticeDeath(process); }},
      observer_(
          &surroundings_,
          [this](const std::string& device) {
            std::map<int32_t, int64_t> bytes;
            for (const auto& w : workers_) {
              if (w->plan().device == device) bytes[w->process().pid] = w->Physical();
            }
            return bytes;
          },
          [this](const core::Event& e) { Step(e); }) {
  running = this;
  std::signal(SIGABRT, TellStory);
}

World::~World() { running = nullptr; }

void World::Note(const std::string& text) {
  story_.push_back(absl::StrCat(absl::ToUnixMicros(time_.now()) - 1'000'000'000'000, " us, step ",
                                steps_, ": ", text));
  if (story_.size() > StoryLines()) story_.pop_front();
}

void World::Fail(const std::string& text) {
  if (failure_.empty()) failure_ = absl::StrCat("step ", steps_, ": ", text);
}

std::string World::Story() const {
  std::string text = absl::StrCat("seed ", scenario_.seed, ", ", scenario_.steps,
                                  " steps, at step ", steps_, "; the last events:\n");
  for (const std::string& line : story_) absl::StrAppend(&text, "  ", line, "\n");
  return text;
}

// ---- The machine ----

void World::Step(const core::Event& event) {
  if (!failure_.empty()) return;
  ++steps_;
  Note(Describe(event));
  checks_.Before();
  core::Effects effects = machine_->Step(event, time_.now());
  // Killed at any point between its decision, the record and the last of its answers.
  const bool killed = surroundings_.Fault(scenario_.faults.restart * kKilledInStep);
  if (killed) {
    effects.erase(effects.begin() + random_.Below(static_cast<int>(effects.size()) + 1),
                  effects.end());
  }
  for (const core::Effect& effect : effects) {
    if (const std::string text = Describe(effect); !text.empty()) {
      story_.back() += absl::StrCat("\n      ", text);
    }
  }
  if (!killed) checks_.After(event, effects, time_.now());
  CarryOut(effects);
  if (killed) RestartBroker();
}

void World::CarryOut(const core::Effects& effects) {
  for (const core::Effect& effect : effects) {
    if (const auto* record = std::get_if<core::RecordCharge>(&effect)) {
      record_[record->owner.process.pid] = record->owner;
      if (record->owner.charge == core::Bytes()) record_.erase(record->owner.process.pid);
    } else if (const auto* directive = std::get_if<core::SendDirective>(&effect)) {
      network_.Deliver(*directive);
    } else if (const auto* close = std::get_if<core::CloseStream>(&effect)) {
      network_.Deliver(*close);
    } else if (const auto* answer = std::get_if<core::Answer>(&effect)) {
      grants_ += std::holds_alternative<core::BeginAnswer>(answer->result) ? 1 : 0;
      if (answer->call != kDrainCall) network_.Deliver(*answer);
    } else if (const auto* wake = std::get_if<core::WakeAt>(&effect)) {
      const uint64_t asked = ++wake_;
      if (wake->time == absl::InfiniteFuture()) continue;
      time_.At(wake->time, [this, asked] {
        if (asked == wake_) Step(core::TickEvent{});
      });
    } else if (const auto* want = std::get_if<core::WantReading>(&effect)) {
      observer_.Read(want->device_uuid);
    }
  }
}

// ---- Processes ----

void World::StartWorker(const WorkerPlan& plan) {
  const core::Process process{++last_pid_, static_cast<uint64_t>(last_pid_) * 7};
  workers_.push_back(std::make_shared<WorkerProcess>(&surroundings_, plan, process));
  workers_.back()->Start();
}

void World::StartDriver(const std::string& name) {
  const core::Process process{++last_pid_, static_cast<uint64_t>(last_pid_) * 7};
  drivers_.push_back(std::make_shared<DriverProcess>(
      &surroundings_, name, process, [this](const std::string& component, const Wanted& wanted) {
        for (const auto& worker : workers_) {
          for (const auto& [name, c] : worker->components()) {
            if (!worker->alive() || absl::StrCat(worker->name(), "/", name) != component) continue;
            return worker->Ask(name, wanted);
          }
        }
        time_.After(absl::ZeroDuration(), wanted.over);
      }));
  drivers_.back()->Start();
}

void World::NoticeDeath(core::Process process) {
  time_.After(random_.Delay(absl::Duration(), absl::Seconds(2)),
              [this, process] { Step(core::ProcessDiedEvent{process}); });
}

void World::KillOne() {
  if (!drivers_.empty() && random_.Chance(0.3)) {
    auto& driver = drivers_[static_cast<size_t>(random_.Below(static_cast<int>(drivers_.size())))];
    if (!driver->alive()) return;
    driver->Kill();
    const std::string name = driver->name();
    return time_.After(random_.Delay(absl::Duration(), absl::Seconds(1)),
                       [this, name] { StartDriver(name); });
  }
  const auto worker =
      workers_[static_cast<size_t>(random_.Below(static_cast<int>(workers_.size())))];
  if (!worker->alive()) return;
  worker->Kill();
  // Without readings, its bytes are gone within the settling time: that is the assumption.
  const absl::Duration most =
      scenario_.probe == Probe::kNone ? scenario_.config.settling_time * 0.9 : absl::Seconds(8);
  time_.After(random_.Delay(absl::Duration(), most), [this, worker] {
    worker->Vanish();
    Note(absl::StrCat("the bytes of ", worker->name(), " (pid ", worker->process().pid, ") go"));
  });
  time_.After(random_.Delay(absl::Duration(), absl::Seconds(2)),
              [this, worker] { StartWorker(worker->plan()); });
}

void World::RestartBroker() {
  Note("the broker is killed, and another starts");
  network_.Restart();
  std::vector<core::Owner> owners;
  for (auto& [pid, owner] : record_) {
    owner.provable = true;
    owners.push_back(owner);
  }
  core::Config config = scenario_.config;
  config.epoch = core::Epoch(++epoch_);
  machine_ = std::make_unique<core::Machine>(config, scenario_.devices, owners);
  checks_.Restart(owners);
  ++wake_;
  for (const core::Owner& owner : owners) {
    const bool alive = std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) {
      return w->alive() && w->process() == owner.process;
    });
    if (!alive) NoticeDeath(owner.process);
  }
  time_.After(absl::ZeroDuration(), [this] { Step(core::TickEvent{}); });
}

void World::Programs() {
  if (!surroundings_.busy) return;
  for (const auto& worker : workers_) {
    if (worker->alive() && !worker->stopped() && random_.Chance(0.5)) worker->Ask();
  }
  for (const GroupPlan& group : scenario_.groups) {
    if (random_.Chance(0.5)) AskGroup(group);
  }
  time_.After(random_.Delay(absl::Milliseconds(2), absl::Milliseconds(300)),
              [this] { Programs(); });
}

void World::AskGroup(const GroupPlan& group) {
  std::vector<std::shared_ptr<WorkerProcess>> members;
  for (const auto& [worker, component] : group.members) {
    for (const auto& w : workers_) {
      if (w->name() == worker && w->alive() && !w->stopped() && w->UsesOpen() < 2) {
        members.push_back(w);
      }
    }
  }
  if (members.size() != group.members.size()) return;
  Wanted wanted;
  wanted.group = absl::StrCat(group.name, "-", ++last_group_);
  wanted.members = static_cast<int>(members.size());
  wanted.passes = static_cast<int>(random_.Between(1, 20));
  wanted.activation = random_.Between(0, 512) << 20;
  if (random_.Chance(0.3)) {
    wanted.max_resident = static_cast<int>(random_.Between(1, group.layers));
    wanted.min_resident = random_.Below(wanted.max_resident + 1);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    time_.After(random_.Delay(absl::Duration(), absl::Milliseconds(100)),
                [worker = members[i], component = group.members[i].second, wanted] {
                  worker->Ask(component, wanted);
                });
  }
}

void World::Mischief() {
  for (const auto& driver : drivers_) {
    if (driver->alive() && !driver->stopped()) driver->Work();
  }
  const Faults& f = scenario_.faults;
  const auto one = [&]() -> std::shared_ptr<WorkerProcess> {
    const auto& w = workers_[static_cast<size_t>(random_.Below(static_cast<int>(workers_.size())))];
    return w->alive() ? w : nullptr;
  };
  if (surroundings_.Fault(f.lose_stream)) {
    Peer* peer = one().get();
    if (!drivers_.empty() && random_.Chance(0.2)) peer = drivers_.back().get();
    if (peer != nullptr) network_.Lose(peer);
  }
  if (surroundings_.Fault(f.kill)) KillOne();
  if (surroundings_.Fault(f.restart)) RestartBroker();
  if (surroundings_.Fault(f.pause)) {
    if (auto w = one(); w != nullptr && !w->stopped()) {
      Note(absl::StrCat(w->name(), " is stopped"));
      w->Stop();
      time_.After(random_.Delay(absl::Duration(), absl::Seconds(10)), [this, w] {
        Note(absl::StrCat(w->name(), " goes on"));
        w->Continue();
      });
    }
  }
  if (surroundings_.Fault(f.self_release)) {
    if (auto w = one(); w != nullptr && !w->stopped()) w->ReleaseAll();
  }
  if (surroundings_.Fault(f.update)) {
    if (auto w = one(); w != nullptr && !w->stopped()) w->UpdateComponents();
  }
  if (surroundings_.Fault(f.foreign)) observer_.ForeignChanges();
  time_.After(random_.Delay(absl::Milliseconds(10), absl::Milliseconds(400)),
              [this] { Mischief(); });
}

void World::PeriodicReadings() {
  for (const core::DeviceSpec& device : scenario_.devices) observer_.Read(device.uuid);
  time_.After(absl::Milliseconds(random_.Between(200, 1000)), [this] { PeriodicReadings(); });
}

// ---- The run ----

bool World::Until(const std::function<bool()>& done, absl::Duration within) {
  const absl::Time deadline = time_.now() + within;
  // What happens at one time, or between two steps, has a bound of its own.
  int64_t idle = 0;
  int64_t seen = steps_;
  while (failure_.empty() && !done()) {
    if (time_.now() > deadline || !time_.RunOne()) return false;
    observer_.Look();
    checks_.Physical(workers_);
    idle = steps_ == seen ? idle + 1 : 0;
    seen = steps_;
    if (idle > 100'000) Fail("nothing reaches the machine any more");
  }
  return failure_.empty();
}

std::string World::Run() {
  for (const WorkerPlan& plan : scenario_.workers) StartWorker(plan);
  for (int i = 0; i < scenario_.drivers; ++i) StartDriver(absl::StrCat("driver", i));
  Programs();
  Mischief();
  PeriodicReadings();
  Until([this] { return steps_ >= scenario_.steps; }, absl::Hours(24));
  if (failure_.empty()) Converge();
  if (failure_.empty()) Drain();
  return failure_.empty() ? "" : absl::StrCat(Story(), failure_);
}

}  // namespace vrambroker::simulation
