// vram-pipeline: runs pipelines of stage workers, and the demo.
#include <cstdio>
#include <cstring>

#include "stage_workers/card/standard_descriptors.h"
#include "stage_workers/pipeline/cleanup.h"
#include "stage_workers/pipeline/commands.h"
#include "stage_workers/worker/command_line.h"

namespace {

using vrambroker::worker::EndOfOutput;

constexpr char kUsage[] =
    "Usage: vram-pipeline COMMAND [FLAGS]\n\n"
    "  run    runs a workload over stage workers and reports times, bytes and results\n"
    "  demo   compares, on emulated cards, a pipeline without a broker and with one\n\n"
    "vram-pipeline COMMAND --help lists the flags of a command.\n";

}  // namespace

__attribute__((section(".preinit_array"),
               used)) static void (*g_first)() = vrambroker::card::OpenStandardDescriptors;

int main(int argc, char** argv) {
  const char* command = argc > 1 ? argv[1] : "";
  if (std::strcmp(command, "--help") == 0 || std::strcmp(command, "-h") == 0) {
    std::printf("%s", kUsage);
    return EndOfOutput("vram-pipeline", 0);
  }
  const bool run = std::strcmp(command, "run") == 0;
  if (!run && std::strcmp(command, "demo") != 0) {
    std::fprintf(stderr, "%svram-pipeline: '%s' is not a command\n", kUsage, command);
    return 2;
  }
  vrambroker::pipeline::CleanUpOnSignals();
  return EndOfOutput("vram-pipeline", run ? vrambroker::pipeline::RunCommand(argc - 1, argv + 1)
                                          : vrambroker::pipeline::DemoCommand(argc - 1, argv + 1));
}
