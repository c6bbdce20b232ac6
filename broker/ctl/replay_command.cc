#include "broker/ctl/replay_command.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "broker/ctl/arguments.h"
#include "broker/ctl/replay.h"
#include "broker/ctl/simulation_arguments.h"

namespace vrambroker::ctl {
namespace {

constexpr char kUsage[] =
    "Makes the decisions of a decision log again (vram-brokerd --decision-log=FILE).\n\n"
    "  vramctl replay LOG... [flags]  files of one log, the oldest first: FILE.2 FILE.1 FILE\n\n"
    "Each plan that decisions rested on is made again from what it was made from, and compared "
    "with\n"
    "what it gave then.\n\n"
    "Flags:\n"
    "  --format=FORMAT        table or json; default: table\n\n"
    "Exit status: 0 every plan came out as it was logged, 1 one did not, 2 wrong arguments or a "
    "log\n"
    "that cannot be read (the line is said).\n";

std::vector<FlagSpec> Flags() { return {{"format", true, false, "table|json"}}; }

absl::Status ForEachLog(const std::vector<std::string>& paths,
                        const std::function<absl::Status(std::istream*)>& read) {
  if (paths.empty()) return absl::InvalidArgumentError("no log is named; a file is needed");
  for (const std::string& path : paths) {
    std::error_code ignored;
    std::ifstream file(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path, ignored)) {
      return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
    }
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

}  // namespace

int ReplayLog(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Arguments::Parse(arguments, Flags());
  if (!parsed.ok()) return Fail(parsed.status(), error);
  std::string format;
  if (absl::Status s = TakeFormat(*parsed, {"table", "json"}, &format); !s.ok()) {
    return Fail(s, error);
  }
  Replay replay;
  const absl::Status status =
      ForEachLog(parsed->words(), [&](std::istream* in) { return replay.Read(in); });
  if (!status.ok()) return Fail(status, error);
  out << (format == "json" ? ReplayJson(replay.result()) : ReplayText(replay.result()));
  return replay.result().differ == 0 ? kDone : kNotSo;
}

Command ReplayCommand() {
  return {"replay",  "LOG...", "the plans of a decision log made again, and compared",
          kUsage,    Flags(),  ReplayLog,
          kFileValue};
}

}  // namespace vrambroker::ctl
