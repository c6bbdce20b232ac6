// A machine under a clock that the test turns, with workers that do and say what the test tells
// them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/core/machine.h"

namespace vrambroker::core {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

inline ComponentSpec Forward(const std::string& name, int layers, int64_t layer_bytes,
                             int64_t fixed = 0, int64_t window = 0) {
  ComponentSpec spec;
  spec.name = name;
  spec.layers = LayerTable({{layers, Bytes(layer_bytes)}});
  spec.fixed = Bytes(fixed);
  spec.window = Bytes(window);
  return spec;
}

inline ComponentSpec Permanent(ComponentSpec spec) {
  spec.lifetime = Lifetime::kPermanent;
  return spec;
}

inline StageSpec Stage(const std::string& component, int passes = 1) {
  StageSpec stage;
  stage.component = component;
  stage.passes = passes;
  return stage;
}

// For Begin: a use that needs so many layers resident.
inline std::function<void(UseSpec*)> AtLeast(int layers) {
  return [layers](UseSpec* use) { use->min_resident = layers; };
}

// What a worker has and says. Its numbers go on by themselves.
struct Worker {
  std::string name;
  int32_t pid = 0;
  std::vector<ComponentSpec> components;
  std::string device = "GPU-0";
  uint64_t attach_number = 0;
  uint64_t sequence = 0;
  uint64_t connection = 0;
  uint64_t session = 0;
  std::map<std::string, int> held;
  std::map<std::string, uint64_t> completed;
  bool placed = true;
  int64_t pool = 0;
  HostMemory host;
  int64_t pinned_host = 0;
  std::vector<ResumedUseSpec> running;
  std::optional<Welcome> welcome;
  absl::Status closed;
};

class MachineFixture : public testing::Test {
 protected:
  // Cards "GPU-0" and so on, each of `capacity`, no reserve, no readings.
  void Build(int64_t capacity, bool probe = false, int64_t reserve = 0, int cards = 1) {
    config_.recovery_window = absl::ZeroDuration();  // no reading is waited for at the start
    std::vector<DeviceSpec> devices;
    for (int i = 0; i < cards; ++i) {
      DeviceSpec device;
      device.uuid = absl::StrCat("GPU-", i);
      device.capacity = Bytes(capacity);
      device.reserve = Bytes(reserve);
      device.link_rate = 10e9;
      device.has_probe = probe;
      devices.push_back(device);
    }
    machine_.emplace(config_, std::move(devices));
  }

  Effects Step(const Event& event);
  Effects Pass(absl::Duration time) {
    now_ += time;
    return Step(TickEvent{});
  }

  Worker NewWorker(const std::string& name, std::vector<ComponentSpec> components) {
    Worker w;
    w.name = name;
    w.pid = ++last_pid_;
    w.components = std::move(components);
    return w;
  }
  // One component, "m", of so many layers of 1 GiB.
  Worker NewModel(const std::string& name, int layers) {
    return NewWorker(name, {Forward("m", layers, kGiB)});
  }
  void AttachAll(std::initializer_list<Worker*> workers) {
    for (Worker* w : workers) Attach(w);
  }
  // Attaches and reports what it holds, placed as admitted.
  void Attach(Worker* w);
  AttachEvent AttachOf(Worker* w);
  void Close(Worker* w) { Step(StreamClosedEvent{ConnectionId(w->connection)}); }
  void Die(const Worker& w) { Step(ProcessDiedEvent{{w.pid, 1}}); }

  Snapshot SnapshotOf(Worker* w);
  // Holds what it was last told, all of it, and says so.
  void Report(Worker* w);

  CallHeader Header(const Worker& w, const std::string& request) {
    return {CallId(++last_call_), SessionId(w.session), request, std::hash<std::string>()(request)};
  }
  // Asks for a use; the call's number. `change` may alter it first.
  CallId Begin(const Worker& w, const std::string& request, const std::string& component,
               int64_t activation = 0, const std::function<void(UseSpec*)>& change = nullptr);
  // The grant of this call, held and completed by its worker from then on; nothing if not granted.
  std::optional<BeginAnswer> Granted(CallId call, Worker* w, const std::string& component);
  // Ends the use that this request began; returns what may stay, which the worker then has.
  Target End(Worker* w, const std::string& request, const std::string& component,
             const Measurements& measured = {});
  // A use from its beginning, which is granted at once, to its end: as End.
  Target UseOnce(Worker* w, const std::string& request, const std::string& component) {
    EXPECT_TRUE(Granted(Begin(*w, request, component), w, component).has_value());
    return End(w, request, component);
  }
  CallId SendEnd(Worker* w, const std::string& request, const Measurements& measured = {});

  // A reading that shows these bytes by process.
  void Read(std::vector<std::pair<int32_t, Bytes>> by_process);
  void BeginReading() { Step(ReadingBeganEvent{"GPU-0", ++last_reading_}); }
  void EndReading(std::vector<std::pair<int32_t, Bytes>> by_process);

  // Declares a pipeline and `runs` runs of it; returns their ids.
  std::vector<RunId> Declare(const Worker& driver, const std::vector<StageSpec>& stages, int runs);

  absl::Status Refused(CallId call) const;
  bool Answered(CallId call) const { return answers_.contains(call); }
  Ledger ledger() const { return machine_->GetPicture(now_).devices[0].ledger; }
  ComponentPicture Look(const std::string& id) const;
  SessionPicture LookAt(const std::string& worker) const;
  int Decided(DecisionKind kind) const;
  // The newest target told to a component since it was told something else.
  std::optional<Target> Told(const Worker& w, const std::string& component) const {
    const auto it = told_.find({w.connection, component});
    return it == told_.end() ? std::nullopt : std::optional<Target>(it->second);
  }

  Config config_;
  std::optional<Machine> machine_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Effects last_effects_;
  std::map<std::string, Bytes> on_record_;  // by worker
  std::map<CallId, Answer> answers_;
  std::vector<CallId> answered_twice_;
  // All so far, in order.
  std::vector<Count> counts_;
  std::vector<Decision> logged_;
  std::map<uint64_t, Worker*> by_connection_;
  std::map<std::pair<uint64_t, std::string>, Target> told_;
  absl::Time last_wake_ = absl::InfiniteFuture();
  std::map<uint64_t, int> trims_;             // by connection
  std::map<uint64_t, Bytes> pin_allowances_;  // newest that was said, by connection
  uint64_t last_call_ = 0;
  uint64_t last_connection_ = 0;
  uint64_t last_reading_ = 0;
  uint64_t last_request_ = 0;
  int32_t last_pid_ = 100;
};

}  // namespace vrambroker::core
