#include "broker/server/options.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "broker/observe/host_and_port.h"
#include "broker/server/device_options.h"
#include "broker/server/size.h"

namespace vrambroker::server {
namespace {

constexpr char kDefaultMetricsAddress[] = "127.0.0.1:9464";
constexpr char kDefaultPageAddress[] = "127.0.0.1:9465";

constexpr char kUsage[] =
    "vram-brokerd: decides what stays on a GPU between the stages of pipelines.\n"
    "\n"
    "Usage: vram-brokerd [--listen=unix:PATH] [--device=UUID | --emulated-device=NAME=SIZE] ...\n"
    "\n"
    "Without --device and --emulated-device it takes every card that NVIDIA's library lists. "
    "SIGTERM and "
    "SIGINT\nend it within 2 s: waiting calls get UNAVAILABLE, workers keep what they hold.\n"
    "Exit status: 0 stopped, 1 failed while running, 2 not started (what to change is said).\n"
    "\n";

absl::Status SetDuration(const std::string& text, absl::Duration* out) {
  auto parsed = ParsePositiveDuration(text);
  if (parsed.ok()) *out = *parsed;
  return parsed.status();
}

absl::Status SetBool(const std::string& text, bool* out) {
  if (absl::SimpleAtob(text, out)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", text, "': true or false is allowed"));
}

absl::Status SetMode(const std::string& text, uint32_t* out) {
  char* end = nullptr;
  const unsigned long mode = std::strtoul(text.c_str(), &end, 8);
  if (text.empty() || *end != '\0' || mode > 0777) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': an octal mode from 0 to 0777 is allowed, such as 0660"));
  }
  *out = static_cast<uint32_t>(mode);
  return absl::OkStatus();
}

absl::Status AddAddresses(const std::string& text, std::vector<Address>* out) {
  for (absl::string_view one : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    auto address = ParseAddress(one);
    if (!address.ok()) return address.status();
    out->push_back(*std::move(address));
  }
  return absl::OkStatus();
}

absl::Status SetLogFormat(const std::string& text, LogFormat* out) {
  if (text != "text" && text != "json") {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': text or json is allowed"));
  }
  *out = text == "json" ? LogFormat::kJson : LogFormat::kText;
  return absl::OkStatus();
}

absl::Status SetLogLevel(const std::string& text, LogLevel* out) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (text != NameOf(level)) continue;
    *out = level;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "': debug, info, warning or error is allowed"));
}

void AddPath(const char* name, const char* help, std::string* out, FlagSet* flags) {
  flags->Add({name, "FILE", help, [out](const std::string& text) {
                *out = text;
                return absl::OkStatus();
              }});
}

void AddTlsFlags(Options* options, FlagSet* flags) {
  AddPath("tls-cert",
          "PEM file of the broker's certificate, followed by those between it and its CA. With "
          "--tls-key and --tls-client-ca it turns TLS on for every TCP address. The three files "
          "are looked at again at each connection: renewed ones serve from the next one on, broken "
          "ones are logged and change nothing.",
          &options->tls.cert, flags);
  AddPath("tls-key", "PEM file of its private key, without a password.", &options->tls.key, flags);
  AddPath("tls-client-ca",
          "PEM file of the CAs that issue client certificates; nobody connects without one. Its "
          "subject alternative names give the roles: URI:vram-broker:role/worker, .../driver, "
          ".../viewer, .../admin.",
          &options->tls.client_ca, flags);
  flags->Add(
      {"plain-loopback", "",
       "Allow TCP without TLS at loopback hosts (127.0.0.1, [::1], localhost). Everybody on "
       "the machine then has all roles. Default: false.",
       [options](const std::string& text) { return SetBool(text, &options->plain_loopback); }});
}

// An address that is asked for has to be there.
absl::Status SetHttpAddress(const std::string& text, std::string* address, bool* if_possible) {
  *address = text;
  *if_possible = false;
  return text.empty() ? absl::OkStatus() : observe::CheckHttpAddress(text);
}

