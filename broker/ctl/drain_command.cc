#include "broker/ctl/drain_command.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "broker/ctl/connection.h"
#include "broker/ctl/picture_watcher.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/render.h"
#include "vrambroker/v1/admin.grpc.pb.h"

namespace vrambroker::ctl {
namespace {

constexpr absl::Duration kWaitLimit = absl::Minutes(10);
constexpr absl::Duration kLongestWait = absl::Hours(24);
// Names that progress shows; of more it shows the count.
constexpr size_t kNamesShown = 4;

constexpr char kWhat[] =
    "Drains the broker, as before it is stopped or the machine is taken down: from now on it\n"
    "admits no use (workers that ask are told UNAVAILABLE and wait), has everything released that\n"
    "components keep between uses, and lets uses that run go on to their end. That lasts until\n"
    "the broker is restarted: nothing takes it back. It needs the role admin.\n\n"
    "  vramctl drain [flags]\n\nFlags:\n"
    "  --yes                          does not ask; without it a terminal is asked, and nobody\n"
    "                                 else can be\n"
    "  --wait                         waits until no use runs, and says what it waits for\n"
    "  --wait-limit=DURATION          how long to wait at most, up to 24h; default: 10m\n";

constexpr char kStatuses[] =
    "  --timeout=DURATION             how long to wait for each answer, and for a broker that "
    "goes\n"
    "                                 away meanwhile, 1h at most; default: 5s\n\n"
    "Exit status: 0 it drains (with --wait: and no use runs any more), 1 it was not confirmed, or\n"
    "uses still run after --wait-limit, or the broker was restarted meanwhile and drains no more,\n"
    "2 wrong arguments, nobody to ask, no answer, or a refusal.\n";

std::vector<FlagSpec> Flags() {
  return WithConnectionFlags({{"yes", false}, {"wait", false}, {"wait-limit"}});
}

struct Wanted {
  Connection connection;
  bool yes = false;
  bool wait = false;
  absl::Duration wait_limit;
};

absl::StatusOr<Wanted> Understand(const std::vector<std::string>& arguments) {
  const auto parsed = Arguments::Parse(arguments, Flags());
  if (!parsed.ok()) return parsed.status();
  if (absl::Status status = CheckNoWords(*parsed); !status.ok()) return status;
  absl::StatusOr<Connection> connection = TakeConnection(*parsed, absl::ZeroDuration());
  if (!connection.ok()) return connection.status();
  const auto limit =
      TakeDuration(*parsed, "wait-limit", kWaitLimit, absl::ZeroDuration(), kLongestWait);
  if (!limit.ok()) return limit.status();
  const Wanted wanted = {*connection, parsed->Has("yes"), parsed->Has("wait"), *limit};
  if (parsed->Has("wait-limit") && !wanted.wait) {
    return absl::InvalidArgumentError("--wait-limit: given without --wait, which it limits");
  }
  return wanted;
}

// One drain: the broker, and where to speak.
struct Drainer {
  const Wanted& wanted;
  std::shared_ptr<grpc::Channel> channel;
  std::ostream& out;
  std::ostream& error;

  // None: that no answer came was said.
  std::optional<DrainState> Look() const;
  bool Drain() const;
  // Whether somebody says yes. The question goes to standard error.
  bool Confirmed(const DrainState& state) const;
  // Until no use runs; the exit status.
  int Wait() const;
  void Report(const DrainState& state) const;
};

std::optional<DrainState> Drainer::Look() const {
  grpc::ClientContext context;
  wanted.connection.SetDeadline(&context);
  v1::Picture picture;
  const grpc::Status status =
      v1::BrokerAdmin::NewStub(channel)->GetPicture(&context, v1::GetPictureRequest(), &picture);
  if (status.ok()) return DrainStateOf(picture);
  TellFailure(status, wanted.connection, error);
  return std::nullopt;
}

bool Drainer::Drain() const {
  grpc::ClientContext context;
  wanted.connection.SetDeadline(&context);
  v1::DrainResponse response;
  const grpc::Status status =
      v1::BrokerAdmin::NewStub(channel)->Drain(&context, v1::DrainRequest(), &response);
  if (!status.ok()) TellFailure(status, wanted.connection, error);
  return status.ok();
}

bool Drainer::Confirmed(const DrainState& state) const {
  error << "Drain the broker at " << wanted.connection.address << "?\n  " << DrainProgress(state)
        << ".\n  It admits no use until it is restarted; what is kept between uses is released; "
           "uses that run go on.\nType yes to drain it: "
        << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "yes" || answer == "y";
}

void Drainer::Report(const DrainState& state) const {
  if (wanted.connection.json) {
    out << "{\"draining\": " << (state.draining ? "true" : "false")
        << ", \"running_uses\": " << state.running.size()
        << ", \"kept_bytes\": " << state.kept_bytes << "}\n";
  } else {
    out << (state.draining ? "draining: " : "not draining: ") << DrainProgress(state) << "\n";
  }
}

// A restarted broker knows of no drain.
int TellRestarted(const Drainer& drainer, const DrainState& state) {
  drainer.error << "vramctl: the broker was restarted meanwhile and drains no more\n";
  drainer.Report(state);
  return kNotSo;
}

// How a look at the picture leaves the wait: an exit status, or none, to go on.
struct Waiting {
  const Drainer& drainer;
  absl::Time deadline;
  DrainState state = {};
  std::string told = {};
  // Of a connection that is broken; the status that it broke with.
  absl::Time broken_since = absl::InfiniteFuture();
  grpc::Status status = {};

