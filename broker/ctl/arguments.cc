#include "broker/ctl/arguments.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vrambroker::ctl {
namespace {

absl::Status Unknown(const std::string& name, const std::vector<FlagSpec>& specs) {
  if (specs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is no flag of this command: it has none"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--", name, " is no flag of this command: ",
      absl::StrJoin(
          specs, ", ",
          [](std::string* out, const FlagSpec& s) { absl::StrAppend(out, "--", s.name); }),
      " are"));
}

}  // namespace

absl::StatusOr<Arguments> Arguments::Parse(const std::vector<std::string>& arguments,
                                           const std::vector<FlagSpec>& specs) {
  Arguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      parsed.words_.insert(parsed.words_.end(), arguments.begin() + static_cast<ptrdiff_t>(i) + 1,
                           arguments.end());
      break;
    }
    if (!absl::StartsWith(argument, "--")) {
      parsed.words_.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals - std::min<size_t>(2, equals));
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&](const FlagSpec& s) { return s.name == name; });
    if (spec == specs.end()) return Unknown(name, specs);
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
      if (!spec->takes_value) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, ": '", value, "' given, it takes no value"));
      }
    } else if (spec->takes_value) {
      if (i + 1 >= arguments.size()) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, ": its value is missing"));
      }
      value = arguments[++i];
    }
    std::vector<std::string>& values = parsed.values_[name];
    if (!values.empty() && !spec->repeats) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " is given twice, once is allowed"));
    }
    values.push_back(std::move(value));
  }
  return parsed;
}

std::vector<std::string> Arguments::All(const std::string& flag) const {
  const auto it = values_.find(flag);
  return it == values_.end() ? std::vector<std::string>() : it->second;
}

std::string Arguments::Get(const std::string& flag, const std::string& otherwise) const {
  const auto it = values_.find(flag);
  return it == values_.end() ? otherwise : it->second.front();
}

}  // namespace vrambroker::ctl
