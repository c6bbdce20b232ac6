// What is done, for the decision log: workers and their components, uses, runs. Seen from the
// core's events and what it answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/effects.h"
#include "broker/core/events.h"
#include "vrambroker/v1/decision_log.pb.h"

namespace vrambroker::server {

// A plain value. To be told each event before its effects, both in the order of decisions.
class DecisionRecorder {
 public:
  // Past them the one that is known longest is forgotten: workers, uses, runs; calls.
  static constexpr size_t kMost = 8192;

  void Note(const core::Event& event, absl::Time now);
  void Note(const core::Effect& effect, absl::Time now);
  // What is new since the last call.
  std::vector<v1::DecisionLogLine> Take() { return std::exchange(lines_, {}); }

 private:
  struct Worker {
    core::SessionId session;
    core::Process process;
    std::string device;
    std::vector<core::ComponentSpec> components;
  };
  // A use that runs.
  struct Use {
    std::string worker;
    std::string request_id;
    // The id that its line has: it has another one once its worker has attached again.
    core::UseId logged;
  };
  using Call = std::variant<core::BeginUseEvent, core::EndUseEvent, core::UpdateComponentsEvent,
                            core::DeclareRunEvent, core::FinishRunEvent>;

  void Keep(const core::CallHeader& header, Call call);
  void Welcomed(const core::Welcome& welcome);
  void Died(const core::Process& process);
  void Answered(const core::BeginUseEvent& call, const core::BeginAnswer& answer);
  void Answered(const core::EndUseEvent& call, const core::EndAnswer& answer);
  void Answered(const core::UpdateComponentsEvent& call, const core::UpdateAnswer& answer);
  void Answered(const core::DeclareRunEvent& call, const core::DeclareRunAnswer& answer);
  void Answered(const core::FinishRunEvent& call, const core::EmptyAnswer& answer);
  // An answer of another kind: the call was refused.
  template <typename CallEvent, typename Other>
  void Answered(const CallEvent&, const Other&) {}

  v1::DecisionLogLine& NewLine();
  void SayWorker(const std::string& name, const Worker& worker);
  void LoseUsesOf(const std::string& worker, const core::Welcome* welcome);
  // Empty: not known.
  std::string WorkerOf(core::SessionId session) const;

  absl::Time now_;
  std::optional<core::AttachEvent> attaching_;  // of this step
  std::map<core::CallId, Call> calls_;
  std::map<core::SessionId, std::string> sessions_;
  std::map<std::string, Worker> workers_;
  std::map<core::UseId, Use> uses_;
  core::UseId newest_use_;
  std::map<core::RunId, bool> runs_;  // not ended; whether they have started
  core::RunId newest_run_;
  std::vector<v1::DecisionLogLine> lines_;
};

}  // namespace vrambroker::server
