// A broker's edge and its machine: requests as they come off the wire, checked and converted as the
// server does, and everything that the machine answers turned into responses.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "broker/core/machine.h"
#include "tests/fuzz/records.h"
#include "vrambroker/v1/admin.pb.h"

namespace vrambroker::fuzz {

// One card "GPU-0" of 64 MiB, with readings, loading ahead, and small bounds. Ends the process
// where the machine contradicts itself, answers a call twice or one that was never made, or tells a
// watcher a decision twice or out of order.
class EdgeWorld {
 public:
  EdgeWorld();

  // A request that cannot be parsed, or is refused by the checks, goes no further.
  void Take(const Record& record);
  // Everything that it shows, written into responses.
  void WritePicture();

 private:
  void TakeRequest(const Record& record);
  void TakeNumber(const Record& record);
  void Look(const Record& record);
  void Watch(const v1::WatchDecisionsRequest& request);
  void Tell(const core::Decision& decision);
  core::CallId NewCall();
  void Step(const core::Event& event);
  void CarryOut(const core::Effect& effect);

  core::Machine machine_;
  absl::Time now_;
  uint64_t connections_ = 0;
  uint64_t readings_ = 0;
  uint64_t calls_ = 0;
  std::set<core::CallId> open_;
  // Of each who watches decisions: the newest that it was told.
  std::vector<uint64_t> watchers_;
};

}  // namespace vrambroker::fuzz
