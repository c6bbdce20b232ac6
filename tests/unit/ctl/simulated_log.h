// The decision log that a simulated broker would have written.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "broker/server/convert_decision_log.h"
#include "broker/server/decision_lines.h"
#include "broker/server/decision_recorder.h"
#include "broker/sim/random_workload.h"
#include "broker/sim/simulate.h"

namespace vrambroker::ctl {

struct SimulatedLogOptions {
  sim::Declared declared = sim::Declared::kAll;
  bool load_ahead = true;
  // Lines of a file, what it begins with left out.
  size_t lines_per_file = 1'000'000'000;
  // Of the simulation, where that is wanted.
  sim::Result* result = nullptr;
};

// Its files, the oldest first.
inline std::vector<std::string> SimulatedLog(const sim::Workload& workload,
                                             const SimulatedLogOptions& options) {
  v1::DecisionLogHeader header;
  header.set_version(1);
  header.set_broker_epoch(1);
  v1::LoggedDevice* device = header.add_devices();
  device->set_uuid("simulated");
  device->set_capacity_bytes(workload.device.capacity_bytes);
  device->set_reserve_bytes(workload.device.reserve_bytes);
  device->set_link_bytes_per_second(workload.device.link_rate);
  header.set_load_ahead(options.load_ahead);
  server::DecisionLines lines(header);
  server::DecisionRecorder recorder;
  std::vector<std::string> files = {lines.Begin(absl::UnixEpoch())};
  size_t in_file = 0;
  const auto add = [&](const auto& entry, absl::Time now) {
    if (in_file >= options.lines_per_file) {
      files.push_back(lines.Begin(now));
      in_file = 0;
    }
    const std::string line = lines.Of(entry);
    EXPECT_NE(line, "");
    files.back() += line;
    ++in_file;
  };
  sim::Options simulation;
  simulation.declared = options.declared;
  simulation.load_ahead = options.load_ahead;
  simulation.observe = [&](const core::Event& event, const core::Effects& effects, absl::Time now) {
    recorder.Note(event, now);
    for (const core::Effect& effect : effects) {
      if (const auto* decision = std::get_if<core::LogDecision>(&effect)) {
        add(*decision, now);
      } else {
        recorder.Note(effect, now);
      }
      for (const v1::DecisionLogLine& line : recorder.Take()) add(line, now);
    }
  };
  const auto result = sim::Simulate(workload, simulation);
  EXPECT_TRUE(result.ok()) << result.status();
  if (options.result != nullptr && result.ok()) *options.result = *result;
  return files;
}

}  // namespace vrambroker::ctl
