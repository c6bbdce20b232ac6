#include "stage_workers/pipeline/shared_flags.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "stage_workers/pipeline/child_process.h"
#include "stage_workers/pipeline/commands.h"

ABSL_FLAG(int64_t, bytes_scale, 64,
          "Divides all sizes: weights, activations, the card. 1 to 1048576.");
ABSL_FLAG(double, time_scale, 8,
          "Divides all times of the workload, and multiplies the link's rate: above 0.");
ABSL_FLAG(std::string, work_dir, "",
          "Folder for weights (kept for the next time) and logs of processes. Empty: "
          "vram-broker/demo below $XDG_CACHE_HOME or ~/.cache, else below $TMPDIR.");
ABSL_FLAG(std::string, bin_dir, "",
          "Folder of vram-stage-worker and vram-brokerd. Empty: where this program lies.");

namespace vrambroker::pipeline {

absl::Status CheckScales() {
  const int64_t bytes = absl::GetFlag(FLAGS_bytes_scale);
  if (bytes < 1 || bytes > 1'048'576) {
    return absl::InvalidArgumentError(
        absl::StrCat("--bytes-scale: ", bytes, " given; 1 to 1048576 is allowed"));
  }
  const double time = absl::GetFlag(FLAGS_time_scale);
  if (!(time > 0) || time > 1e6) {
    return absl::InvalidArgumentError(
        absl::StrCat("--time-scale: ", time, " given; above 0, at most 1000000 is allowed"));
  }
  return absl::OkStatus();
}

std::string BinFolder() {
  const std::string given = absl::GetFlag(FLAGS_bin_dir);
  return given.empty() ? ProgramFolder() : given;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "vram-pipeline: %s\n", status.ToString().c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

std::string WorkFolder(const std::string& given, const std::string& name) {
  if (!given.empty()) return given;
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return absl::StrCat(cache, "/vram-broker/", name);
  }
  if (const std::string home = variable("HOME"); !home.empty() && home != "/") {
    return absl::StrCat(home, "/.cache/vram-broker/", name);
  }
  const std::string temporary = variable("TMPDIR");
  return absl::StrCat(temporary.empty() ? "/tmp" : temporary, "/vram-broker-", name);
}

absl::Status CheckWritable(const std::string& flag, const std::string& path) {
  const bool there = access(path.c_str(), F_OK) == 0;
  FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        flag, ": ", path, " cannot be written: ", std::strerror(errno), "; give another path"));
  }
  std::fclose(file);
  if (!there) unlink(path.c_str());
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace vrambroker::pipeline
