#include "tests/model/actions.h"

#include <algorithm>
#include <array>

#include "tests/model/inspection.h"

namespace vrambroker::model {
namespace {

using Kind = Action::Kind;

class Enumeration {
 public:
  Enumeration(const Scenario& scenario, const State& state, bool calm)
      : scenario_(scenario), s_(state), calm_(calm) {}

  std::vector<Action> Take() {
    // What a use has beyond what is there, it may as well have at once: whatever comes before it
    // can be found wrong after it, too.
    for (size_t i = 0; i < s_.workers.size(); ++i) {
      const Worker& w = s_.workers[i];
      if (w.program != Program::kGranted || w.copying || w.layers > w.granted) continue;
      return {{Kind::kRun, static_cast<int>(i)}};
    }
    for (size_t i = 0; i < s_.connections.size(); ++i) OfConnection(s_.connections[i], i);
    for (size_t i = 0; i < s_.calls.size(); ++i) OfCall(s_.calls[i], i);
    for (size_t i = 0; i < s_.replies.size(); ++i) {
      if (!calm_ || !s_.replies[i].call.orphan) {
        Add(Kind::kReply, s_.replies[i].call.worker, i);
      }
    }
    for (const auto& [id, pending] : s_.pending) {
      if (!calm_ && pending.cancel_due) Add(Kind::kCancelTold, pending.call.worker, id);
      if (May(s_.left.fail) && !pending.call.orphan) {
        Add(Kind::kFailPending, pending.call.worker, id);
      }
    }
    for (size_t i = 0; i < s_.workers.size(); ++i) {
      if (s_.workers[i].alive) {
        OfWorker(s_.workers[i], static_cast<int>(i));
      } else {
        OfTheDead(s_.workers[i], static_cast<int>(i));
      }
    }
    OfBroker();
    return std::move(actions_);
  }

 private:
  void Add(Kind kind, int worker = -1, uint64_t index = 0, int said = 0) {
    actions_.push_back({kind, worker, index, said});
  }
  bool May(int left) const { return !calm_ && left > 0; }

  void OfConnection(const Connection& c, size_t i) {
    const bool alive = s_.workers[static_cast<size_t>(c.worker)].alive;
    if (!c.arrived && !(calm_ && c.lost)) {
      Add(Kind::kAttach, c.worker, i);
      if (May(s_.left.restart)) Add(Kind::kKilledInAttach, c.worker, i, 1);
    }
    if (c.arrived && c.lost && !c.close_told) Add(Kind::kCloseTold, c.worker, i);
    if (!alive) return;
    if (!c.down.empty() && !(calm_ && c.lost)) Add(Kind::kDirective, c.worker, i);
    if (c.end_due) Add(Kind::kStreamEnds, c.worker, i);
    if (!c.lost && May(s_.left.lose)) Add(Kind::kLose, c.worker, i);
  }

  void OfCall(const Call& call, size_t i) {
    if (calm_ && call.orphan) return;
    Add(Kind::kCall, call.worker, i);
    if (call.orphan) return;
    if (May(s_.left.duplicate)) Add(Kind::kDuplicate, call.worker, i);
    if (May(s_.left.fail)) Add(Kind::kFail, call.worker, i);
    if (!May(s_.left.restart)) return;
    for (int said = 1; said <= 3; ++said) Add(Kind::kKilledInCall, call.worker, i, said);
  }

  void OfWorker(const Worker& w, int i) {
    if (w.connect_due) Add(Kind::kConnect, i);
    if (w.trim_due && !w.session->releasing("c")) Add(Kind::kTrim, i);
    const bool locked = w.program == Program::kRunning || w.program == Program::kEnding ||
                        w.program == Program::kClosing;
    if (w.copying) {
      Add(Kind::kCopied, i);
    } else if (!locked) {
      if (w.place_due) Add(Kind::kPlace, i);
      const client::Work::Kind work = w.session->NextWork("c").kind;
      if (work == client::Work::Kind::kRelease || work == client::Work::Kind::kLoad) {
        Add(Kind::kApply, i);
      }
      if (w.program == Program::kGranted) Add(Kind::kRun, i);
      const bool drops = w.layers > 0 && w.program != Program::kGranted && !IsPermanent(i);
      if (drops && May(s_.left.drop)) Add(Kind::kDrop, i);
    }
    if (w.program == Program::kRunning) Add(Kind::kEnd, i);
    if (w.program == Program::kClosing) Add(Kind::kClosed, i);
    if (!calm_ && w.program == Program::kIdle && w.uses_left > 0) Add(Kind::kAsk, i);
    if (w.program == Program::kAsked && May(s_.left.give_up)) Add(Kind::kGiveUp, i);
    if (w.program == Program::kEnding && May(s_.left.give_up_end)) Add(Kind::kGiveUpEnd, i);
    if (May(s_.left.die)) Add(Kind::kDie, i);
  }

