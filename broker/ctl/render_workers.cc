#include "broker/ctl/render_workers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/ctl/render.h"

namespace vrambroker::ctl {
namespace {

void AddComponents(const v1::DevicePicture& device, WorkerRow* row) {
  bool here = false;
  for (const v1::ComponentPicture& one : device.components()) {
    if (one.session_id() != row->session.session_id()) continue;
    here = true;
    ++row->components;
    row->running_uses += one.use_id() == 0 ? 0 : 1;
    row->held_bytes += one.held_bytes();
    row->charge_bytes += one.charge_bytes();
  }
  if (here) row->devices.push_back(device.uuid());
}

// "2 of 4": the next stage, counted from 1.
std::string StageOf(const v1::RunPicture& run) {
  if (run.next_stage() >= run.stages()) return "none left";
  return absl::StrCat(run.next_stage() + 1, " of ", run.stages());
}

}  // namespace

std::vector<WorkerRow> WorkersOf(const v1::Picture& picture) {
  std::vector<WorkerRow> rows;
  for (const v1::SessionPicture& session : picture.sessions()) {
    WorkerRow row;
    row.session = session;
    for (const v1::DevicePicture& device : picture.devices()) AddComponents(device, &row);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string WorkersTable(const std::vector<WorkerRow>& workers) {
  if (workers.empty()) return "no workers\n";
  std::vector<std::vector<std::string>> rows = {{"worker", ">pid", "state", "device", ">uses",
                                                 ">held", ">charge", ">pool", ">unexplained",
                                                 ">overdue", "notes"}};
  for (const WorkerRow& one : workers) {
    rows.push_back({one.session.worker(), absl::StrCat(one.session.pid()),
                    SessionStateWord(one.session.state()),
                    one.devices.empty() ? "-" : absl::StrJoin(one.devices, ","),
                    absl::StrCat(one.running_uses), RenderBytes(one.held_bytes),
                    RenderBytes(one.charge_bytes), RenderBytes(one.session.pool_bytes()),
                    RenderBytes(one.session.unexplained_bytes()),
                    absl::StrCat(one.session.overdue_targets()), SessionNotes(one.session)});
  }
  return RenderTable(rows);
}

std::string WorkersJson(const std::vector<WorkerRow>& workers) {
  nlohmann::ordered_json json = {{"workers", nlohmann::ordered_json::array()}};
  for (const WorkerRow& one : workers) {
    const v1::SessionPicture& s = one.session;
    json["workers"].push_back({{"worker", s.worker()},
                               {"session_id", s.session_id()},
                               {"pid", s.pid()},
                               {"state", SessionStateWord(s.state())},
                               {"devices", one.devices},
                               {"components", one.components},
                               {"running_uses", one.running_uses},
                               {"held_bytes", one.held_bytes},
                               {"charge_bytes", one.charge_bytes},
                               {"pool_bytes", s.pool_bytes()},
                               {"unexplained_bytes", s.unexplained_bytes()},
                               {"under_released", s.under_released()},
                               {"overdue_targets", s.overdue_targets()},
                               {"recorded_bytes", s.recorded_bytes()},
                               {"pinned_host_bytes", s.pinned_host_bytes()},
                               {"pin_allowance_bytes", s.pin_allowance_bytes()},
                               {"pin_wish_bytes", s.pin_wish_bytes()}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string RenderRuns(const v1::ListRunsResponse& runs) {
  if (runs.runs().empty()) return "no declared runs\n";
  const auto started = std::count_if(runs.runs().begin(), runs.runs().end(),
                                     [](const v1::RunPicture& run) { return run.started(); });
  std::vector<std::vector<std::string>> rows = {
      {"pipeline", ">run", "driver", ">next stage", "state"}};
  for (const v1::RunPicture& run : runs.runs()) {
    rows.push_back({run.pipeline(), absl::StrCat(run.run_id()), run.driver(), StageOf(run),
                    run.started() ? "started" : "waits"});
  }
  return absl::StrCat(runs.runs_size(), runs.runs_size() == 1 ? " run: " : " runs: ", started,
                      " started, ", runs.runs_size() - started,
                      runs.runs_size() - started == 1 ? " waits\n" : " wait\n", RenderTable(rows));
}

}  // namespace vrambroker::ctl
