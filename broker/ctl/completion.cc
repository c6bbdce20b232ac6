#include "broker/ctl/completion.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "broker/ctl/commands.h"
#include "broker/ctl/connection.h"

namespace vrambroker::ctl {
namespace {

constexpr char kShells[] = "bash|zsh|fish";

constexpr char kUsage[] =
    "Prints a script that lets a shell complete commands, flags and their values.\n\n"
    "  vramctl completion bash|zsh|fish\n\n"
    "  source <(vramctl completion bash)          in ~/.bashrc\n"
    "  source <(vramctl completion zsh)           in ~/.zshrc, after compinit\n"
    "  vramctl completion fish | source           in ~/.config/fish/config.fish\n\n"
    "Exit status: 0 done, 2 wrong arguments.\n";

// "a|b" as "a b".
std::string Words(const std::string& values) { return absl::StrReplaceAll(values, {{"|", " "}}); }

std::string InSingleQuotes(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// "--format=", "--yes".
std::vector<std::string> FlagWords(const Command& command) {
  std::vector<std::string> words;
  for (const FlagSpec& flag : command.flags) {
    words.push_back(absl::StrCat("--", flag.name, flag.takes_value ? "=" : ""));
  }
  words.emplace_back("--help");
  return words;
}

// Patterns of bash's case, by what they lead to: a branch each.
std::string Branches(const std::map<std::string, std::vector<std::string>>& patterns,
                     const std::string& before, const std::string& after) {
  std::string out;
  for (const auto& [values, those] : patterns) {
    absl::StrAppend(&out, "    ", absl::StrJoin(those, "|"), ") ", before, InSingleQuotes(values),
                    after, " ;;\n");
  }
  return out;
}

// $1: a command, empty where none is given yet; $2: a flag of it.
std::string BashValues(const std::vector<Command>& commands) {
  std::map<std::string, std::vector<std::string>> by_values;
  std::map<std::string, bool> anywhere;  // flags that may stand before the command
  for (const Command& command : commands) {
    for (const FlagSpec& flag : command.flags) {
      if (flag.values.empty()) continue;
      std::vector<std::string>& patterns = by_values[Words(flag.values)];
      patterns.push_back(absl::StrCat(command.name, ":--", flag.name));
      if (!std::exchange(anywhere[flag.name], true)) {
        patterns.push_back(absl::StrCat(":--", flag.name));
      }
    }
    if (!command.word_values.empty()) {
      by_values[Words(command.word_values)].push_back(command.name + ":");
    }
  }
  return Branches(by_values, "values=", "");
}

std::string BashScript(const std::vector<Command>& commands) {
  std::map<std::string, std::vector<std::string>> by_flags;
  std::vector<std::string> names;
  std::map<std::string, bool> with_value;
  for (const Command& command : commands) {
    names.push_back(command.name);
    by_flags[absl::StrJoin(FlagWords(command), " ")].push_back(command.name);
    for (const FlagSpec& flag : command.flags) {
      if (flag.takes_value) with_value["--" + flag.name] = true;
    }
  }
  const std::string value_flags = absl::StrJoin(
      with_value, "|", [](std::string* out, const auto& one) { out->append(one.first); });
  return absl::StrCat(R"(# Completes vramctl in bash: source <(vramctl completion bash)
_vramctl() {
  local current=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} command='' values='' i
  # "--flag=value" is three words.
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $flag == '=' ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      '=') ((++i)) ;;
      )",
                      value_flags, R"() [[ ${COMP_WORDS[i+1]} == '=' ]] || ((++i)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $flag in
    )",
                      value_flags, R"() ;;
    *) flag='' ;;
  esac
  COMPREPLY=()
  case "$command:$flag" in
)",
                      BashValues(commands), R"(  esac
  if [[ -z $flag && -z $command && $current != -* ]]; then
    values=')",
                      absl::StrJoin(names, " "),
                      R"('
  elif [[ -z $flag && $current == -* ]]; then
    case $command in
)",
                      absl::StrReplaceAll(Branches(by_flags, "values=", ""), {{"    ", "      "}}),
                      R"(      '') values='--help' ;;
    esac
    compopt -o nospace 2>/dev/null
  fi
  if [[ $values == )",
                      kFileValue, R"( ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} == *= ]] || compopt +o nospace 2>/dev/null
  fi
  return 0
}
complete -F _vramctl vramctl
)");
}

