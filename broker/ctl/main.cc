// vramctl: asks a broker what it knows, and simulates what one would do.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "broker/ctl/broker_commands.h"
#include "broker/ctl/conformance_command.h"
#include "broker/ctl/plan_command.h"
#include "broker/ctl/simulate_command.h"

namespace vrambroker::ctl {
namespace {

constexpr int kNotWritten = 2;

constexpr char kUsage[] =
    "Asks a broker what it knows, and simulates what one would do.\n\n"
    "  vramctl status                 the memory picture: ledgers, components, sessions, who waits "
    "for what\n"
    "  vramctl decisions [--limit=N]  the last decisions, newest last\n"
    "  vramctl explain ID             why that decision fell so, and what the alternatives would "
    "have cost\n"
    "  vramctl health                 whether it serves, for probes\n"
    "  vramctl conformance            whether it speaks the protocol as it is written; --help "
    "lists\n"
    "                                 its flags\n\n"
    "Without a broker, each with flags of its own that its --help lists:\n\n"
    "  vramctl simulate WORKLOAD.json the workload under virtual time: stall, request times, "
    "bytes\n"
    "  vramctl plan WORKLOAD.json     in words: whether it fits, what would stay, what each "
    "request "
    "loses\n\n"
    "Exit status: 0 done (health: serving), 1 health: not serving, 2 the broker did not answer, or "
    "what was "
    "asked for is not known or cannot be written to standard output.";

constexpr char kFlags[] =
    "\nFlags of status, decisions, explain and health:\n"
    "  --address=unix:PATH|HOST:PORT  the broker; default: $VRAM_BROKER_ADDRESS, else\n"
    "                                 /run/vram-broker/broker.sock where that exists, else\n"
    "                                 $XDG_RUNTIME_DIR/vram-broker/broker.sock\n"
    "  --tls-ca=FILE --tls-cert=FILE --tls-key=FILE\n"
    "                                 for TCP, in PEM form: the CA of the broker's certificate, "
    "the\n"
    "                                 certificate to show, its key; default: $VRAM_BROKER_TLS_CA,\n"
    "                                 $VRAM_BROKER_TLS_CERT, $VRAM_BROKER_TLS_KEY\n"
    "  --format=table|json            default: table\n"
    "  --limit=N                      of decisions: at most so many, 1 to 4096; default: 20\n"
    "  --timeout=DURATION             how long to wait for the broker; default: 5s\n";

// A command that reads its flags by itself.
struct LocalCommand {
  const char* name;
  const char* usage;
  int (*run)(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);
};

constexpr LocalCommand kLocalCommands[] = {{"simulate", kSimulateUsage, Simulate},
                                           {"plan", kPlanUsage, Plan},
                                           {"conformance", kConformanceUsage, Conformance}};

bool AsksForHelp(const std::string& argument) {
  return argument == "--help" || argument == "-help" || argument == "-h" || argument == "help";
}

int Run(const std::vector<std::string>& arguments) {
  const bool help = std::any_of(arguments.begin(), arguments.end(), AsksForHelp);
  for (const LocalCommand& command : kLocalCommands) {
    if (arguments.empty() || arguments[0] != command.name) continue;
    if (!help) {
      return command.run({arguments.begin() + 1, arguments.end()}, std::cout, std::cerr);
    }
    std::cout << command.usage;
    return 0;
  }
  if (!help) return AskBroker(arguments);
  std::cout << kUsage << "\n" << kFlags;
  return 0;
}

// `status`, unless what was said did not all reach standard output.
int WrittenOut(int status) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return status;
  std::cerr << "vramctl: cannot write to standard output"
            << (errno == 0 ? "" : std::string(": ") + std::strerror(errno)) << "\n";
  return kNotWritten;
}

}  // namespace
}  // namespace vrambroker::ctl

int main(int argc, char** argv) {
  return vrambroker::ctl::WrittenOut(vrambroker::ctl::Run({argv + 1, argv + argc}));
}
