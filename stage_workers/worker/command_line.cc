#include "stage_workers/worker/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace vrambroker::worker {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int kHelpColumns = 96;

// "--time-scale=8" as "--time_scale=8"; what is not a flag as it is.
std::string WithUnderscores(const std::string& argument) {
  if (argument.size() < 3 || argument[0] != '-') return argument;
  const size_t name = argument[1] == '-' ? 2 : 1;
  const size_t end = std::min(argument.find('='), argument.size());
  std::string result = argument;
  std::replace(result.begin() + name, result.begin() + end, '-', '_');
  return result;
}

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

// Refuses flags that exist in the program but do nothing in this command.
void RefuseForeignFlags(const std::vector<std::string>& arguments, const CommandHelp& help) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") return;
    if (argument.rfind("--", 0) != 0) continue;
    std::string name = WithDashes(argument.substr(2, argument.find('=') - 2));
    if (absl::FindCommandLineFlag(absl::StrReplaceAll(name, {{"-", "_"}})) == nullptr) continue;
    if (std::find(help.flags.begin(), help.flags.end(), name) != help.flags.end()) continue;
    std::fprintf(stderr, "--%s does nothing here; --help lists the flags that do\n", name.c_str());
    std::exit(2);
  }
}

}  // namespace

std::vector<std::string> ParseCommandLine(int argc, char** argv, const CommandHelp& help) {
  absl::SetProgramUsageMessage(help.usage);
  if (AsksForHelp(argc, argv)) {
    PrintHelp(help);
    std::exit(0);
  }
  std::vector<std::string> arguments(argv, argv + argc);
  for (int i = 1; i < argc && arguments[i] != "--"; ++i) {
    arguments[i] = WithUnderscores(arguments[i]);
  }
  RefuseForeignFlags(arguments, help);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  std::vector<char*> rest = absl::ParseCommandLine(argc, pointers.data());
  return std::vector<std::string>(rest.begin() + 1, rest.end());
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
        field, ": '", text, "' given; 0 to 1024TiB is allowed, as in 24GiB, 512MiB or 1048576"));
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
