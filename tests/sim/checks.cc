#include "tests/sim/checks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vrambroker::simulation {
namespace {

using Worker = ReferenceLedger::Worker;

std::map<std::string, int64_t> ChargesOf(const ReferenceLedger& ledger) {
  std::map<std::string, int64_t> charges;
  for (const auto& [pid, worker] : ledger.workers()) {
    for (const auto& [name, c] : worker.components) {
      charges[absl::StrCat(worker.name, "/", name, "@", pid)] = c.Charge();
    }
    charges[absl::StrCat(worker.name, " pool@", pid)] = worker.pool;
  }
  return charges;
}

}  // namespace

const core::DeviceSpec& Checks::Device(const std::string& uuid) const {
  for (const core::DeviceSpec& device : scenario_.devices) {
    if (device.uuid == uuid) return device;
  }
  return scenario_.devices.front();
}

bool Checks::IsLiar(const std::string& worker) const {
  return std::any_of(scenario_.workers.begin(), scenario_.workers.end(),
                     [&](const WorkerPlan& w) { return w.name == worker && w.liar; });
}

void Checks::Before() { charges_before_ = ChargesOf(ledger_); }

void Checks::Restart(const std::vector<core::Owner>& owners) {
  ledger_.Restart(owners);
  waiting_.clear();
  groups_.clear();
  peers_.clear();
  newest_use_ = 0;
  deaths_.clear();
  restarted_ = true;
  pin_charges_.clear();
}

void Checks::After(const core::Event& event, const core::Effects& effects, absl::Time now) {
  machine_->CheckInvariants();
  if (const auto* began = std::get_if<core::ReadingBeganEvent>(&event)) {
    newest_reading_[began->device_uuid] = began->reading;
  } else if (const auto* died = std::get_if<core::ProcessDiedEvent>(&event)) {
    const auto it = ledger_.workers().find(died->process.pid);
    if (it != ledger_.workers().end()) {
      deaths_.insert({died->process.pid, {now, newest_reading_[it->second.device]}});
    }
  }
  ledger_.Note(event, effects, now);
  waiting_ = ledger_.waited();
  NoteGroups();
  const core::Picture picture = machine_->GetPicture(now);
  CheckDrops(event, picture, now);
  Compare(picture);
  CheckNothingGrew(event, picture);
  CheckRunningUses(picture, effects);
  CheckAnswers(effects, now);
  CheckLevels(picture);
  CheckAllowances(picture);
}

// The machine's ledger is what the history of messages says.
void Checks::Compare(const core::Picture& picture) {
  for (const core::DevicePicture& device : picture.devices) {
    std::multimap<std::string, int64_t> machine, reference;
    for (const core::ComponentPicture& c : device.components) {
      machine.insert({c.id, c.charge.count()});
    }
    for (const auto& [pid, worker] : ledger_.workers()) {
      if (worker.device != device.uuid) continue;
      for (const auto& [name, c] : worker.components) {
        reference.insert({absl::StrCat(worker.name, "/", name), c.Charge()});
      }
    }
    std::multiset<std::pair<std::string, int64_t>> a(machine.begin(), machine.end()),
        b(reference.begin(), reference.end());
    for (const auto& [id, charge] : a) {
      if (b.contains({id, charge})) continue;
      const auto other = reference.find(id);
      fail_(absl::StrCat("the machine charges ", id, " with ", charge, ", the reference ledger ",
                         other == reference.end() ? -1 : other->second));
    }
    if (a.size() != b.size()) fail_("the machine knows other components than its messages say");
    if (device.ledger.Charged().count() != ledger_.Charged(device.uuid)) {
      fail_(absl::StrCat(device.uuid, ": charged ", device.ledger.Charged().count(),
                         " by the machine, ", ledger_.Charged(device.uuid), " by the messages"));
    }
  }
}

// No step raises a charge above capacity, but for what a worker says it holds.
void Checks::CheckNothingGrew(const core::Event& event, const core::Picture& picture) {
  if (std::holds_alternative<core::AttachEvent>(event)) return;
  const std::map<std::string, int64_t> charges = ChargesOf(ledger_);
  for (const auto& [pid, worker] : ledger_.workers()) {
    if (worker.device.empty() || IsLiar(worker.name)) continue;
    for (const core::DevicePicture& device : picture.devices) {
      if (device.uuid != worker.device || device.ledger.Overcommitted() == core::Bytes()) continue;
      for (const auto& [name, c] : worker.components) {
        const std::string key = absl::StrCat(worker.name, "/", name, "@", pid);
        const auto before = charges_before_.find(key);
        if (before != charges_before_.end() && charges.at(key) <= before->second) continue;
        fail_(absl::StrCat("the charge of ", key, " rose to ", charges.at(key), " while ",
                           device.uuid, " is overcommitted by ",
                           core::ToString(device.ledger.Overcommitted())));
      }
    }
  }
}

