#include "broker/ctl/conformance_command.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "broker/ctl/conformance.h"
#include "broker/ctl/connection.h"
#include "client/cpp/defaults.h"

namespace vrambroker::ctl {
namespace {

constexpr char kWhat[] =
    "Asks a running broker everything that the protocol has an answer for, right and wrong, and\n"
    "reports where the answer is another: every code of the error table, every mutation twice,\n"
    "calls out of order, every field out of its range. It needs the roles worker and driver.\n\n"
    "  vramctl conformance            a table of checks, what was expected and what came\n\n"
    "It attaches under names of its own with components of a few KiB and leaves nothing attached;\n"
    "of the decisions that the broker remembers some will be its own. What it does not provoke,\n"
    "for the others' sake or because it cannot, it says.\n\nFlags:\n"
    "  --device=UUID                  device of its components; default: the first there is\n"
    "  --drain                        drains the broker at the end, to see that it says so: "
    "NOBODY\n"
    "                                 gets a use of it until it is restarted\n";

constexpr char kStatuses[] =
    "  --timeout=DURATION             how long to wait for each answer, 1s to 1h; default: 5s\n\n"
    "Exit status: 0 everything checked is as the protocol says, 1 something is not, 2 wrong\n"
    "arguments, or the broker does not answer.\n";

std::vector<FlagSpec> Flags() { return WithConnectionFlags({{"device"}, {"drain", false}}); }

struct Wanted {
  Connection connection;
  ConformanceOptions options;
};

absl::StatusOr<Wanted> Understand(const std::vector<std::string>& arguments) {
  const auto parsed = Arguments::Parse(arguments, Flags());
  if (!parsed.ok()) return parsed.status();
  if (absl::Status status = CheckNoWords(*parsed); !status.ok()) return status;
  absl::StatusOr<Connection> connection = TakeConnection(*parsed, absl::Seconds(1));
  if (!connection.ok()) return connection.status();
  Wanted wanted;
  wanted.connection = *std::move(connection);
  wanted.options.timeout = wanted.connection.timeout;
  wanted.options.device = parsed->Get("device", "");
  wanted.options.drain = parsed->Has("drain");
  wanted.options.start_time_ticks = client::OwnStartTimeTicks();
  absl::string_view path = wanted.connection.address;
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");
    wanted.options.socket_path = std::string(path);
  }
  return wanted;
}

int Conformance(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  absl::StatusOr<Wanted> wanted = Understand(arguments);
  if (!wanted.ok()) {
    TellMisuse("conformance", wanted.status(), error);
    return kFailed;
  }
  auto channel = Connect(wanted->connection);
  if (!channel.ok()) {
    error << "vramctl: " << channel.status().message() << "\n";
    return kFailed;
  }
  wanted->options.channel = *std::move(channel);
  const absl::StatusOr<ConformanceReport> report = RunConformance(wanted->options);
  if (!report.ok()) {
    TellFailure(report.status(), wanted->connection, error);
    return kFailed;
  }
  out << (wanted->connection.json ? report->Json() : report->Table());
  return report->AllAsSaid() ? kDone : kNotSo;
}

}  // namespace

Command ConformanceCommand() {
  return {"conformance",
          "",
          "whether it speaks the protocol as it is written",
          absl::StrCat(kWhat, kConnectionUsage, kStatuses),
          Flags(),
          Conformance};
}

}  // namespace vrambroker::ctl