void AddHttpFlags(Options* options, FlagSet* flags) {
  flags->Add({"metrics-address", "HOST:PORT",
              "Where Prometheus scrapes /metrics, over plain HTTP: names of workers, pods and "
              "pipelines, and figures, for whoever reaches it. Empty: nowhere; port 0: any that is "
              "free, as the log says. Default: 127.0.0.1:9464, and none where that is taken.",
              [options](const std::string& text) {
                return SetHttpAddress(text, &options->metrics_address,
                                      &options->metrics_if_possible);
              }});
  flags->Add({"page-address", "HOST:PORT",
              "Where people look at the broker with a browser, over plain HTTP: the picture, the "
              "last decisions and why, for whoever reaches it; nothing can be changed there. A "
              "loopback address answers its own machine only. Empty: nowhere; port 0: any that is "
              "free, as the log says. Default: 127.0.0.1:9465, and none where that is taken.",
              [options](const std::string& text) {
                return SetHttpAddress(text, &options->page_address, &options->page_if_possible);
              }});
}

void AddPlaceFlags(Options* options, FlagSet* flags) {
  flags->Add(
      {"listen", "unix:PATH|HOST:PORT",
       "Where to listen; several are given by repeating it or with commas between. TCP needs "
       "--tls-cert, --tls-key and --tls-client-ca, or --plain-loopback. Default: "
       "unix:DIR/broker.sock, "
       "where DIR is "
       "/run/vram-broker if that is writable or can be made, else "
       "$XDG_RUNTIME_DIR/vram-broker, else "
       "/run/user/<uid>/vram-broker.",
       [options](const std::string& text) { return AddAddresses(text, &options->listen); }, true});
  flags->Add({"socket-mode", "0660", "Mode of the Unix sockets, octal. Default: 0660.",
              [options](const std::string& text) { return SetMode(text, &options->socket_mode); }});
  flags->Add({"socket-group", "GROUP", "Group of the Unix sockets. Default: the process's.",
              [options](const std::string& text) {
                options->socket_group = text;
                return absl::OkStatus();
              }});
  flags->Add({"admin-group", "GROUP",
              "Over the Unix sockets the role admin (Drain) is for root, the broker's own user and "
              "members of this group. Default: for everybody who may connect; the roles worker, "
              "driver and viewer always are.",
              [options](const std::string& text) {
                options->admin_group = text;
                return absl::OkStatus();
              }});
  AddTlsFlags(options, flags);
  flags->Add({"device", "UUID[=SIZE]",
              "A card or MIG instance to manage, by UUID as nvidia-smi -L lists it, and the share "
              "of it to give "
              "out. Repeatable. Default: all, unless an emulated one is given.",
              [options](const std::string& text) { return AddDevice(text, &options->devices); },
              true});
  flags->Add({"emulated-device", "NAME=SIZE[,rate=BYTES_A_SECOND][,lag=DURATION]",
              "A card made of shared memory (emulated:NAME), for machines without a GPU, such as "
              "a=24GiB,rate=29.9e9,lag=250ms. It is made where there is none that a process has "
              "open, and then removed at the end. "
              "Repeatable.",
              [options](const std::string& text) {
                return AddEmulatedDevice(text, &options->emulated_devices);
              },
              true});
  flags->Add({"lock-dir", "DIR",
              "Directory of the device locks, one for all brokers and workers of the machine. "
              "Default: the "
              "DIR of --listen's default.",
              [options](const std::string& text) {
                options->lock_dir = text;
                return absl::OkStatus();
              }});
  AddHttpFlags(options, flags);
  flags->Add(
      {"log-format", "text|json", "Lines on stderr, one for an event. Default: text.",
       [options](const std::string& text) { return SetLogFormat(text, &options->log_format); }});
}

constexpr int64_t kLeastDecisionLog = int64_t{64} << 10;
constexpr int kMostDecisionLogs = 100;

