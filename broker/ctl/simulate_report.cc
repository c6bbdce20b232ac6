#include "broker/ctl/simulate_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "broker/ctl/render.h"
#include "broker/sim/what_if.h"

namespace vrambroker::ctl {
namespace {

using Cells = std::vector<std::pair<const char*, std::string>>;

// Names in it are of plain characters, and nothing else of it can hold a quote.
std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }
std::string Truth(bool value) { return value ? "true" : "false"; }

// What a rule ignores of the options is not said of it.
bool Brokered(const SimulationRow& row) { return row.rule == sim::Rule::kBroker; }

// Keys and values; `quote` puts text in quotes, `none` stands for what there is not.
Cells CellsOf(const SimulationRow& row, bool quote, const std::string& none) {
  const auto text = [&](const std::string& value) { return quote ? Quoted(value) : value; };
  const sim::Result& r = row.result;
  const auto figure = [&](const std::string& value) { return r.fits ? value : none; };
  const bool brokered = Brokered(row);
  return {
      {"workload", text(row.workload)},
      {"capacity_bytes", absl::StrCat(row.capacity_bytes)},
      {"rule", text(std::string(sim::RuleName(row.rule)))},
      {"declared", brokered ? text(DeclaredName(row.declared)) : none},
      {"load_ahead", Truth(brokered && row.load_ahead)},
      {"fits", Truth(r.fits)},
      {"stall_seconds", figure(absl::StrFormat("%.6f", r.stall_seconds))},
      {"request_p50_seconds", figure(absl::StrFormat("%.6f", r.request_p50_seconds))},
      {"request_p95_seconds", figure(absl::StrFormat("%.6f", r.request_p95_seconds))},
      {"bytes_to_device", figure(absl::StrCat(r.bytes_to_device))},
      {"peak_bytes", figure(absl::StrCat(r.peak_bytes))},
      {"decisions", figure(absl::StrCat(r.decisions))},
      {"decision_p99_seconds", figure(absl::StrFormat("%.9f", r.decision_p99_seconds))},
      {"reason", row.reason.empty() ? none : Quoted(row.reason)},
  };
}

}  // namespace

std::string DeclaredName(sim::Declared declared) {
  switch (declared) {
    case sim::Declared::kAll:
      return "all";
    case sim::Declared::kCurrent:
      return "current";
    case sim::Declared::kNone:
      return "none";
  }
  return "";
}

std::string MisfitReason(const sim::Workload& w, const sim::Result& result) {
  if (result.fits) return "";
  const sim::LargestNeed need = sim::FindLargestNeed(w);
  const int64_t least = sim::LeastCapacity(w);
  if (w.device.capacity_bytes < least) {
    const auto needed = [](int64_t bytes) { return RenderBytes(sim::RoundUpAsShown(bytes)); };
    const int64_t taken = w.device.reserve_bytes + sim::FixedBytes(w);
    return absl::StrFormat(
        "%s needs %s (%s of activation, %s of layers), stage %d of %s; beside reserve and fixed "
        "bytes the card has %s; the least card is %s",
        w.components[static_cast<size_t>(need.component)].name, needed(need.bytes()),
        RenderBytes(need.activation_bytes), RenderBytes(need.layer_bytes), need.stage + 1,
        w.pipelines[static_cast<size_t>(need.pipeline)].name,
        RenderBytes(std::max<int64_t>(0, w.device.capacity_bytes - taken)), needed(least));
  }
  const auto refused = std::find_if(result.requests.begin(), result.requests.end(),
                                    [](const sim::RequestRecord& r) { return !r.refusal.empty(); });
  return absl::StrReplaceAll(refused->refusal, {{"\"", "'"}});
}

std::string SimulationTable(const std::vector<SimulationRow>& rows) {
  std::vector<std::vector<std::string>> cells = {{"workload", ">card", "rule", "declared", "ahead",
                                                  ">lost to loading", ">p50", ">p95", ">moved",
                                                  ">peak", ">decisions", ">p99"}};
  for (const SimulationRow& row : rows) {
    const sim::Result& r = row.result;
    const bool brokered = Brokered(row);
    std::vector<std::string> line = {row.workload, RenderBytes(row.capacity_bytes),
                                     std::string(sim::RuleName(row.rule)),
                                     brokered ? DeclaredName(row.declared) : "-",
                                     brokered ? (row.load_ahead ? "yes" : "no") : "-"};
    if (r.fits) {
      line.insert(line.end(),
                  {absl::StrFormat("%.3f s", r.stall_seconds),
                   absl::StrFormat("%.3f s", r.request_p50_seconds),
                   absl::StrFormat("%.3f s", r.request_p95_seconds), RenderBytes(r.bytes_to_device),
                   RenderBytes(r.peak_bytes), absl::StrCat(r.decisions),
                   absl::StrFormat("%.1f us", r.decision_p99_seconds * 1e6)});
    } else {
      line.insert(line.end(), {"does not fit", "-", "-", "-", "-", "-", "-"});
    }
    cells.push_back(std::move(line));
  }
  std::string out = RenderTable(cells);
  for (const SimulationRow& row : rows) {
    if (row.reason.empty()) continue;
    absl::StrAppend(&out, "\n  ", row.workload, " on ", RenderBytes(row.capacity_bytes), ", ",
                    sim::RuleName(row.rule), ": ", row.reason, "\n");
  }
  return out;
}

std::string SimulationJson(const std::vector<SimulationRow>& rows) {
  const auto object = [](std::string* out, const SimulationRow& row) {
    absl::StrAppend(out, "  {",
                    absl::StrJoin(CellsOf(row, true, "null"), ", ",
                                  [](std::string* field, const auto& cell) {
                                    absl::StrAppend(field, "\"", cell.first, "\": ", cell.second);
                                  }),
                    "}");
  };
  return absl::StrCat("[\n", absl::StrJoin(rows, ",\n", object), "\n]\n");
}

std::string SimulationCsv(const std::vector<SimulationRow>& rows) {
  const auto name = [](std::string* out, const auto& cell) { absl::StrAppend(out, cell.first); };
  const auto value = [](std::string* out, const auto& cell) { absl::StrAppend(out, cell.second); };
  std::string out =
      absl::StrCat(absl::StrJoin(CellsOf(SimulationRow(), false, ""), ",", name), "\n");
  for (const SimulationRow& row : rows) {
    absl::StrAppend(&out, absl::StrJoin(CellsOf(row, false, ""), ",", value), "\n");
  }
  return out;
}

}  // namespace vrambroker::ctl
