#include "broker/ctl/replay_command.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/ctl/arguments.h"
#include "broker/ctl/decision_log_reader.h"
#include "broker/ctl/progress.h"
#include "broker/ctl/recorded_workload.h"
#include "broker/ctl/render.h"
#include "broker/ctl/replay.h"
#include "broker/ctl/simulate_report.h"
#include "broker/ctl/simulation_arguments.h"

namespace vrambroker::ctl {
namespace {

constexpr int kBroken = 3;

constexpr char kUsage[] =
    "Makes the decisions of a decision log again (vram-brokerd --decision-log=FILE).\n\n"
    "  vramctl replay LOG... [flags]  files of one log, the oldest first: FILE.2 FILE.1 FILE\n\n"
    "Each plan that decisions rested on is made again from what it was made from, and compared\n"
    "with what it gave then. With --capacity or --rule what ran is simulated instead, as vramctl\n"
    "simulate does: its uses, at the times at which they were asked for, on another card or by\n"
    "another rule.\n\n"
    "Flags:\n"
    "  --capacity=SIZE        card to simulate it on, such as 24GiB; several may be given; "
    "default:\n"
    "                         the recorded one\n"
    "  --rule=NAME            who decides, as in vramctl simulate; several may be given; default:\n"
    "                         broker\n"
    "  --declared=HOW         all, current or none; default: as it was recorded\n"
    "  --no-load-ahead        the simulated broker has nothing loaded ahead of its use\n"
    "  --device=UUID          whose uses; needed where the log has several devices\n"
    "  --format=FORMAT        table or json; default: table\n\n"
    "Exit status: 0 every plan came out as it was logged (simulated: all fit), 1 one did not, 2\n"
    "wrong arguments, a log that cannot be read (the line is said) or has nothing in it, 3 a\n"
    "simulation broke a guarantee of the broker.\n";

std::vector<FlagSpec> Flags() {
  return {
      {"capacity", true, true}, {"rule", true, true}, {"declared", true, false, "all|current|none"},
      {"no-load-ahead", false}, {"device"},           {"format", true, false, "table|json"}};
}

int64_t SteadyNanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// What a simulation of the log is to be.
struct WhatIf {
  std::vector<int64_t> capacities;  // empty: the recorded one
  std::vector<sim::Rule> rules;
};

absl::StatusOr<WhatIf> TakeWhatIf(const Arguments& arguments) {
  WhatIf wanted;
  if (absl::Status s = TakeCapacities(arguments, &wanted.capacities); !s.ok()) return s;
  for (const std::string& name : arguments.All("rule")) {
    const auto rule = sim::ParseRule(name);
    if (!rule.ok()) return InFlag("rule", rule.status());
    wanted.rules.push_back(*rule);
  }
  if (wanted.rules.empty()) wanted.rules.push_back(sim::Rule::kBroker);
  return wanted;
}

absl::Status ForEachLog(const std::vector<std::string>& paths,
                        const std::function<absl::Status(std::istream*)>& read) {
  if (paths.empty()) return absl::InvalidArgumentError("no log is named; a file is needed");
  for (const std::string& path : paths) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    // A folder opens, and then gives nothing.
    if (file) file.peek();
    if (!file) {
      return absl::NotFoundError(absl::StrCat(path, ": cannot be read", errno == 0 ? "" : ": ",
                                              errno == 0 ? "" : std::strerror(errno)));
    }
    file.clear();
    if (absl::Status status = read(&file); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

int Fail(const absl::Status& status, std::ostream& error) {
  error << "vramctl replay: " << status.message() << "\n";
  return kFailed;
}

absl::StatusOr<RecordedWorkload> ReadWorkload(const Arguments& arguments) {
  WorkloadReader reader(arguments.Get("device", ""));
  const absl::Status status = ForEachLog(arguments.words(), [&](std::istream* in) {
    DecisionLogReader lines(in);
    v1::DecisionLogLine line;
    while (true) {
      const absl::StatusOr<bool> more = lines.Next(&line);
      if (!more.ok() || !*more) return more.status();
      if (absl::Status taken = reader.Take(line); !taken.ok()) {
        return InLine(lines.number(), taken);
      }
    }
  });
  if (!status.ok()) return status;
  auto recorded = reader.Finish();
  if (!recorded.ok()) return recorded;
  if (absl::Status s = TakeDeclared(arguments, &recorded->declared); !s.ok()) return s;
  recorded->load_ahead &= !arguments.Has("no-load-ahead");
  return recorded;
}

absl::StatusOr<std::vector<SimulationRow>> RunAll(const RecordedWorkload& recorded,
                                                  const WhatIf& wanted, Progress* progress) {
  std::vector<int64_t> capacities = wanted.capacities;
  if (capacities.empty()) capacities.push_back(recorded.workload.device.capacity_bytes);
  std::vector<SimulationRow> rows;
  sim::Workload workload = recorded.workload;
  for (const int64_t capacity : capacities) {
    workload.device.capacity_bytes = capacity;
    for (const sim::Rule rule : wanted.rules) {
      sim::Options options;
      options.rule = rule;
      options.declared = recorded.declared;
      options.load_ahead = recorded.load_ahead;
      options.clock = SteadyNanoseconds;
      options.progress = progress->Begin(absl::StrCat(RenderBytes(capacity), ", ", RuleName(rule)));
      auto result = sim::Simulate(workload, options);
      if (!result.ok()) return result.status();
      std::string reason = MisfitReason(workload, *result);
      rows.push_back({workload.name, capacity, rule, recorded.declared, recorded.load_ahead,
                      *std::move(result), std::move(reason)});
    }
  }
  return rows;
}

int SimulateLog(const Arguments& arguments, bool json, std::ostream& out, std::ostream& error) {
  const auto wanted = TakeWhatIf(arguments);
  if (!wanted.ok()) return Fail(wanted.status(), error);
  const auto recorded = ReadWorkload(arguments);
  if (!recorded.ok()) return Fail(recorded.status(), error);
  if (absl::Status s = CheckCapacities({recorded->workload}, wanted->capacities); !s.ok()) {
    return Fail(s, error);
  }
  Progress progress(&error, SteadySeconds);
  const auto rows = RunAll(*recorded, *wanted, &progress);
  progress.End();
  if (!rows.ok()) {
    Fail(rows.status(), error);
    return rows.status().code() == absl::StatusCode::kInvalidArgument ? kFailed : kBroken;
  }
  if (json) {
    out << "{\"recorded\": " << RecordedJson(*recorded)
        << ",\n\"simulated\": " << SimulationJson(*rows) << "}\n";
  } else {
    out << RecordedText(*recorded) << "\n" << SimulationTable(*rows);
  }
  const bool fits = std::all_of(rows->begin(), rows->end(),
                                [](const SimulationRow& row) { return row.result.fits; });
  return fits ? kDone : kNotSo;
}

}  // namespace

int ReplayLog(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Arguments::Parse(arguments, Flags());
  if (!parsed.ok()) return Fail(parsed.status(), error);
  std::string format;
  if (absl::Status s = TakeFormat(*parsed, {"table", "json"}, &format); !s.ok()) {
    return Fail(s, error);
  }
  if (parsed->Has("capacity") || parsed->Has("rule")) {
    return SimulateLog(*parsed, format == "json", out, error);
  }
  for (const char* flag : {"declared", "no-load-ahead", "device"}) {
    if (!parsed->Has(flag)) continue;
    return Fail(absl::InvalidArgumentError(absl::StrCat(
                    "--", flag, " is for a simulation: --capacity or --rule asks for one")),
                error);
  }
  Replay replay;
  const absl::Status status =
      ForEachLog(parsed->words(), [&](std::istream* in) { return replay.Read(in); });
  if (!status.ok()) return Fail(status, error);
  if (replay.result().decisions == 0) {
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(absl::StrJoin(parsed->words(), ", "),
                                                ": there is no decision; nothing was replayed")),
        error);
  }
  out << (format == "json" ? ReplayJson(replay.result()) : ReplayText(replay.result()));
  return replay.result().differ == 0 ? kDone : kNotSo;
}

Command ReplayCommand() {
  return {"replay",  "LOG...", "a decision log: its plans made again and compared, or simulated",
          kUsage,    Flags(),  ReplayLog,
          kFileValue};
}

}  // namespace vrambroker::ctl
