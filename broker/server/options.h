// What a broker is told at its start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "broker/core/machine.h"
#include "broker/server/addresses.h"
#include "broker/server/certificates.h"
#include "broker/server/flag_set.h"

namespace vrambroker::server {

// A card of the machine.
struct DeviceOption {
  std::string uuid;
  // The share of it that the broker gives out, in bytes. Absent: all of it.
  std::optional<int64_t> cap;
};

// A card of shared memory.
struct EmulatedDeviceOption {
  std::string name;
  int64_t capacity_bytes = 0;
  // Bytes a second of its link. 0: not paced.
  double rate = 0;
  // How late its readings are. Absent: as it is, or none.
  std::optional<absl::Duration> lag;
};

enum class LogFormat { kText, kJson };

// From the one that says most; each leaves out what is below it.
enum class LogLevel { kDebug, kInfo, kWarning, kError };
absl::string_view NameOf(LogLevel level);

struct Options {
  // At least one.
  std::vector<Address> listen;
  uint32_t socket_mode = 0660;
  // Empty: the group of the process.
  std::string socket_group;
  // The group that has the role admin over the Unix sockets, beside root and the user of the
  // broker. Empty: everybody has it who may connect.
  std::string admin_group;
  // For every TCP address; all three or none.
  TlsFiles tls;
  // TCP without TLS, on loopback hosts only: whoever is on the machine may call anything.
  bool plain_loopback = false;
  // Both empty: every real card that is found.
  std::vector<DeviceOption> devices;
  std::vector<EmulatedDeviceOption> emulated_devices;
  int64_t reserve_bytes = int64_t{512} << 20;
  absl::Duration reading_interval = absl::Seconds(1);
  std::string lock_dir;
  LogFormat log_format = LogFormat::kText;
  LogLevel log_level = LogLevel::kInfo;
  // File of the decision log; empty: none is kept. Bytes of each file, and how many, that included.
  std::string decision_log;
  int64_t decision_log_max_bytes = int64_t{64} << 20;
  int decision_log_files = 4;
  // HOST:PORT of the metrics. Empty: they are not served.
  std::string metrics_address;
  // The broker starts without metrics where that address cannot be had: nobody has asked for it.
  bool metrics_if_possible = false;
  // HOST:PORT of the page for people. Empty: it is not served.
  std::string page_address;
  // As metrics_if_possible.
  bool page_if_possible = false;
  // Times of the decisions; its epoch is set at the start.
  core::Config core = LoadingAhead();

 private:
  static core::Config LoadingAhead() {
    core::Config config;
    config.load_ahead = true;
    return config;
  }
};

struct ParsedOptions {
  Options options;
  bool help_wanted = false;
  std::string help;
  // What does nothing though it seems meant to.
  std::vector<std::string> warnings;
};

// INVALID_ARGUMENT where TLS is given in part, or is missing for a TCP address that is not of the
// loopback or not allowed to do without.
absl::Status CheckTransports(const Options& options);

// INVALID_ARGUMENT as FlagSet::Parse and CheckTransports. `args` without the program's name;
// `variables`: the names of all environment variables, for warnings.
absl::StatusOr<ParsedOptions> ParseOptions(const std::vector<std::string>& args,
                                           const GetEnv& get_env,
                                           const std::vector<std::string>& variables = {});

}  // namespace vrambroker::server
