// vram-brokerd as a process, and what it takes.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace vrambroker::bench {

// With an emulated card of 24 GiB; ended with this.
class BrokerProcess {
 public:
  explicit BrokerProcess(const std::string& program);
  ~BrokerProcess();

  // With more flags, where they are given.
  absl::Status Start(const std::vector<std::string>& flags = {});

  std::string address() const;
  // What it has logged so far.
  std::string log() const;
  // Processor time of all its threads so far, those that have ended included, in seconds.
  double CpuSeconds() const;
  double ResidentMiB() const;

 private:
  const std::string program_;
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace vrambroker::bench
