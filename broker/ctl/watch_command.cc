#include "broker/ctl/watch_command.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "broker/ctl/connection.h"
#include "broker/ctl/picture_watcher.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/reader_watch.h"
#include "broker/ctl/render_picture.h"
#include "broker/ctl/terminal.h"
#include "broker/ctl/watch_frame.h"

namespace vrambroker::ctl {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(500);
constexpr absl::Duration kShortestInterval = absl::Milliseconds(50);
constexpr absl::Duration kLongestInterval = absl::Hours(1);
constexpr int kMostPictures = 1000000000;
// Between two drawings where nothing happens: clocks go on.
constexpr int kTickMs = 500;

constexpr char kWhat[] =
    "Shows the memory picture as it changes: on a terminal in place, like top, until q or Ctrl-C\n"
    "(? lists the keys); elsewhere one picture after another, as long as somebody reads them. "
    "Where\n"
    "the broker goes away it says so and tries again every second.\n\n  vramctl watch "
    "[flags]\n\nFlags:\n"
    "  --interval=DURATION            from one picture to the next, at least; 50ms to 1h;\n"
    "                                 default: 500ms\n"
    "  --count=N                      ends after so many pictures, 1 to 1000000000\n"
    "  --no-tty                       prints one after another on a terminal as well;\n"
    "                                 --format=json always does, each in one line\n";

constexpr char kStatuses[] =
    "  --timeout=DURATION             how long to wait for the first picture, 1h at most;\n"
    "                                 default: 5s\n\n"
    "$NO_COLOR, set to anything, takes the colours away.\n\n"
    "Exit status: 0 ended by a key, a signal or --count, 2 wrong arguments, a broker that did not\n"
    "answer at first or refuses, or a terminal that cannot be drawn on.\n";

std::vector<FlagSpec> Flags() {
  return WithConnectionFlags({{"interval"}, {"count"}, {"no-tty", false}});
}

struct Wanted {
  Connection connection;
  absl::Duration interval;
  int count = 0;  // 0: no end
  bool screen = false;
};

absl::StatusOr<Wanted> Understand(const std::vector<std::string>& arguments) {
  const auto parsed = Arguments::Parse(arguments, Flags());
  if (!parsed.ok()) return parsed.status();
  if (absl::Status status = CheckNoWords(*parsed); !status.ok()) return status;
  const auto connection = TakeConnection(*parsed, absl::ZeroDuration());
  if (!connection.ok()) return connection.status();
  const auto interval =
      TakeDuration(*parsed, "interval", kInterval, kShortestInterval, kLongestInterval);
  if (!interval.ok()) return interval.status();
  Wanted wanted = {*connection, *interval};
  const std::string count = parsed->Get("count", "");
  if (parsed->Has("count") && (!absl::SimpleAtoi(count, &wanted.count) || wanted.count < 1 ||
                               wanted.count > kMostPictures)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--count: '", count, "' given, 1 to ", kMostPictures, " is allowed"));
  }
  wanted.screen = !parsed->Has("no-tty") && !wanted.connection.json && Terminal::Usable();
  return wanted;
}

// Signals as something to poll. Made before any other thread, so that all leave them to it.
class Signals {
 public:
  explicit Signals(bool screen) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
    if (screen) {
      for (const int signal : {SIGWINCH, SIGTSTP, SIGCONT}) sigaddset(&set, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() { close(fd_); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  // The next that has come. 0: none.
  int Next() const {
    signalfd_siginfo info = {};
    return read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  int fd_ = -1;
};

class Watch {
 public:
  Watch(const Wanted& wanted, const std::shared_ptr<grpc::Channel>& channel, Signals* signals,
        std::ostream& out, std::ostream& error)
      : wanted_(wanted),
        signals_(signals),
        out_(out),
        error_(error),
        watcher_(channel, wanted.interval) {}

  int Run();

 private:
  // Each of these gives the exit status where this is the end.
  std::optional<int> TakeNews();
  std::optional<int> Show();
  std::optional<int> Draw();
  std::optional<int> EnterScreen();
  std::optional<int> Wait();
  std::optional<int> TakeSignals();
  std::optional<int> TakeKeys();
  int Fail(const grpc::Status& status);
  int Fail(const absl::Status& status);
  void TellTrouble(const grpc::Status& status);
  // Gives the terminal back until somebody continues this process.
  std::optional<int> Suspend();

  const Wanted& wanted_;
  Signals* const signals_;
  std::ostream& out_;
  std::ostream& error_;
  const absl::Time begun_ = absl::Now();
  PictureWatcher watcher_;
  std::shared_ptr<const v1::Picture> picture_;  // null until the first comes
  absl::Time received_;
  std::string trouble_;
  int shown_ = 0;
  // Of the screen.
  Terminal terminal_;
  bool on_screen_ = false;
  KeyReader keys_;
  WatchView view_;
  WatchFrame frame_;
  std::vector<std::string> drawn_;  // what the screen shows
  bool stale_ = true;               // nobody knows what it shows
};

int Watch::Run() {
  while (true) {
    if (const auto end = TakeNews(); end.has_value()) return *end;
    if (on_screen_) {
      if (const auto end = Draw(); end.has_value()) return *end;
    }
    if (wanted_.count > 0 && shown_ >= wanted_.count) return kDone;
    if (const auto end = Wait(); end.has_value()) return *end;
  }
}

int Watch::Fail(const grpc::Status& status) {
  terminal_.Leave();
  TellFailure(status, wanted_.connection, error_);
  return kFailed;
}

int Watch::Fail(const absl::Status& status) {
  terminal_.Leave();
  error_ << "vramctl: " << status.message() << "\n";
  return kFailed;
}

void Watch::TellTrouble(const grpc::Status& status) {
  const std::string trouble = status.ok() ? "" : status.error_message();
  if (!on_screen_ && trouble_.empty() != trouble.empty()) {
    error_ << "vramctl: the broker at " << wanted_.connection.address
           << (trouble.empty() ? " is back\n"
                               : absl::StrCat(": ", Printable(trouble), "; trying again\n"))
           << std::flush;
  }
  trouble_ = trouble;
}

std::optional<int> Watch::TakeNews() {
  const PictureWatcher::News news = watcher_.Take();
  if (news.over || (news.picture == nullptr && picture_ == nullptr && !news.status.ok())) {
    return Fail(news.status);
  }
  if (picture_ == nullptr && news.picture == nullptr &&
      absl::Now() - begun_ > wanted_.connection.timeout) {
    return Fail(grpc::Status(
        grpc::StatusCode::DEADLINE_EXCEEDED,
        absl::StrCat("no picture came within ", absl::FormatDuration(wanted_.connection.timeout))));
  }
  std::optional<int> end;
  if (news.picture != nullptr) {
    picture_ = news.picture;
    received_ = news.received;
    TellTrouble(grpc::Status::OK);
    end = Show();
  }
  if (!news.status.ok()) TellTrouble(news.status);
  return end;
}

std::optional<int> Watch::Show() {
  ++shown_;
  if (wanted_.screen) {
    if (on_screen_) return std::nullopt;
    on_screen_ = true;
    return EnterScreen();
  }
  if (wanted_.connection.json) {
    const auto json = JsonOf(*picture_, /*lines=*/false);
    if (!json.ok()) return Fail(json.status());
    out_ << *json << std::flush;
  } else {
    constexpr size_t kColumns = 80;
    out_ << "--- " << absl::FormatTime("%Y-%m-%d %H:%M:%E3S", received_, absl::LocalTimeZone())
         << " ---\n"
         << PaintAll(PictureLines(*picture_, ColumnsOf(STDOUT_FILENO, kColumns)),
                     MayColour(STDOUT_FILENO))
         << "\n"
         << std::flush;
  }
  // That it could not be written is said at the end.
  return out_.good() ? std::nullopt : std::optional<int>(kFailed);
}

std::optional<int> Watch::Draw() {
  const TerminalSize size = terminal_.Size();
  const absl::Time now = absl::Now();
  frame_ = MakeFrame({wanted_.connection.address, picture_.get(), now - received_, now, trouble_},
                     view_, size.columns, size.rows);
  const bool colour = MayColour(STDOUT_FILENO);
  std::vector<std::string> lines;
  for (const Line& line : frame_.lines) lines.push_back(Paint(line, colour, size.columns));
  absl::Status drawn;
  if (stale_) drawn = terminal_.Clear();
  if (stale_) drawn_.clear();
  stale_ = false;
  if (drawn.ok()) drawn = terminal_.Write(DrawingOf(lines, drawn_));
  drawn_ = std::move(lines);
  return drawn.ok() ? std::nullopt : std::optional<int>(Fail(drawn));
}

std::optional<int> Watch::EnterScreen() {
  stale_ = true;
  const absl::Status entered = terminal_.Enter();
  return entered.ok() ? std::nullopt : std::optional<int>(Fail(entered));
}

std::optional<int> Watch::Wait() {
  pollfd fds[] = {{watcher_.fd(), POLLIN, 0},
                  {signals_->fd(), POLLIN, 0},
                  {on_screen_ ? STDIN_FILENO : -1, POLLIN, 0},
                  {on_screen_ || &out_ != &std::cout ? -1 : STDOUT_FILENO, 0, 0}};
  const int ready = poll(fds, 4, kTickMs);
  if (fds[1].revents != 0) {
    if (const auto end = TakeSignals(); end.has_value()) return end;
  }
  if (fds[2].revents != 0) return TakeKeys();
  if (ReaderLeft(fds[3])) {
    EndWithReader();
    return kFailed;
  }
  if (ready == 0) keys_.Flush();
  return std::nullopt;
}

std::optional<int> Watch::TakeSignals() {
  while (const int signal = signals_->Next()) {
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return kDone;
    if (!on_screen_) continue;
    if (signal == SIGWINCH) stale_ = true;
    std::optional<int> end;
    if (signal == SIGTSTP) end = Suspend();
    if (signal == SIGCONT) end = EnterScreen();
    if (end.has_value()) return end;
  }
  return std::nullopt;
}

std::optional<int> Watch::Suspend() {
  terminal_.Leave();
  raise(SIGSTOP);
  return EnterScreen();
}

std::optional<int> Watch::TakeKeys() {
  const std::string typed = terminal_.Read();
  if (typed.empty()) return kDone;
  for (const Key key : keys_.Feed(typed)) {
    if (key == Key::kQuit) return kDone;
    if (key == Key::kRedraw) stale_ = true;
    view_ = After(key, view_, *picture_, frame_);
  }
  return std::nullopt;
}

int RunWatch(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<Wanted> wanted = Understand(arguments);
  if (!wanted.ok()) {
    TellMisuse("watch", wanted.status(), error);
    return kFailed;
  }
  Signals signals(wanted->screen);
  const auto channel = Connect(wanted->connection);
  if (!channel.ok()) {
    error << "vramctl: " << channel.status().message() << "\n";
    return kFailed;
  }
  return Watch(*wanted, *channel, &signals, out, error).Run();
}

}  // namespace

Command WatchCommand() {
  return {"watch",
          "",
          "the picture as it changes, in place on a terminal",
          absl::StrCat(kWhat, kConnectionUsage, kStatuses),
          Flags(),
          RunWatch};
}

}  // namespace vrambroker::ctl