  std::optional<int> Look(const PictureWatcher::News& news, absl::Time now);
};

std::optional<int> Waiting::Look(const PictureWatcher::News& news, absl::Time now) {
  const Connection& connection = drainer.wanted.connection;
  status = news.status;
  broken_since = status.ok() ? absl::InfiniteFuture() : std::min(broken_since, now);
  if (news.over || now - broken_since > connection.timeout) {
    TellFailure(status, connection, drainer.error);
    return kFailed;
  }
  if (news.picture != nullptr) {
    state = DrainStateOf(*news.picture);
    if (!state.draining) return TellRestarted(drainer, state);
    if (state.running.empty()) {
      drainer.Report(state);
      return kDone;
    }
    const std::string progress = DrainProgress(state);
    if (progress != told) drainer.error << "vramctl: waiting: " << progress << "\n" << std::flush;
    told = progress;
  }
  if (now < deadline) return std::nullopt;
  drainer.error << "vramctl: uses still run after "
                << absl::FormatDuration(drainer.wanted.wait_limit)
                << ", the --wait-limit; the broker drains on\n";
  drainer.Report(state);
  return kNotSo;
}

int Drainer::Wait() const {
  constexpr int kLookAgainMs = 100;
  Waiting waiting = {*this, absl::Now() + wanted.wait_limit};
  PictureWatcher watcher(channel, absl::Milliseconds(200));
  while (true) {
    if (const auto end = waiting.Look(watcher.Take(), absl::Now()); end.has_value()) return *end;
    pollfd news = {watcher.fd(), POLLIN, 0};
    poll(&news, 1, kLookAgainMs);
  }
}

int Drain(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<Wanted> wanted = Understand(arguments);
  if (!wanted.ok()) {
    TellMisuse("drain", wanted.status(), error);
    return kFailed;
  }
  if (!wanted->yes && isatty(STDIN_FILENO) != 1) {
    error << "vramctl: drain asks before it does so, and standard input is no terminal: --yes "
             "answers\n";
    return kFailed;
  }
  const auto channel = Connect(wanted->connection);
  if (!channel.ok()) {
    error << "vramctl: " << channel.status().message() << "\n";
    return kFailed;
  }
  const Drainer drainer = {*wanted, *channel, out, error};
  std::optional<DrainState> state = drainer.Look();
  if (!state.has_value()) return kFailed;
  if (!wanted->yes && !state->draining && !drainer.Confirmed(*state)) {
    error << "vramctl: not drained: it was not confirmed\n";
    return kNotSo;
  }
  if (!drainer.Drain()) return kFailed;
  if (wanted->wait) return drainer.Wait();
  state = drainer.Look();
  if (!state.has_value()) return kFailed;
  drainer.Report(*state);
  return kDone;
}

}  // namespace

DrainState DrainStateOf(const v1::Picture& picture) {
  DrainState state;
  state.draining = picture.draining();
  for (const v1::DevicePicture& device : picture.devices()) {
    for (const v1::ComponentPicture& one : device.components()) {
      if (one.use_id() != 0) {
        state.running.push_back(one.id());
      } else if (one.lifetime() != v1::LIFETIME_PERMANENT && one.held_bytes() > 0) {
        ++state.keeping;
        state.kept_bytes += one.held_bytes();
      }
    }
  }
  return state;
}

std::string DrainProgress(const DrainState& state) {
  std::string out = "no use runs";
  if (!state.running.empty()) {
    const size_t shown = std::min(state.running.size(), kNamesShown);
    const auto end = state.running.begin() + static_cast<std::ptrdiff_t>(shown);
    out = absl::StrCat(state.running.size(), state.running.size() == 1 ? " use runs" : " uses run",
                       " (", PrintableAscii(absl::StrJoin(state.running.begin(), end, ", ")));
    if (state.running.size() > shown) {
      absl::StrAppend(&out, " and ", state.running.size() - shown, " more");
    }
    out += ")";
  }
  if (state.keeping == 0) return out + ", nothing is kept between uses";
  return absl::StrCat(out, ", ", RenderBytes(state.kept_bytes), " kept by ", state.keeping,
                      state.keeping == 1 ? " component" : " components", " without a use");
}

Command DrainCommand() {
  return {"drain",
          "",
          "no use from now on, until the broker is restarted",
          absl::StrCat(kWhat, kConnectionUsage, kStatuses),
          Flags(),
          Drain};
}

}  // namespace vrambroker::ctl