// What zsh's _arguments does at a value.
std::string ZshAction(const std::string& values) {
  if (values == kFileValue) return "_files";
  return values.empty() ? "" : absl::StrCat("(", Words(values), ")");
}

std::string ZshArguments(const Command& command) {
  std::string out = "        _arguments '--help[say what it does]'";
  for (const FlagSpec& flag : command.flags) {
    const std::string begin =
        absl::StrCat(" \\\n          '", flag.repeats ? "*" : "", "--", flag.name);
    absl::StrAppend(
        &out, begin,
        flag.takes_value ? absl::StrCat("=:", flag.name, ":", ZshAction(flag.values), "'") : "'");
  }
  if (!command.word_values.empty()) {
    absl::StrAppend(&out, " \\\n          '*:", command.name, ":", ZshAction(command.word_values),
                    "'");
  }
  return out;
}

std::string ZshScript(const std::vector<Command>& commands) {
  std::string names, branches;
  for (const Command& command : commands) {
    const std::string summary = absl::StrReplaceAll(command.summary, {{":", "\\:"}});
    absl::StrAppend(&names, "    ", InSingleQuotes(absl::StrCat(command.name, ":", summary)), "\n");
    absl::StrAppend(&branches, "      (", command.name, ")\n", ZshArguments(command), " ;;\n");
  }
  return absl::StrCat(R"(#compdef vramctl
# Completes vramctl in zsh: source <(vramctl completion zsh)
_vramctl() {
  local curcontext="$curcontext" state line
  local -a commands
  commands=(
)",
                      names, R"(  )
  _arguments -C '--help[list the commands]' '1: :->command' '*:: :->arguments'
  case $state in
    (command) _describe command commands ;;
    (arguments)
      case $words[1] in
)",
                      branches, R"(      esac ;;
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _vramctl "$@"
else
  compdef _vramctl vramctl
fi
)");
}

std::string FishValues(const std::string& values) {
  if (values == kFileValue) return " -r -F";
  return values.empty() ? " -x" : absl::StrCat(" -x -a ", InSingleQuotes(Words(values)));
}

std::string FishScript(const std::vector<Command>& commands) {
  std::string out =
      "# Completes vramctl in fish: vramctl completion fish | source\n"
      "complete -c vramctl -f\n"
      "complete -c vramctl -l help -d 'say what it does'\n";
  for (const Command& command : commands) {
    const std::string summary = absl::StrReplaceAll(command.summary, {{"'", "\\'"}});
    const std::string seen =
        absl::StrCat("complete -c vramctl -n '__fish_seen_subcommand_from ", command.name, "'");
    absl::StrAppend(&out, "complete -c vramctl -n __fish_use_subcommand -a ", command.name, " -d '",
                    summary, "'\n");
    for (const FlagSpec& flag : command.flags) {
      absl::StrAppend(&out, seen, " -l ", flag.name,
                      flag.takes_value ? FishValues(flag.values) : "", "\n");
    }
    if (command.word_values == kFileValue) {
      absl::StrAppend(&out, seen, " -F\n");
    } else if (!command.word_values.empty()) {
      absl::StrAppend(&out, seen, " -a ", InSingleQuotes(Words(command.word_values)), "\n");
    }
  }
  return out;
}

int Completion(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<Arguments> parsed = Arguments::Parse(arguments, {});
  if (!parsed.ok() || parsed->words().size() != 1) {
    TellMisuse("completion",
               parsed.ok()
                   ? absl::InvalidArgumentError("completion takes one shell: bash, zsh or fish")
                   : parsed.status(),
               error);
    return kFailed;
  }
  const auto script = CompletionScript(parsed->words()[0], Commands());
  if (!script.ok()) {
    TellMisuse("completion", script.status(), error);
    return kFailed;
  }
  out << *script;
  return kDone;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const std::string& shell,
                                             const std::vector<Command>& commands) {
  if (shell == "bash") return BashScript(commands);
  if (shell == "zsh") return ZshScript(commands);
  if (shell == "fish") return FishScript(commands);
  return absl::InvalidArgumentError(
      absl::StrCat("'", shell, "' given, bash, zsh or fish is allowed"));
}

Command CompletionCommand() {
  return {"completion", kShells, "a script for a shell that completes all this", kUsage, {},
          Completion,   kShells};
}

}  // namespace vrambroker::ctl
