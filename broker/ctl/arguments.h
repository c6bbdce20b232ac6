// The flags of a command that takes some of them several times. Flags and words may come in any
// order; "--name=value" and "--name value" are the same; after "--" all are words.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vrambroker::ctl {

struct FlagSpec {
  std::string name;  // without dashes
  bool takes_value = true;
  bool repeats = false;
  // What a shell completes the value with: words with '|' between, kFileValue, or nothing.
  std::string values = {};
};

// FlagSpec::values of the path of a file.
inline constexpr char kFileValue[] = "FILE";

class Arguments {
 public:
  // INVALID_ARGUMENT for a flag that is not in `specs`, one without its value (or with one that it
  // does not take), and one given twice that does not repeat.
  static absl::StatusOr<Arguments> Parse(const std::vector<std::string>& arguments,
                                         const std::vector<FlagSpec>& specs);

  const std::vector<std::string>& words() const { return words_; }
  bool Has(const std::string& flag) const { return values_.count(flag) > 0; }
  // Of a flag that repeats; empty where it was not given.
  std::vector<std::string> All(const std::string& flag) const;
  // Of a flag that takes a value once.
  std::string Get(const std::string& flag, const std::string& otherwise) const;

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace vrambroker::ctl
