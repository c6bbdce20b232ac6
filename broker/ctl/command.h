// What vramctl can do: one table, from which help, completion and the program itself are made.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "broker/ctl/arguments.h"

namespace vrambroker::ctl {

// Exit statuses that all commands share; a command's help says when each is given.
inline constexpr int kDone = 0;
inline constexpr int kNotSo = 1;
inline constexpr int kFailed = 2;

struct Command {
  std::string name;
  // What follows the name, for people: "ID". Empty: nothing.
  std::string words;
  // One line, without a full stop.
  std::string summary;
  // What --help prints.
  std::string usage;
  std::vector<FlagSpec> flags;
  // `arguments`: those after the name. Returns the exit status.
  int (*run)(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);
  // What the words may be, as FlagSpec::values. Empty: there are none.
  std::string word_values = {};
};

}  // namespace vrambroker::ctl
