// scripted-worker: is granted a use, fills it on the card and reports nothing, until it is killed.
//   scripted-worker BROKER CARD_UUID NAME BYTES MARKER
// Writes the file MARKER once the bytes are on the card. Exit status 1: it came to nothing, said on
// stderr.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "tests/e2e/scripted_worker.h"

namespace {

int Fail(const std::string& what) {
  std::fprintf(stderr, "scripted-worker: %s\n", what.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t bytes = 0;
  if (argc != 6 || !absl::SimpleAtoi(argv[4], &bytes)) {
    return Fail("BROKER CARD_UUID NAME BYTES MARKER are needed");
  }
  vrambroker::e2e::ScriptedWorker worker({argv[1], argv[3], argv[2], 1, 1 << 20});
  if (const grpc::Status status = worker.Attach(); !status.ok()) {
    return Fail(status.error_message());
  }
  const auto begun = worker.BeginUse("use", bytes - (1 << 20), 1).get();
  if (!begun.status.ok()) return Fail(begun.status.error_message());
  if (const absl::Status status = worker.Allocate(bytes); !status.ok()) {
    return Fail(status.ToString());
  }
  FILE* marker = std::fopen(argv[5], "w");
  if (marker == nullptr || std::fclose(marker) != 0) return Fail("cannot write the marker");
  for (;;) pause();
}
