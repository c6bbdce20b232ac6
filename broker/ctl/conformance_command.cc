#include "broker/ctl/conformance_command.h"

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "broker/ctl/arguments.h"
#include "broker/ctl/conformance.h"
#include "client/cpp/broker_client.h"
#include "client/cpp/credentials.h"
#include "client/cpp/defaults.h"

namespace vrambroker::ctl {

const char kConformanceUsage[] =
    "Asks a running broker everything that the protocol has an answer for, right and wrong, and\n"
    "reports where the answer is another: every code of the error table, every mutation twice,\n"
    "calls out of order, every field out of its range. It needs the roles worker and driver.\n\n"
    "  vramctl conformance            a table of checks, what was expected and what came\n\n"
    "It attaches under names of its own with components of a few KiB and leaves nothing attached;\n"
    "of the decisions that the broker remembers some will be its own. What it does not provoke,\n"
    "for the others' sake or because it cannot, it says.\n\n"
    "  --address=unix:PATH|HOST:PORT  the broker; default: as of vramctl status\n"
    "  --tls-ca=FILE --tls-cert=FILE --tls-key=FILE\n"
    "                                 for TCP, as of vramctl status\n"
    "  --device=UUID                  device of its components; default: the first there is\n"
    "  --drain                        drains the broker at the end, to see that it says so: "
    "NOBODY\n"
    "                                 gets a use of it until it is restarted\n"
    "  --format=table|json            default: table\n"
    "  --timeout=DURATION             how long to wait for each answer; default: 5s\n\n"
    "Exit status: 0 everything checked is as the protocol says, 1 something is not, 2 wrong\n"
    "arguments, or the broker does not answer.\n";

namespace {

constexpr int kWrong = 1;
constexpr int kFailed = 2;

struct Wanted {
  std::string address;
  client::TlsFiles tls;
  bool json = false;
  ConformanceOptions options;
};

absl::StatusOr<Wanted> Understand(const std::vector<std::string>& arguments) {
  const auto parsed = Arguments::Parse(arguments, {{"address"},
                                                   {"tls-ca"},
                                                   {"tls-cert"},
                                                   {"tls-key"},
                                                   {"device"},
                                                   {"drain", false},
                                                   {"format"},
                                                   {"timeout"}});
  if (!parsed.ok()) return parsed.status();
  if (!parsed->words().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", parsed->words()[0], "': no argument goes there"));
  }
  Wanted wanted;
  wanted.address = parsed->Get("address", "");
  if (wanted.address.empty()) wanted.address = client::DefaultAddress();
  wanted.tls = client::WithEnvironment(
      {parsed->Get("tls-ca", ""), parsed->Get("tls-cert", ""), parsed->Get("tls-key", "")});
  const std::string format = parsed->Get("format", "table");
  if (format != "table" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: '", format, "' given, table or json is allowed"));
  }
  wanted.json = format == "json";
  const std::string timeout = parsed->Get("timeout", "5s");
  if (!absl::ParseDuration(timeout, &wanted.options.timeout) ||
      wanted.options.timeout < absl::Seconds(1) || wanted.options.timeout > absl::Minutes(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout: ", timeout, " given, 1s to 10m is allowed"));
  }
  wanted.options.device = parsed->Get("device", "");
  wanted.options.drain = parsed->Has("drain");
  wanted.options.start_time_ticks = client::OwnStartTimeTicks();
  absl::string_view path = wanted.address;
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");
    wanted.options.socket_path = std::string(path);
  }
  return wanted;
}

}  // namespace

int Conformance(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  absl::StatusOr<Wanted> wanted = Understand(arguments);
  if (!wanted.ok()) {
    error << "vramctl: " << wanted.status().message() << "; conformance --help says more\n";
    return kFailed;
  }
  const auto credentials = client::MakeCredentials(wanted->address, wanted->tls);
  if (!credentials.ok()) {
    error << "vramctl: " << credentials.status().message() << "\n";
    return kFailed;
  }
  wanted->options.channel = grpc::CreateChannel(wanted->address, *credentials);
  const absl::StatusOr<ConformanceReport> report = RunConformance(wanted->options);
  if (!report.ok()) {
    error << "vramctl: the broker at " << wanted->address << ": " << report.status().message()
          << "\n";
    if (absl::IsUnavailable(report.status())) {
      error << "vramctl: " << client::WhyUnreachable(wanted->address, wanted->tls)
            << " --address gives another place\n";
    }
    return kFailed;
  }
  out << (wanted->json ? report->Json() : report->Table());
  return report->AllAsSaid() ? 0 : kWrong;
}

}  // namespace vrambroker::ctl