// A running use keeps its grant, and nothing below it is asked of its component.
void Checks::CheckRunningUses(const core::Picture& picture, const core::Effects& effects) {
  std::map<uint64_t, int> granted;
  for (const core::DevicePicture& device : picture.devices) {
    for (const core::ComponentPicture& c : device.components) {
      if (c.use) granted[c.use.value()] = c.granted;
    }
  }
  for (const auto& [pid, worker] : ledger_.workers()) {
    for (const auto& [name, c] : worker.components) {
      if (!c.use.has_value()) continue;
      const auto it = granted.find(c.use->id);
      if (it == granted.end() || it->second != c.use->granted) {
        fail_(absl::StrCat("use ", c.use->id, " of ", name, " was granted ", c.use->granted,
                           " layers, and the machine knows ",
                           it == granted.end() ? -1 : it->second));
      }
      for (const auto& [generation, layers] : c.targets) {
        if (generation > c.use->generation && layers < c.use->granted) {
          fail_(absl::StrCat("use ", c.use->id, " of ", name, " runs with ", c.use->granted,
                             " layers and is asked down to ", layers));
        }
      }
    }
  }
  for (const core::Effect& effect : effects) {
    const auto* wake = std::get_if<core::WakeAt>(&effect);
    if (wake != nullptr && wake->time <= picture.time) fail_("a wake-up is asked for in the past");
  }
}

int64_t Checks::Fewest(const ReferenceLedger::Component& c, const core::UseSpec& use) const {
  const bool permanent = c.spec.lifetime == core::Lifetime::kPermanent;
  if (permanent) return use.activation.count();
  const int64_t window = (use.window == core::Bytes() ? c.spec.window : use.window).count();
  const int count = c.spec.layers.count();
  const int most = use.max_resident == 0 ? count : use.max_resident;
  int64_t least = c.LayerBytes(use.min_resident) + (use.min_resident < count ? window : 0);
  if (most == count) least = std::min(least, c.LayerBytes(count));
  return least + use.activation.count();
}

void Checks::CheckAnswers(const core::Effects& effects, absl::Time now) {
  // Those granted later in this step wait still, as far as an earlier grant is concerned.
  std::set<uint64_t> later;
  for (const core::Effect& effect : effects) {
    const auto* answer = std::get_if<core::Answer>(&effect);
    const auto* begin =
        answer == nullptr ? nullptr : std::get_if<core::BeginAnswer>(&answer->result);
    if (begin != nullptr && begin->use.value() > newest_use_) later.insert(begin->use.value());
  }
  std::vector<Granted> granted;
  for (const core::Effect& effect : effects) {
    const auto* answer = std::get_if<core::Answer>(&effect);
    if (answer == nullptr) continue;
    const auto it = waiting_.find(answer->call.value());
    if (it == waiting_.end()) continue;
    const ReferenceLedger::Waiting asked = it->second;
    waiting_.erase(it);
    if (const auto* begin = std::get_if<core::BeginAnswer>(&answer->result)) {
      // An older one is only said again.
      if (later.erase(begin->use.value()) == 0) continue;
      CheckGrant(asked, later, now);
      granted.push_back({asked, begin->resident});
    } else if (const auto* status = std::get_if<absl::Status>(&answer->result)) {
      CheckRefusal(asked, *status);
    }
  }
  CheckGroupGrants(granted);
  for (const auto& [pid, worker] : ledger_.workers()) {
    for (const auto& [name, c] : worker.components) {
      if (c.use.has_value()) newest_use_ = std::max(newest_use_, c.use->id);
    }
  }
}

// The place of the oldest running use that waits for this one; 0 where none does.
uint64_t Checks::HolderOrder(const core::UseSpec& use, const std::set<uint64_t>& later) const {
  uint64_t oldest = 0;
  if (use.held_uses.empty()) return oldest;
  for (const auto& [pid, worker] : ledger_.workers()) {
    for (const auto& [name, c] : worker.components) {
      if (!c.use.has_value() || later.contains(c.use->id)) continue;
      for (core::UseId held : use.held_uses) {
        if (held.value() != c.use->id && !c.use->formerly.contains(held.value())) continue;
        if (oldest == 0 || c.use->order < oldest) oldest = c.use->order;
      }
    }
  }
  return oldest;
}

