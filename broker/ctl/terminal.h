// A terminal that a program draws on: its alternate screen, keys as they are pressed, and all as it
// was when the program ends.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace vrambroker::ctl {

struct TerminalSize {
  size_t columns = 80;
  size_t rows = 24;
};

// Plain sequences of ECMA-48 and xterm's alternate screen, which every terminal of today has: no
// data base of terminals is needed beside the program.
class Terminal {
 public:
  // Whether this process has one that can be drawn on: standard input and output both, other than
  // "dumb".
  static bool Usable();

  Terminal() = default;
  // Leaves it.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Takes the alternate screen, which is blank then, and the keys; again after Leave, or after
  // somebody else has changed its modes.
  absl::Status Enter();
  // Gives back the screen, the cursor and the modes as they were before the first Enter.
  void Leave();
  TerminalSize Size() const;
  // In one write, which may be short: nothing is lost of it. INTERNAL where it cannot be written
  // to.
  absl::Status Write(const std::string& drawing);
  // A blank screen.
  absl::Status Clear();
  // What was typed: at least one byte, once the descriptor of standard input is readable. Empty:
  // the terminal is gone.
  std::string Read();

 private:
  bool entered_ = false;
  bool saved_ = false;
  termios before_ = {};
};

}  // namespace vrambroker::ctl
