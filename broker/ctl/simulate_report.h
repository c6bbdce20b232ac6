// Results of simulations as text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "broker/sim/simulate.h"

namespace vrambroker::ctl {

// One simulation: what was asked for, and what came out.
struct SimulationRow {
  std::string workload;
  int64_t capacity_bytes = 0;
  sim::Rule rule = sim::Rule::kBroker;
  sim::Declared declared = sim::Declared::kAll;
  bool load_ahead = true;
  sim::Result result;
  // Why it does not fit, with what is needed and what there is. Empty where it fits.
  std::string reason;
};

// What to say of `workload`, whose simulation on its device gave `result`, as a row's reason.
std::string MisfitReason(const sim::Workload& workload, const sim::Result& result);

// As --declared spells them: "all", "current", "none".
std::string DeclaredName(sim::Declared declared);

// Where a workload does not fit, tables show "-" for the figures, JSON null, CSV nothing; the
// reason stands below the table, and in the last field of JSON and CSV.
std::string SimulationTable(const std::vector<SimulationRow>& rows);
std::string SimulationJson(const std::vector<SimulationRow>& rows);
std::string SimulationCsv(const std::vector<SimulationRow>& rows);

}  // namespace vrambroker::ctl
