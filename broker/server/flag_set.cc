#include "broker/server/flag_set.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "broker/observe/unique_fd.h"

namespace vrambroker::server {
namespace {

constexpr char kConfig[] = "config";
constexpr size_t kMostConfigBytes = size_t{1} << 20;

std::string Wrapped(const std::string& text, size_t width, const std::string& indent) {
  std::string out, line;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && line.size() + word.size() + 1 > width) {
      absl::StrAppend(&out, indent, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  return absl::StrCat(out, indent, line, "\n");
}

// Letters that must be put in, taken out or exchanged to make one of the other.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, exchanged});
    }
  }
  return row[b.size()];
}

// A regular file of kMostConfigBytes at most. Not to wait for the writer of a pipe, which is none.
absl::Status ReadBounded(const std::string& path, std::string* all) {
  const auto wrong = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--config: '", path, "' ", why));
  };
  const observe::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!fd.valid() || fstat(fd.get(), &found) != 0) {
    return wrong(absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  if (!S_ISREG(found.st_mode)) {
    return wrong(absl::StrCat(S_ISDIR(found.st_mode) ? "is a directory" : "is no regular file",
                              ", a file of name=value lines is allowed"));
  }
  // As much as there is, whatever was said of its size.
  all->resize(kMostConfigBytes + 1);
  size_t size = 0;
  while (size < all->size()) {
    const ssize_t got = read(fd.get(), all->data() + size, all->size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return wrong(absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMostConfigBytes) return wrong("is longer than 1 MiB, which is the bound");
  all->resize(size);
  return absl::OkStatus();
}

// As an orchestrator sets for a service of the same name: <SERVICE>_PORT_50051_TCP and the like.
bool IsServiceVariable(const std::string& rest) {
  return absl::StartsWith(rest, "SERVICE_") || rest == "PORT" || absl::StartsWith(rest, "PORT_");
}

}  // namespace

const Flag* FlagSet::Find(const std::string& name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string FlagSet::EnvName(const std::string& flag) const {
  return absl::StrCat(env_prefix_, absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}})));
}

absl::Status FlagSet::ReadArgs(const std::vector<std::string>& args, Values* values) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (!absl::StartsWith(args[i], "--")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", args[i], "' is no flag: only --name=value is taken, --help lists the names"));
    }
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    if (name == "help") {
      help_wanted_ = true;
      continue;
    }
    const Flag* flag = Find(name);
    if (flag == nullptr && name != kConfig) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " is not known: --help lists the names"));
    }
    if (equals != std::string::npos) {
      (*values)[name].push_back(args[i].substr(equals + 1));
    } else if (flag != nullptr && flag->value.empty()) {
      (*values)[name].push_back("true");
    } else if (i + 1 < args.size()) {
      (*values)[name].push_back(args[++i]);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value: --", name, "=",
                                                     flag == nullptr ? "FILE" : flag->value));
    }
  }
  return absl::OkStatus();
}

FlagSet::Values FlagSet::ReadEnv(const GetEnv& get_env) const {
  Values values;
  for (const Flag& flag : flags_) {
    const std::optional<std::string> value = get_env(EnvName(flag.name));
    if (!value.has_value()) continue;
    values[flag.name] = flag.repeatable
                            ? absl::StrSplit(*value, absl::ByAnyChar(" ;\t\n"), absl::SkipEmpty())
                            : std::vector<std::string>{*value};
  }
  return values;
}

absl::Status FlagSet::ReadFile(const std::string& path, Values* values) const {
  std::string all;
  if (absl::Status status = ReadBounded(path, &all); !status.ok()) return status;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(all, '\n')) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    const size_t equals = text.find('=');
    const std::string name(absl::StripAsciiWhitespace(text.substr(0, equals)));
    if (equals == absl::string_view::npos || Find(name) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": '", text,
                       "': name=value with the name of a flag is allowed, or a comment after '#'"));
    }
    (*values)[name].emplace_back(absl::StripAsciiWhitespace(text.substr(equals + 1)));
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Apply(const Flag& flag, const std::vector<std::string>& values,
                            const std::string& source) const {
  if (values.size() > 1 && !flag.repeatable) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": given ", values.size(), " times, once is allowed"));
  }
  for (const std::string& value : values) {
    const absl::Status status = flag.set(value);
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat(source, ": ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Parse(const std::vector<std::string>& args, const GetEnv& get_env) {
  Values from_args, from_file;
  if (absl::Status status = ReadArgs(args, &from_args); !status.ok()) return status;
  if (help_wanted_) return absl::OkStatus();
  Values from_env = ReadEnv(get_env);

  std::string path = get_env(EnvName(kConfig)).value_or("");
  if (from_args.contains(kConfig)) path = from_args[kConfig].back();
  if (!path.empty()) {
    if (absl::Status status = ReadFile(path, &from_file); !status.ok()) return status;
  }

  for (const Flag& flag : flags_) {
    absl::Status status;
    if (from_args.contains(flag.name)) {
      status = Apply(flag, from_args[flag.name], absl::StrCat("--", flag.name));
    } else if (from_env.contains(flag.name)) {
      status = Apply(flag, from_env[flag.name], EnvName(flag.name));
    } else if (from_file.contains(flag.name)) {
      status = Apply(flag, from_file[flag.name], absl::StrCat(path, ": ", flag.name));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<std::string> FlagSet::UnknownVariables(const std::vector<std::string>& names) const {
  std::vector<std::string> known = {EnvName(kConfig)};
  for (const Flag& flag : flags_) known.push_back(EnvName(flag.name));
  std::vector<std::string> warnings;
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, env_prefix_) ||
        std::find(known.begin(), known.end(), name) != known.end() ||
        IsServiceVariable(name.substr(env_prefix_.size()))) {
      continue;
    }
    std::stable_sort(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
      return Distance(a, name) < Distance(b, name);
    });
    warnings.push_back(absl::StrCat(name,
                                    " is set but names no flag and does nothing; nearest are ",
                                    known[0], " and ", known[1]));
  }
  return warnings;
}

std::string FlagSet::Help() const {
  std::string out;
  for (const Flag& flag : flags_) {
    absl::StrAppend(&out, "  --", flag.name, flag.value.empty() ? "" : "=", flag.value, "\n",
                    Wrapped(flag.help, 88, "      "));
  }
  absl::StrAppend(&out,
                  "  --config=FILE\n      Lines of name=value with these names, without the "
                  "dashes; '#' starts a comment.\n      A regular file of 1 MiB at most.\n");
  absl::StrAppend(
      &out, "\nEach flag is also read from the environment (", EnvName("listen"),
      " for --listen) and from the file.\nThe command line goes before the environment, which goes "
      "before the file.\n");
  return out;
}

}  // namespace vrambroker::server
