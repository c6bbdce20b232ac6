// Options of a program, each from the command line, the environment or a file of name=value lines,
// in this order of precedence. Unlike the flags of absl they may repeat, and parsing is a function
// of its inputs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace vrambroker::server {

struct Flag {
  std::string name;   // "listen", given as --listen
  std::string value;  // what the value looks like, for --help; empty for a switch
  std::string help;
  // Takes one value. A switch that is given without a value gets "true".
  std::function<absl::Status(const std::string&)> set;
  // May be given several times. In the environment its values stand one after another, separated by
  // spaces or semicolons.
  bool repeatable = false;
};

// Reads an environment variable; nothing where it is not set.
using GetEnv = std::function<std::optional<std::string>(const std::string&)>;

class FlagSet {
 public:
  // Variables are named <env_prefix><NAME>, upper case, '-' as '_'.
  explicit FlagSet(std::string env_prefix) : env_prefix_(std::move(env_prefix)) {}

  void Add(Flag flag) { flags_.push_back(std::move(flag)); }

  // `args` without the program's name: --name=value, --name value, or --name for a switch. --config
  // FILE names the file; --help only sets help_wanted(). INVALID_ARGUMENT names the flag, where its
  // value came from, the value and what is allowed; unknown names (of the environment only flags
  // are looked up) and anything that is no flag are refused as well.
  absl::Status Parse(const std::vector<std::string>& args, const GetEnv& get_env);

  // A warning for each of these names of environment variables that has the prefix and names no
  // flag, with the flags that are spelt most like it. Those that orchestrators set for a service
  // (PORT, SERVICE_...) are left out. Requires two flags.
  std::vector<std::string> UnknownVariables(const std::vector<std::string>& names) const;

  bool help_wanted() const { return help_wanted_; }
  // One paragraph for each flag.
  std::string Help() const;
  std::string EnvName(const std::string& flag) const;

 private:
  // Values by flag name, from one source.
  using Values = std::map<std::string, std::vector<std::string>>;

  const Flag* Find(const std::string& name) const;
  absl::Status ReadArgs(const std::vector<std::string>& args, Values* values);
  absl::Status ReadFile(const std::string& path, Values* values) const;
  Values ReadEnv(const GetEnv& get_env) const;
  absl::Status Apply(const Flag& flag, const std::vector<std::string>& values,
                     const std::string& source) const;

  std::string env_prefix_;
  std::vector<Flag> flags_;
  bool help_wanted_ = false;
};

}  // namespace vrambroker::server
