#include "stage_workers/worker/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"

namespace vrambroker::worker {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 46;
constexpr int kHelpColumns = 96;

std::string WithDashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Prints `text` in lines of at most kHelpColumns, each with `indent` blanks before it.
void PrintWrapped(const std::string& text, int indent) {
  size_t begin = 0;
  const size_t width = kHelpColumns - indent;
  while (begin < text.size()) {
    size_t end = text.size();
    if (end - begin > width) {
      end = text.rfind(' ', begin + width);
      if (end == std::string::npos || end <= begin) end = std::min(text.size(), begin + width);
    }
    std::printf("%*s%s\n", indent, "", text.substr(begin, end - begin).c_str());
    begin = end;
    while (begin < text.size() && text[begin] == ' ') ++begin;
  }
}

void PrintHelp(const CommandHelp& help) {
  std::printf("%s\n", help.usage.c_str());
  if (!help.flags.empty()) std::printf("\nFlags:\n");
  for (const std::string& name : help.flags) {
    const absl::CommandLineFlag* flag =
        absl::FindCommandLineFlag(absl::StrReplaceAll(name, {{"-", "_"}}));
    if (flag == nullptr) continue;
    const std::string value = flag->DefaultValue();
    std::printf("  --%s%s\n", name.c_str(),
                value.empty() ? "" : absl::StrCat("  (default ", value, ")").c_str());
    PrintWrapped(flag->Help(), 6);
  }
}

bool AsksForHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--") == 0) return false;
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) return true;
  }
  return false;
}

absl::Status Refusal(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, what));
}

// What values of the flag look like.
const char* Allowed(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<int>() || flag.IsOfType<int64_t>()) return "a whole number";
  if (flag.IsOfType<double>()) return "a number";
  if (flag.IsOfType<absl::Duration>()) return "a duration such as 500ms, 30s or 5m";
  return "another value";
}

// The flag of this name. Null: the command has none; flags of the program that do nothing in this
// command are none of its own.
absl::CommandLineFlag* FindFlag(const std::string& name, const CommandHelp& help) {
  if (std::find(help.flags.begin(), help.flags.end(), name) == help.flags.end()) return nullptr;
  return absl::FindCommandLineFlag(absl::StrReplaceAll(name, {{"-", "_"}}));
}

absl::Status Set(absl::CommandLineFlag& flag, const std::string& name, const std::string& value) {
  std::string ignored;
  if (flag.ParseFrom(value, &ignored)) return absl::OkStatus();
  return Refusal(name, absl::StrCat(": '", value, "' given; ", Allowed(flag), " is allowed"));
}

// Takes the flag at argv[*i], and its value where that is the next argument.
absl::Status TakeFlag(int argc, char** argv, int* i, const CommandHelp& help) {
  const std::string argument = argv[*i];
  const size_t begin = argument[1] == '-' ? 2 : 1;
  const size_t equals = argument.find('=');
  const std::string name =
      WithDashes(argument.substr(begin, equals == std::string::npos ? equals : equals - begin));
  absl::CommandLineFlag* flag = FindFlag(name, help);
  if (flag == nullptr && equals == std::string::npos && name.rfind("no", 0) == 0) {
    flag = FindFlag(name.substr(2), help);
    if (flag != nullptr && flag->IsOfType<bool>()) return Set(*flag, name, "false");
    flag = nullptr;
  }
  if (flag == nullptr) return Refusal(name, " is no flag here; --help lists them");
  if (equals != std::string::npos) return Set(*flag, name, argument.substr(equals + 1));
  if (flag->IsOfType<bool>()) return Set(*flag, name, "true");
  if (*i + 1 >= argc) return Refusal(name, ": its value is missing");
  return Set(*flag, name, argv[++*i]);
}

}  // namespace

std::vector<std::string> ParseCommandLine(int argc, char** argv, const CommandHelp& help) {
  if (AsksForHelp(argc, argv)) {
    PrintHelp(help);
    std::exit(EndOfOutput(help.program, 0));
  }
  std::vector<std::string> rest;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") {
      rest.insert(rest.end(), argv + i + 1, argv + argc);
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      rest.push_back(argument);
      continue;
    }
    if (absl::Status status = TakeFlag(argc, argv, &i, help); !status.ok()) {
      std::fprintf(stderr, "%s: %s\n", help.program.c_str(), std::string(status.message()).c_str());
      std::exit(2);
    }
  }
  return rest;
}

int EndOfOutput(const std::string& program, int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "%s: cannot write to standard output%s%s\n", program.c_str(),
               errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno));
  return status == 0 ? 1 : status;
}

absl::StatusOr<int64_t> ParseBytes(const std::string& field, const std::string& text) {
  static constexpr std::pair<const char*, double> kUnits[] = {{"KiB", 1024.0},
                                                              {"MiB", 1024.0 * 1024},
                                                              {"GiB", 1024.0 * 1024 * 1024},
                                                              {"TiB", 1024.0 * 1024 * 1024 * 1024},
                                                              {"KB", 1e3},
                                                              {"MB", 1e6},
                                                              {"GB", 1e9},
                                                              {"TB", 1e12},
                                                              {"B", 1}};
  double unit = 1;
  std::string number = text;
  for (const auto& [name, factor] : kUnits) {
    const size_t length = std::strlen(name);
    if (text.size() > length && text.compare(text.size() - length, length, name) == 0) {
      number = text.substr(0, text.size() - length);
      unit = factor;
      break;
    }
  }
  double value = 0;
  if (number.empty() || !absl::SimpleAtod(number, &value) || !std::isfinite(value) || value < 0 ||
      value * unit > static_cast<double>(kMaxBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ": '", text, "' given; 0 to 64TiB is allowed, as in 24GiB, 512MiB or 1048576"));
  }
  return static_cast<int64_t>(std::llround(value * unit));
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(bytes, " B");
  return absl::StrFormat("%.2f %s", value, kNames[unit]);
}

}  // namespace vrambroker::worker
