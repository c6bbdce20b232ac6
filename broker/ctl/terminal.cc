#include "broker/ctl/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace vrambroker::ctl {
namespace {

constexpr char kTake[] = "\x1b[?1049h\x1b[?25l";
constexpr char kGiveBack[] = "\x1b[0m\x1b[?25h\x1b[?1049l";
constexpr char kClear[] = "\x1b[2J";

absl::Status Fault(const char* what) {
  return absl::InternalError(
      absl::StrCat("cannot ", what, " the terminal: ", std::strerror(errno)));
}

absl::Status WriteAll(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EAGAIN) {
      pollfd room = {STDOUT_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (written < 0 && errno != EINTR) {
      return Fault("write to");
    }
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

bool Terminal::Usable() {
  const char* kind = std::getenv("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && kind != nullptr &&
         *kind != '\0' && std::strcmp(kind, "dumb") != 0;
}

Terminal::~Terminal() { Leave(); }

absl::Status Terminal::Enter() {
  if (!saved_ && tcgetattr(STDIN_FILENO, &before_) != 0) return Fault("ask");
  saved_ = true;
  termios modes = before_;
  // Keys come as they are pressed and are not shown; Ctrl-C and Ctrl-Z stay signals.
  modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  if (tcsetattr(STDIN_FILENO, TCSADRAIN, &modes) != 0) return Fault("set");
  entered_ = true;
  return WriteAll(absl::StrCat(kTake, kClear));
}

void Terminal::Leave() {
  if (!entered_) return;
  entered_ = false;
  // Where this fails the terminal is gone, and nothing is left to restore.
  if (WriteAll(kGiveBack).ok()) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

TerminalSize Terminal::Size() const {
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  TerminalSize result;
  if (known && size.ws_col > 0) result.columns = size.ws_col;
  if (known && size.ws_row > 0) result.rows = size.ws_row;
  return result;
}

absl::Status Terminal::Write(const std::string& drawing) { return WriteAll(drawing); }

absl::Status Terminal::Clear() { return WriteAll(kClear); }

std::string Terminal::Read() {
  char buffer[256];
  const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
  return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
}

}  // namespace vrambroker::ctl