void AddDecisionLogFlags(Options* options, FlagSet* flags) {
  AddPath("decision-log",
          "Keep every decision with what it was made from, and what was done, as lines of JSON: "
          "vramctl replay reads them. Added to where it is there. Default: none is kept.",
          &options->decision_log, flags);
  flags->Add({"decision-log-max-size", "SIZE",
              "A file of this size becomes FILE.1, that FILE.2 and so on. Default: 64MiB; 64KiB at "
              "least.",
              [options](const std::string& text) {
                auto bytes = ParseBytes(text);
                if (!bytes.ok()) return bytes.status();
                if (*bytes < kLeastDecisionLog) {
                  return absl::InvalidArgumentError(
                      absl::StrCat("'", text, "': 64KiB to 64TiB is allowed"));
                }
                options->decision_log_max_bytes = *bytes;
                return absl::OkStatus();
              }});
  flags->Add({"decision-log-files", "N",
              "Files that are kept, FILE included; the oldest goes. Default: 4.",
              [options](const std::string& text) {
                int files = 0;
                if (!absl::SimpleAtoi(text, &files) || files < 1 || files > kMostDecisionLogs) {
                  return absl::InvalidArgumentError(
                      absl::StrCat("'", text, "': 1 to ", kMostDecisionLogs, " is allowed"));
                }
                options->decision_log_files = files;
                return absl::OkStatus();
              }});
}

void AddLogLevelFlag(Options* options, FlagSet* flags) {
  flags->Add(
      {"log-level", "debug|info|warning|error",
       "Lines on stderr from this level on. debug: every event that was decided and the time "
       "it took; info: sessions, decisions, refusals; warning: what somebody should look "
       "at; error: what was asked for and is lost. Default: info.",
       [options](const std::string& text) { return SetLogLevel(text, &options->log_level); }});
}

void AddDuration(const char* name, const char* help, absl::Duration* out, FlagSet* flags) {
  flags->Add({name, "DURATION", absl::StrCat(help, " Default: ", absl::FormatDuration(*out), "."),
              [out](const std::string& text) { return SetDuration(text, out); }});
}

void AddDecisionFlags(Options* options, FlagSet* flags) {
  flags->Add({"reserve", "SIZE",
              "Bytes of each device that are never granted. Default: 512MiB; 0: none.",
              [options](const std::string& text) {
                auto bytes = ParseBytes(text);
                if (bytes.ok()) options->reserve_bytes = *bytes;
                return bytes.status();
              }});
  core::Config* core = &options->core;
  AddDuration("grow-wait", "A use waits at most this long for bytes on their way.",
              &core->grow_wait, flags);
  AddDuration("max-wait", "After waiting this long only age counts in the queue.", &core->max_wait,
              flags);
  AddDuration(
      "long-wait",
      "A use that waits this long is named in the log, with who holds what, again each time "
      "that it has waited twice as long; the metrics count it, vramctl status and the page "
      "mark it.",
      &core->long_wait, flags);
  AddDuration("release-deadline", "Workers have this long to release down to a target.",
              &core->release_deadline, flags);
  AddDuration(
      "settling-time",
      "Driver readings may lag this much; without any reading, proven death counts after it.",
      &core->settling_time, flags);
  AddDuration("expect-for",
              "Where uses came again and again, what the next needs is kept this long after the "
              "last, if nobody wants the room, or a few times the longest time between two.",
              &core->expect_for, flags);
  AddDuration("minimum-residency",
              "What came less than this ago makes no room for what is loaded ahead of a use that "
              "nobody declared; bytes that come back within it count as regretted.",
              &core->minimum_residency, flags);
  AddDuration("recovery-window",
              "From its start a broker lets nothing grow until all workers on record have "
              "attached again or are gone and the driver was read, and at most for this long.",
              &core->recovery_window, flags);
  AddDuration("run-grace", "Declared runs outlive their driver's session by this.",
              &core->run_grace, flags);
  AddDuration("orphan-after",
              "What workers retained when they lost the broker they drop after this.",
              &core->orphan_after, flags);
  AddDuration("reading-interval", "Time between two readings of a device, 10ms at least.",
              &options->reading_interval, flags);
  flags->Add({"load-ahead", "",
              absl::StrCat("Load idle components ahead of uses that are known to come. ",
                           "Default: ", core->load_ahead ? "true" : "false",
                           "; --load-ahead=false turns it off."),
              [core](const std::string& text) { return SetBool(text, &core->load_ahead); }});
}