  void OfTheDead(const Worker& w, int i) {
    if (!w.noticed) Add(Kind::kDeathNoticed, i);
    if (w.Physical() > 0) Add(Kind::kBytesGo, i);
  }

  void OfBroker() {
    if (scenario_.by_process) {
      const bool none = s_.reading.stage == Reading::Stage::kNone;
      // The driver is read now and then, whoever asks: what it shows for others does not stay.
      const bool now_and_then =
          calm_ && core::MachineInspection::LedgerOf(*s_.machine).external > core::Bytes();
      if (none && (s_.reading_wanted || now_and_then)) Add(Kind::kReadingBegins);
      if (none && !s_.reading_wanted && May(s_.left.reading)) Add(Kind::kUnpromptedReading);
      if (s_.reading.stage == Reading::Stage::kBegun) Add(Kind::kReadingSampled);
      if (s_.reading.stage == Reading::Stage::kSampled) Add(Kind::kReadingArrives);
    }
    // Where nobody reads the driver, the bytes of the dead are gone in time: that is the
    // assumption.
    const bool too_soon = !scenario_.by_process &&
                          std::any_of(s_.workers.begin(), s_.workers.end(), [](const Worker& w) {
                            return !w.alive && w.noticed && w.Physical() > 0;
                          });
    const bool wakes = !too_soon && NextWake(s_) < absl::InfiniteFuture();
    if (wakes && (calm_ || s_.left.time > 0)) Add(Kind::kTime);
    if (May(s_.left.restart)) Add(Kind::kRestart);
  }

  bool IsPermanent(int worker) const {
    return scenario_.permanent && worker == scenario_.last_worker();
  }

  const Scenario& scenario_;
  const State& s_;
  const bool calm_;
  std::vector<Action> actions_;
};

}  // namespace

absl::Time NextWake(const State& state) {
  absl::Time next = absl::InfiniteFuture();
  const auto consider = [&](absl::Time time) {
    if (time > state.now) next = std::min(next, time);
  };
  consider(core::MachineInspection::WakeAt(*state.machine));
  for (const Worker& w : state.workers) {
    if (w.alive) consider(client::SessionInspection::WakeAt(*w.session));
  }
  return next;
}

const char* NameOf(Kind kind) {
  static constexpr std::array<const char*, kActionKinds> kNames = {
      "the broker hears that a stream has ended",
      "a death is noticed",
      "the bytes of the dead go",
      "a directive arrives",
      "an answer arrives",
      "a call arrives",
      "an Attach arrives",
      "a stream ends",
      "a worker attaches",
      "fixed bytes are placed",
      "a pool is trimmed",
      "a target is applied",
      "a copy is done",
      "a use begins to run",
      "a use is over",
      "what may not stay after a use goes",
      "a reading begins",
      "a reading is taken",
      "a reading arrives",
      "time passes",
      "a use is asked for",
      "the broker hears of a cancel",
      "a call arrives, and will again",
      "a call fails",
      "a call that waits fails",
      "a stream is lost",
      "a caller gives up a use that waits",
      "a caller gives up the end of a use",
      "the broker is killed, and another starts",
      "the broker is killed in a call",
      "the broker is killed in an Attach",
      "a worker dies",
      "a worker drops its layers by itself",
      "a reading begins unasked",
  };
  return kNames[static_cast<size_t>(kind)];
}

std::vector<Action> Enabled(const Scenario& scenario, const State& state, bool calm) {
  return Enumeration(scenario, state, calm).Take();
}

}  // namespace vrambroker::model