// A use passes an older one only if that one still fits beside it and beside all that passed it, or
// if it is held up by a use that the older one waits for.
void Checks::CheckGrant(const ReferenceLedger::Waiting& granted, const std::set<uint64_t>& later,
                        absl::Time now) {
  const Worker& worker = ledger_.workers().at(granted.pid);
  const core::DeviceSpec& device = Device(worker.device);
  const int64_t ceiling =
      (device.capacity - device.reserve).count() - ledger_.Permanent(device.uuid);
  const auto key = [&](const ReferenceLedger::Waiting& w) {
    const uint64_t holder = HolderOrder(w.spec, later);
    // A group has the place of its oldest member.
    const ReferenceLedger::Waiting& first =
        w.spec.group.empty() ? w : groups_.at(w.spec.group).first;
    const bool aged = now - first.arrived >= scenario_.config.max_wait || holder != 0;
    return std::make_tuple(!aged, aged ? 0 : -first.spec.priority,
                           holder != 0 ? holder : first.order, w.order);
  };
  const ReferenceLedger::Waiting* first = nullptr;
  for (const auto& [call, other] : waiting_) {
    if (!ledger_.workers().contains(other.pid)) continue;
    if (ledger_.workers().at(other.pid).device != device.uuid) continue;
    if (!other.spec.group.empty() && !groups_.at(other.spec.group).complete()) continue;
    if (key(other) < key(granted) && (first == nullptr || key(other) < key(*first))) {
      first = &other;
    }
  }
  if (first == nullptr || HolderOrder(granted.spec, later) != 0) return;
  const Worker& theirs = ledger_.workers().at(first->pid);
  int64_t beside = Fewest(theirs.components.at(first->spec.component), first->spec);
  std::string others;
  for (const auto& [pid, w] : ledger_.workers()) {
    if (w.device != device.uuid) continue;
    for (const auto& [name, c] : w.components) {
      if (!c.use.has_value() || later.contains(c.use->id)) continue;
      if (c.use->order < first->order) continue;
      if (pid == first->pid && name == first->spec.component) continue;
      const bool permanent = c.spec.lifetime == core::Lifetime::kPermanent;
      const int64_t bytes = c.use->needs + (permanent ? 0 : c.LayerBytes(c.use->granted));
      beside += bytes;
      absl::StrAppend(&others, "; use ", c.use->id, " of ", name, " ", bytes);
    }
  }
  if (beside <= ceiling) return;
  fail_(absl::StrCat("a use of ", granted.spec.component, " passes an older one of ",
                     first->spec.component, " (", first->request_id,
                     ") that would not fit beside it: ", beside, " of ", ceiling, " bytes"));
}

// What can fit is never said not to.
void Checks::CheckRefusal(const ReferenceLedger::Waiting& refused, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return;
  const auto worker = ledger_.workers().find(refused.pid);
  if (worker == ledger_.workers().end()) return;
  const core::DeviceSpec& device = Device(worker->second.device);
  const int64_t ceiling =
      (device.capacity - device.reserve).count() - ledger_.Permanent(device.uuid);
  const int64_t fewest = Fewest(worker->second.components.at(refused.spec.component), refused.spec);
  if (fewest <= ceiling) {
    fail_(absl::StrCat("a use that fits is refused: ", fewest, " of ", ceiling, " bytes; ",
                       status.ToString()));
  }
}

// A charge is dropped only with proof: death noticed, and a reading begun after it, or none to be
// had and the settling time over.
void Checks::CheckDrops(const core::Event& event, const core::Picture& picture, absl::Time now) {
  std::set<int32_t> known;
  for (const core::SessionPicture& s : picture.sessions) known.insert(s.pid);
  std::vector<int32_t> dropped;
  for (const auto& [pid, worker] : ledger_.workers()) {
    if (!known.contains(pid)) dropped.push_back(pid);
  }
  for (int32_t pid : dropped) {
    const Worker worker = ledger_.workers().at(pid);
    ledger_.Drop(pid);
    if (worker.device.empty()) continue;
    const auto death = deaths_.find(pid);
    if (death == deaths_.end()) {
      fail_(absl::StrCat("the charge of ", worker.name, " is dropped without proof of death"));
      continue;
    }
    const auto* reading = std::get_if<core::ReadingEvent>(&event);
    const bool shown = reading != nullptr && reading->status.ok() &&
                       reading->reading > death->second.reading_begun_after;
    const bool settled = now - death->second.noticed >= scenario_.config.settling_time;
    if (!shown && !settled) {
      fail_(absl::StrCat("the charge of ", worker.name, " is dropped before its bytes are gone"));
    }
  }
}

// What is on the device is charged, worker by worker, and fits. What a liar hides is nobody's
// grant, and what it is charged beyond what it has takes no room.
void Checks::Physical(const std::vector<std::shared_ptr<WorkerProcess>>& workers) {
  std::map<std::string, int64_t> on_device;
  for (const auto& worker : workers) {
    const int32_t pid = worker->process().pid;
    const int64_t bytes = worker->Physical();
    const auto known = ledger_.workers().find(pid);
    const int64_t charge = known == ledger_.workers().end() ? 0 : known->second.Charge();
    if (worker->plan().liar) {
      on_device[worker->plan().device] += std::min(bytes, charge);
      continue;
    }
    on_device[worker->plan().device] += bytes;
    if (!worker->alive() || bytes <= charge) continue;
    fail_(absl::StrCat(worker->name(), " (pid ", pid, ") has ", bytes,
                       " bytes on the device and is charged with ", charge));
  }
  CheckPinned(workers);
  if (scenario_.faults.foreign > 0) return;
  for (const auto& [uuid, bytes] : on_device) {
    const core::DeviceSpec& device = Device(uuid);
    if (bytes <= (device.capacity - device.reserve).count()) continue;
    fail_(absl::StrCat(bytes, " bytes are on ", uuid, ", which has ", device.capacity.count(),
                       " less a reserve of ", device.reserve.count()));
  }
}

}  // namespace vrambroker::simulation