void AddHostPinFlags(Options* options, FlagSet* flags) {
  core::Config* core = &options->core;
  flags->Add({"host-pin-fraction", "FRACTION",
              "Of the host memory that workers may use, the machine's and their container's, they "
              "may pin (page-lock) so much together; the rest of what they wish stays pageable. 0 "
              "to 1; 0: nobody pins. Nobody is allowed more for --recovery-window from the start. "
              "Default: 0.5.",
              [core](const std::string& text) {
                double fraction = 0;
                if (!absl::SimpleAtod(text, &fraction) || !(fraction >= 0 && fraction <= 1)) {
                  return absl::InvalidArgumentError(
                      absl::StrCat("'", text, "': 0 to 1 is allowed, such as 0.5"));
                }
                core->host_pin_fraction = fraction;
                return absl::OkStatus();
              }});
  flags->Add({"host-pin-budget", "SIZE",
              "Host bytes that all workers of the machine may pin together. Default: 0, which is "
              "--host-pin-fraction of the machine's memory.",
              [core](const std::string& text) {
                auto bytes = ParseBytes(text);
                if (bytes.ok()) core->host_pin_budget = core::Bytes(*bytes);
                return bytes.status();
              }});
}

absl::Status CheckTogether(const Options& options) {
  if (absl::Status status = CheckTransports(options); !status.ok()) return status;
  if (options.reading_interval < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--reading-interval: ", absl::FormatDuration(options.reading_interval),
                     " given, 10ms to 720h is allowed"));
  }
  if (options.core.release_deadline < absl::Milliseconds(1)) {
    return absl::InvalidArgumentError("--release-deadline: 0 given, 1ms to 720h is allowed");
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view NameOf(LogLevel level) {
  constexpr absl::string_view kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

absl::Status CheckTransports(const Options& options) {
  if (options.tls.any() && !options.tls.all()) {
    const bool no_cert = options.tls.cert.empty();
    const bool no_key = options.tls.key.empty();
    return absl::InvalidArgumentError(absl::StrCat(
        no_cert  ? "--tls-cert"
        : no_key ? "--tls-key"
                 : "--tls-client-ca",
        " is missing: --tls-cert, --tls-key and --tls-client-ca go together, or none of them"));
  }
  for (const Address& address : options.listen) {
    if (address.is_unix() || options.tls.all()) continue;
    if (IsLoopback(address) && options.plain_loopback) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: '", ToString(address),
        "' without TLS: anybody who reaches the port could drive the broker. Give --tls-cert, "
        "--tls-key and --tls-client-ca, or use a Unix socket, unix:PATH, which checks who is "
        "calling",
        IsLoopback(address) ? ", or allow everybody on this machine with --plain-loopback"
                            : "; without TLS only loopback hosts can be allowed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ParsedOptions> ParseOptions(const std::vector<std::string>& args,
                                           const GetEnv& get_env,
                                           const std::vector<std::string>& variables) {
  ParsedOptions parsed;
  parsed.options.metrics_address = kDefaultMetricsAddress;
  parsed.options.metrics_if_possible = true;
  parsed.options.page_address = kDefaultPageAddress;
  parsed.options.page_if_possible = true;
  FlagSet flags("VRAM_BROKERD_");
  AddPlaceFlags(&parsed.options, &flags);
  AddLogLevelFlag(&parsed.options, &flags);
  AddDecisionLogFlags(&parsed.options, &flags);
  AddDecisionFlags(&parsed.options, &flags);
  AddHostPinFlags(&parsed.options, &flags);
  if (absl::Status status = flags.Parse(args, get_env); !status.ok()) return status;
  parsed.help_wanted = flags.help_wanted();
  parsed.warnings = flags.UnknownVariables(variables);
  if (parsed.help_wanted) {
    parsed.help = absl::StrCat(kUsage, flags.Help());
    return parsed;
  }
  const std::string run_dir = DefaultRunDir();
  if (parsed.options.listen.empty())
    parsed.options.listen.push_back({run_dir + "/broker.sock", "", 0});
  if (parsed.options.lock_dir.empty()) parsed.options.lock_dir = run_dir;
  if (absl::Status status = CheckTogether(parsed.options); !status.ok()) return status;
  return parsed;
}

}  // namespace vrambroker::server
