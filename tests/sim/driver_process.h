// A driver: declares a pipeline and runs over the components of all workers, and takes each run
// through its stages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/peer.h"
#include "tests/sim/worker_process.h"

namespace vrambroker::simulation {

class DriverProcess : public Peer {
 public:
  // Asks a component, "worker/component", for a use on behalf of a run.
  using AskStage = std::function<void(const std::string& component, const Wanted& wanted)>;

  DriverProcess(Surroundings* world, const std::string& name, core::Process process, AskStage ask);

  // Declares more runs, or starts one that waits.
  void Work();
  int open_runs() const { return static_cast<int>(started_.size()); }

 private:
  void Do(const client::SessionChanged& e) override;
  void DeclarePipeline();
  void DeclareRun();
  void FinishRun(uint64_t run);
  void NextStage(uint64_t run, int stage);
  template <typename Request, typename Read>
  void Call(Request request, Read read, std::function<void(const core::Answer&)> reply);

  AskStage ask_;
  v1::DeclarePipelineRequest pipeline_;
  bool declared_ = false;
  std::vector<uint64_t> waiting_;
  std::map<uint64_t, int> started_;  // to the stage it is at
  uint64_t last_request_ = 0;
};

}  // namespace vrambroker::simulation
